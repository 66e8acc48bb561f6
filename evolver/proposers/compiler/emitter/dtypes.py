"""What is known of the values in a kernel: element type and block axes of each name.

An element type is ``fp32``, ``i64`` and so on, or None where it is not known; the passes
leave alone what is not known. Axes are the set of dimensions along which a value varies.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

_TL_NAMES = {
    "float64": "fp64",
    "float32": "fp32",
    "float16": "fp16",
    "bfloat16": "bf16",
    "int64": "i64",
    "int32": "i32",
    "int16": "i16",
    "int8": "i8",
    "uint8": "u8",
    "int1": "i1",
}
_SAME_AS_FIRST = frozenset(
    [f"tl.{n}" for n in ("broadcast_to", "sum", "max", "min", "abs", "sigmoid")]
    + [f"tl_math.{n}" for n in ("abs", "log", "log2", "exp", "sin", "cos")]
    + ["triton_helpers.max2", "triton_helpers.min2"]
)
_SAME_AS_BOTH = frozenset({"triton_helpers.maximum", "triton_helpers.minimum"})


def tl_dtype(node: ast.expr) -> str | None:
    """The type that ``tl.float32`` and the like name."""
    if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "tl":
        return _TL_NAMES.get(node.attr)
    return None


class Types:
    """Element types of the names of one kernel, from a walk in order of execution."""

    def __init__(self, function: ast.FunctionDef, signature: Mapping[str, str]) -> None:
        self._signature = signature
        self._of_name: dict[str, str | None] = {}
        self._value_of: dict[str, ast.expr | None] = {}
        for node in _assignments(function):
            target = node.targets[0]
            if not isinstance(target, ast.Name):
                continue
            self._value_of[target.id] = None if target.id in self._value_of else node.value
            found = self.of(node.value)
            known = self._of_name.get(target.id, found)
            self._of_name[target.id] = found if known == found else None

    def of(self, node: ast.expr) -> str | None:
        """The element type of ``node``, or None."""
        if isinstance(node, ast.Name):
            return self._of_name.get(node.id)
        if isinstance(node, ast.Compare):
            return "i1"
        if isinstance(node, ast.UnaryOp):
            return self.of(node.operand)
        if isinstance(node, ast.BinOp):
            return self._of_operands(node.left, node.right)
        if isinstance(node, ast.Subscript):
            return self.of(node.value)
        return self._of_call(node) if isinstance(node, ast.Call) else None

    def _of_operands(self, left: ast.expr, right: ast.expr) -> str | None:
        """The common type; a literal beside a floating operand takes that operand's type."""
        types = {self.of(e) for e in (left, right) if not isinstance(e, ast.Constant)}
        found = types.pop() if len(types) == 1 else None
        has_literal = isinstance(left, ast.Constant) or isinstance(right, ast.Constant)
        return None if has_literal and not (found or "").startswith(("fp", "bf")) else found

    def held_exactly_by(self, node: ast.expr, dtype: str) -> bool:
        """Whether rounding the value of ``node`` to the 16-bit ``dtype`` would not change it."""
        if self.of(node) == dtype:
            return True
        if isinstance(node, ast.Name):
            value = self._value_of.get(node.id)
            return value is not None and self.held_exactly_by(value, dtype)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return self.held_exactly_by(node.operand, dtype)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "tl.where":
            return all(_is_special(a) or self.held_exactly_by(a, dtype) for a in node.args[1:])
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            widens = node.func.attr == "to" and tl_dtype(node.args[0]) in ("fp32", dtype)
            return widens and self.held_exactly_by(node.func.value, dtype)
        return False

    def behind(self, node: ast.expr) -> ast.expr:
        """The expression that a name stands for, where it is written once; else ``node``."""
        value = self._value_of.get(node.id) if isinstance(node, ast.Name) else None
        return node if value is None else value

    def of_pointer(self, address: ast.expr) -> str | None:
        """The element type behind the pointer in ``address``."""
        return self._of_pointer(address)

    def _of_call(self, node: ast.Call) -> str | None:
        if isinstance(node.func, ast.Attribute) and node.func.attr == "to" and node.args:
            return tl_dtype(node.args[0])
        name = ast.unparse(node.func)
        if name == "tl.load":
            return self._of_pointer(node.args[0])
        if name in ("tl.full", "tl.zeros"):
            return tl_dtype(node.args[-1])
        if name == "tl.where":
            left, right = self.of(node.args[1]), self.of(node.args[2])
            return left if left == right else None
        if name in _SAME_AS_BOTH:
            left, right = self.of(node.args[0]), self.of(node.args[1])
            return left if left == right else None
        if name in _SAME_AS_FIRST or (name.startswith("libdevice.") and "is" not in name):
            return self.of(node.args[0])
        return None

    def _of_pointer(self, address: ast.expr) -> str | None:
        for node in ast.walk(address):
            if isinstance(node, ast.Name) and self._signature.get(node.id, "").startswith("*"):
                return self._signature[node.id][1:]
        return None


def _is_special(node: ast.expr) -> bool:
    """Zero, NaN and the infinities, which every type holds."""
    if isinstance(node, ast.Constant):
        return node.value == 0
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "float"


class Axes:
    """Block axes of the names of one kernel."""

    def __init__(self, function: ast.FunctionDef) -> None:
        self._of_name: dict[str, frozenset[str]] = {}
        for node in _assignments(function):
            for target in node.targets:
                for name in ast.walk(target):
                    if isinstance(name, ast.Name):
                        before = self._of_name.get(name.id, frozenset())
                        self._of_name[name.id] = before | self.of(node.value)

    def of(self, node: ast.expr) -> frozenset[str]:
        """The axes along which ``node`` varies; a reduction drops those of its reduction."""
        if isinstance(node, ast.Call) and _is_reduction(node):
            return frozenset(a for a in self._union(node) if not a.startswith("r"))
        return self._union(node)

    def _union(self, node: ast.expr) -> frozenset[str]:
        found: frozenset[str] = frozenset()
        for child in ast.walk(node):
            if isinstance(child, ast.Name):
                found |= self._of_name.get(child.id, frozenset())
                found |= _axes_of_block(child.id)
            elif isinstance(child, ast.Call) and child is not node and _is_reduction(child):
                return frozenset(a for a in found if not a.startswith("r"))
        return found


def _axes_of_block(name: str) -> frozenset[str]:
    if not name.endswith("BLOCK") or name == "BLOCK":
        return frozenset()
    return frozenset({name.removesuffix("BLOCK").lower()})


def _is_reduction(node: ast.Call) -> bool:
    name = ast.unparse(node.func)
    is_tl = name in ("tl.sum", "tl.max", "tl.min", "tl.reduce")
    return is_tl or (name.startswith("triton_helpers.") and name.endswith(_REDUCING))


_REDUCING = ("2", "_with_index", "any", "prod", "welford", "softmax_reduce")


def _assignments(function: ast.FunctionDef) -> list[ast.Assign]:
    found: list[ast.Assign] = []

    def visit(body: list[ast.stmt]) -> None:
        for statement in body:
            if isinstance(statement, ast.Assign):
                found.append(statement)
            elif isinstance(statement, ast.For | ast.If | ast.While):
                visit(statement.body)
                visit(getattr(statement, "orelse", []))

    visit(function.body)
    return found
