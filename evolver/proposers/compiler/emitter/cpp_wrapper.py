"""The ``call`` function that Inductor generates around its C++ kernels, read into steps.

What only serves Inductor's runtime is dropped: clearing of arguments, assertions, deletions.
Views, library calls and allocations become plain torch.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from .cpp_expression import Untranslatable


@dataclass
class Allocate:
    """A new buffer. Extents are Python expressions over numbers and the group's symbols."""

    name: str
    size: tuple[str, ...]
    stride: tuple[str, ...]
    dtype: str


@dataclass
class Launch:
    """A call of one of the generated kernels, by its generated name."""

    kernel: str
    arguments: list[ast.expr]


@dataclass
class Python:
    """Any other statement, in plain torch."""

    statement: ast.stmt


Step = Allocate | Launch | Python


@dataclass
class Wrapper:
    """What ``call`` does."""

    kernels: dict[str, str]
    """The C++ text of each kernel."""
    arguments: list[str]
    """Generated names of the graph's inputs, in order."""
    steps: list[Step]
    returned: list[ast.expr]
    aliases: dict[str, str] = field(default_factory=dict)


_DROPPED_CALLS = re.compile(
    r"args\.clear|assert_size_stride|assert_alignment|torch\._check|.*\.copy_if_misaligned"
)


def read_wrapper(source: str) -> Wrapper:
    """Read the module that Inductor generated.

    Raises:
        Untranslatable: the module has parts that are not known here.
    """
    tree = ast.parse(source)
    kernels = dict(k for n in tree.body if (k := _kernel(n)) is not None)
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == "call"]
    if not calls:
        raise Untranslatable("the generated module has no function 'call'")
    reader = _Reader(kernels)
    for statement in calls[0].body:
        reader.read(statement)
    return reader.wrapper


def _kernel(node: ast.stmt) -> tuple[str, str] | None:
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
        return None
    maker = ast.unparse(node.value.func)
    if not maker.startswith("async_compile.cpp"):
        return None
    target, text = node.targets[0], node.value.args[-1]
    assert isinstance(target, ast.Name)
    return target.id, ast.literal_eval(text)


class _Reader:
    def __init__(self, kernels: dict[str, str]) -> None:
        self.wrapper = Wrapper(kernels, [], [], [])

    def read(self, statement: ast.stmt) -> None:
        """Add what ``statement`` does to the wrapper."""
        match statement:
            case ast.Delete() | ast.Pass() | ast.If():
                # A branch only raises on sizes that the workloads exclude.
                return
            case ast.Return(value=ast.Tuple(elts=elements)):
                self.wrapper.returned = [self._plain(e) for e in elements]
            case ast.Expr(value=ast.Call() as call):
                self._effect(call)
            case ast.Assign(targets=[target], value=value):
                self._assign(target, value)
            case _:
                raise Untranslatable(f"unknown statement in call(): {ast.unparse(statement)}")

    def _effect(self, call: ast.Call) -> None:
        function = ast.unparse(call.func)
        if _DROPPED_CALLS.fullmatch(function):
            return
        if function in self.wrapper.kernels:
            arguments = [self._plain(a) for a in call.args]
            self.wrapper.steps.append(Launch(function, arguments))
            return
        self._python(ast.Expr(self._plain(call)))

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        text = ast.unparse(value)
        if text == "args":
            elements = target.elts if isinstance(target, ast.Tuple) else [target]
            self.wrapper.arguments = [ast.unparse(e) for e in elements]
            return
        name = ast.unparse(target)
        if name.endswith("_size") or re.fullmatch(r"\w+_size\[\d+\]", text):
            # Extents of the inputs are named by the group, not by Inductor.
            return
        if isinstance(value, ast.Constant) and value.value is None:
            return
        if isinstance(value, ast.Name):
            self.wrapper.aliases[name] = self.wrapper.aliases.get(value.id, value.id)
        elif text.startswith("empty_strided_cpu("):
            assert isinstance(value, ast.Call)
            self.wrapper.steps.append(_allocation(name, value))
        else:
            self._python(ast.Assign([ast.Name(name, ast.Store())], self._plain(value)))

    def _python(self, statement: ast.stmt) -> None:
        self.wrapper.steps.append(Python(ast.fix_missing_locations(statement)))

    def _plain(self, node: ast.expr) -> ast.expr:
        plain: ast.expr = _Plain(self.wrapper.aliases).visit(node)
        return ast.fix_missing_locations(plain)


def _allocation(name: str, call: ast.Call) -> Allocate:
    size, stride, dtype = call.args
    assert isinstance(size, ast.Tuple)
    assert isinstance(stride, ast.Tuple)
    return Allocate(
        name,
        tuple(ast.unparse(e) for e in size.elts),
        tuple(ast.unparse(e) for e in stride.elts),
        ast.unparse(dtype),
    )


class _Plain(ast.NodeTransformer):
    """Inductor's spellings as torch's own."""

    def __init__(self, aliases: Mapping[str, str]) -> None:
        self._aliases = aliases

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self._aliases.get(node.id, node.id), node.ctx)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        function = ast.unparse(node.func)
        if function == "reinterpret_tensor":
            return _view(node)
        if function.startswith("extern_kernels."):
            node.func = _torch_function(function.removeprefix("extern_kernels."))
        elif function.startswith("torch.ops.aten."):
            node.func = _aten_function(function)
        elif function.split(".")[0] in ("inductor_ops", "_quantized", "alloc_from_pool"):
            raise Untranslatable(f"call() uses {function}")
        return node


def _view(node: ast.Call) -> ast.expr:
    tensor, size, stride = node.args[:3]
    offset = ast.unparse(node.args[3]) if len(node.args) > 3 else "0"
    base = ast.unparse(tensor)
    text = f"torch.as_strided({base}, {ast.unparse(size)}, {ast.unparse(stride)}"
    # Without an offset, as_strided keeps the tensor's own.
    text += ")" if offset == "0" else f", {base}.storage_offset() + {offset})"
    return ast.parse(text, mode="eval").body


def _aten_function(function: str) -> ast.expr:
    parts = function.removeprefix("torch.ops.aten.").split(".")
    if len(parts) == 2 and hasattr(torch, parts[0]):
        return _torch_function(parts[0])
    return ast.parse(function, mode="eval").body


def _torch_function(name: str) -> ast.expr:
    if not hasattr(torch, name):
        raise Untranslatable(f"torch has no function {name!r} for Inductor's library call")
    return ast.Attribute(ast.Name("torch", ast.Load()), name, ast.Load())


def names_used(nodes: Sequence[ast.AST]) -> list[str]:
    """Every name read in ``nodes``, once per reading."""
    return [
        n.id
        for node in nodes
        for n in ast.walk(node)
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)
    ]


def is_contiguous(size: Sequence[str], stride: Sequence[str]) -> bool:
    """Whether the layout is row-major for any value of the symbols (tried for two)."""
    for values in _samples([*size, *stride]):
        step = 1
        for extent, actual in reversed(list(zip(size, stride, strict=True))):
            length = _evaluate(extent, values)
            if length != 1 and _evaluate(actual, values) != step:
                return False
            step *= length
    return True


def same_count(first: Sequence[str], second: Sequence[str]) -> bool:
    """Whether two shapes have equally many elements, for any value of the symbols."""

    def count(shape: Sequence[str], values: Mapping[str, int]) -> int:
        return math.prod(_evaluate(extent, values) for extent in shape)

    return all(count(first, v) == count(second, v) for v in _samples([*first, *second]))


def _samples(texts: Sequence[str]) -> list[dict[str, int]]:
    names = sorted({n for text in texts for n in re.findall(r"[A-Za-z_]\w*", text)})
    return [{name: seed + 4 * i for i, name in enumerate(names)} for seed in (7, 11)]


def _evaluate(text: str, values: Mapping[str, int]) -> int:
    """The value of an integer expression over ``values``."""
    node = ast.parse(text, mode="eval").body

    def value(n: ast.expr) -> int:
        match n:
            case ast.Constant(value=int() as number):
                return number
            case ast.Name(id=name):
                return values[name]
            case ast.BinOp(left=left, op=operator, right=right):
                a, b = value(left), value(right)
                if isinstance(operator, ast.Mult):
                    return a * b
                if isinstance(operator, ast.Add):
                    return a + b
                if isinstance(operator, ast.Sub):
                    return a - b
                if isinstance(operator, ast.FloorDiv):
                    return a // b
            case ast.Call(func=ast.Name(id="max" | "min" as name), args=arguments):
                return {"max": max, "min": min}[name](value(a) for a in arguments)
        raise Untranslatable(f"cannot evaluate the extent {text!r}")

    return value(node)
