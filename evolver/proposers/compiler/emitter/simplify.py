"""Shortening a kernel's body without changing a single operation that it performs.

Copies, constants, casts to the type that a value already has and broadcasts to the shape that
it already has go away; values that are used once move to their use while the line stays short;
what nothing reads is dropped. Loads, stores, atomics and reductions stay where they are.
"""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Mapping

from .dtypes import Axes, Types, tl_dtype

LONGEST_INLINE = 88
"""Characters of a statement beyond which nothing more is moved into it."""

_KEPT_APART = frozenset({"tl.load", "tl.sum", "tl.max", "tl.min", "tl.reduce", "tl.sort", "tl.dot"})
_KEPT_APART_SUFFIX = ("_scan", "_with_index", "2", "welford", "softmax_reduce", "any", "prod")


def simplify(function: ast.FunctionDef, signature: Mapping[str, str]) -> None:
    """Shorten ``function`` in place. ``signature`` gives the Triton type of each argument."""
    for _ in range(100):
        before = ast.dump(function)
        _replace_softmax_maxima(function)
        _fold_copies(function)
        _fold_constants(function, Types(function, signature))
        _Casts(Types(function, signature), Axes(function)).visit(function)
        _drop_dead(function)
        _merge_where(function)
        if ast.dump(function) == before:
            break
    _inline_single_uses(function)
    ast.fix_missing_locations(function)


def _counts(function: ast.FunctionDef) -> tuple[Counter[str], Counter[str]]:
    """How often each name is read, and how often it is written."""
    loads: Counter[str] = Counter()
    stores: Counter[str] = Counter(a.arg for a in function.args.args)
    for node in ast.walk(function):
        if isinstance(node, ast.Name):
            (loads if isinstance(node.ctx, ast.Load) else stores)[node.id] += 1
    return loads, stores


def _blocks(function: ast.FunctionDef) -> list[list[ast.stmt]]:
    """Every list of statements in ``function``, outermost first."""
    found: list[list[ast.stmt]] = [function.body]
    for node in ast.walk(function):
        if node is not function:
            for field in ("body", "orelse"):
                block = getattr(node, field, None)
                if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
                    found.append(block)
    return found


def _single_target(statement: ast.stmt) -> str | None:
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target = statement.targets[0]
        return target.id if isinstance(target, ast.Name) else None
    if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
        return statement.target.id
    return None


class _Substitute(ast.NodeTransformer):
    def __init__(self, name: str, value: ast.expr) -> None:
        self._name = name
        self._value = value

    def visit_Name(self, node: ast.Name) -> ast.AST:
        is_it = node.id == self._name and isinstance(node.ctx, ast.Load)
        return copy.deepcopy(self._value) if is_it else node


def _replace_softmax_maxima(function: ast.FunctionDef) -> None:
    """A row maximum that is only subtracted needs no NaN of its own.

    A NaN in the row is still in ``row - maximum``, and reaches the result from there.
    """
    loads, _ = _counts(function)
    subtracted: Counter[str] = Counter()
    for node in ast.walk(function):
        match node:
            case ast.BinOp(op=ast.Sub(), right=ast.Name(id=name)):
                subtracted[name] += 1
    for node in ast.walk(function):
        if not isinstance(node, ast.Assign):
            continue
        target = _single_target(node)
        if target is None or loads[target] == 0 or loads[target] != subtracted[target]:
            continue
        for call in ast.walk(node.value):
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "triton_helpers.max2":
                call.func = ast.parse("tl.max", mode="eval").body


def _fold_copies(function: ast.FunctionDef) -> None:
    """``a = b`` where both are written once: ``b`` takes the place of ``a``."""
    _, stores = _counts(function)
    for block in _blocks(function):
        for statement in list(block):
            name = _single_target(statement)
            value = statement.value if isinstance(statement, ast.Assign) else None
            if name is None or not isinstance(value, ast.Name):
                continue
            loop_local = block is not function.body
            if stores[name] > 1 and not loop_local:
                continue
            if stores[name] > 1 and not _same_copy_everywhere(function, name, value.id):
                continue
            if stores[value.id] > 1 and not _is_loop_index(function, name, value.id):
                continue
            _Substitute(name, value).visit(function)


def _same_copy_everywhere(function: ast.FunctionDef, name: str, source: str) -> bool:
    """Whether every assignment to ``name`` is ``name = source``."""
    return all(
        isinstance(n, ast.Assign) and isinstance(n.value, ast.Name) and n.value.id == source
        for n in ast.walk(function)
        if isinstance(n, ast.Assign | ast.AugAssign | ast.For) and _writes(n, name)
    )


def _writes(node: ast.Assign | ast.AugAssign | ast.For, name: str) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return any(isinstance(t, ast.Name) and t.id == name for t in targets)


def _is_loop_index(function: ast.FunctionDef, name: str, source: str) -> bool:
    """Each loop over a reduction recomputes ``source`` and copies it at once."""
    is_index = source.endswith(("_index", "_offset", "_base")) and source.startswith("r")
    return is_index and _same_copy_everywhere(function, name, source)


def _constant(value: ast.expr) -> tuple[ast.expr, ast.expr] | None:
    """The literal and the type expression of ``tl.full(shape, literal, type)``."""
    if not isinstance(value, ast.Call) or ast.unparse(value.func) != "tl.full":
        return None
    literal = value.args[1]
    is_literal = isinstance(literal, ast.Constant)
    is_negative = isinstance(literal, ast.UnaryOp) and isinstance(literal.operand, ast.Constant)
    is_special = isinstance(literal, ast.Call) and ast.unparse(literal.func) == "float"
    return (literal, value.args[2]) if is_literal or is_negative or is_special else None


def _fold_constants(function: ast.FunctionDef, types: Types) -> None:
    """Put literals where the other operand already has the type of the constant."""
    _, stores = _counts(function)
    constants: dict[str, tuple[ast.expr, ast.expr]] = {}
    for node in ast.walk(function):
        name = _single_target(node) if isinstance(node, ast.Assign) else None
        if name is not None and stores[name] == 1 and isinstance(node, ast.Assign):
            found = _constant(node.value)
            if found is not None:
                constants[name] = found
    _Constants(constants, types).visit(function)


class _Constants(ast.NodeTransformer):
    def __init__(self, constants: Mapping[str, tuple[ast.expr, ast.expr]], types: Types) -> None:
        self._constants = constants
        self._types = types

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        node.left, node.right = self._pair(node.left, node.right, exact=True)
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        if len(node.comparators) == 1:
            pair = self._pair(node.left, node.comparators[0], exact=False)
            node.left, node.comparators = pair[0], [pair[1]]
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        name = ast.unparse(node.func)
        if name == "tl.where" and len(node.args) == 3:
            node.args[1], node.args[2] = self._pair(node.args[1], node.args[2], exact=True)
        if name in ("triton_helpers.maximum", "triton_helpers.minimum"):
            node.args[0], node.args[1] = self._pair(node.args[0], node.args[1], exact=True)
        if name == "tl.store" and self._types.of_pointer(node.args[0]) is not None:
            node.args[1] = self._stored(node.args[1], self._types.of_pointer(node.args[0]))
        return node

    def _stored(self, value: ast.expr, dtype: str | None) -> ast.expr:
        if isinstance(value, ast.Name) and value.id in self._constants:
            literal, own = self._constants[value.id]
            return copy.deepcopy(literal) if tl_dtype(own) == dtype else value
        return value

    def _pair(self, a: ast.expr, b: ast.expr, *, exact: bool) -> tuple[ast.expr, ast.expr]:
        if isinstance(b, ast.Name) and b.id in self._constants:
            return a, self._literal(b, a, exact=exact)
        if isinstance(a, ast.Name) and a.id in self._constants:
            return self._literal(a, b, exact=exact), b
        return a, b

    def _literal(self, name: ast.Name, other: ast.expr, *, exact: bool) -> ast.expr:
        literal, dtype = self._constants[name.id]
        if isinstance(other, ast.Constant) or _is_attribute_of(dtype, other):
            fits = _is_attribute_of(dtype, other)
        else:
            mine, theirs = tl_dtype(dtype), self._types.of(other)
            is_integer_compare = not exact and bool(mine and theirs and mine[0] == theirs[0] == "i")
            fits = mine is not None and (mine == theirs or is_integer_compare)
        is_constant = isinstance(other, ast.Name) and other.id in self._constants
        return copy.deepcopy(literal) if fits and not is_constant else name


def _is_attribute_of(dtype: ast.expr, other: ast.expr) -> bool:
    """Whether ``dtype`` is written as ``other.dtype``."""
    return (
        isinstance(dtype, ast.Attribute)
        and dtype.attr == "dtype"
        and ast.dump(dtype.value) == ast.dump(other)
    )


class _Casts(ast.NodeTransformer):
    """Drops casts and broadcasts that change nothing."""

    def __init__(self, types: Types, axes: Axes) -> None:
        self._types = types
        self._axes = axes

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "to":
            is_plain = len(node.args) == 1 and not node.keywords
            wanted = tl_dtype(node.args[0]) if is_plain else None
            if wanted is not None and self._types.of(node.func.value) == wanted:
                return node.func.value
            if wanted == "fp32":
                return self._without_rounding(node)
        if ast.unparse(node.func) == "tl.store" and len(node.args) > 1:
            node.args[1] = self._without_widening(node.args[1], node.args[0])
        if ast.unparse(node.func) == "tl.broadcast_to" and len(node.args) == 2:
            shape = node.args[1]
            if isinstance(shape, ast.List):
                wanted_axes = self._axes.of(shape)
                names = sum(isinstance(e, ast.Name) for e in shape.elts)
                full = names == len(shape.elts) and self._axes.of(node.args[0]) == wanted_axes
                return node.args[0] if full else node
        return node

    def _without_rounding(self, node: ast.Call) -> ast.AST:
        """``v.to(tl.bfloat16).to(tl.float32)`` is ``v`` where ``v`` came from bfloat16."""
        assert isinstance(node.func, ast.Attribute)
        value, rounded = self._cast(node.func.value)
        if value is None or rounded not in ("bf16", "fp16"):
            return node
        is_wide = self._types.of(value) == "fp32"
        return value if is_wide and self._types.held_exactly_by(value, rounded) else node

    def _without_widening(self, value: ast.expr, address: ast.expr) -> ast.expr:
        """A store rounds by itself: casts to and from the stored type before it say nothing."""
        stored = self._types.of_pointer(address)
        inner, wanted = self._cast(value)
        if inner is None or stored is None:
            return value
        own = self._types.of(inner)
        widens = own == stored and wanted == "fp32"
        rounds = own == "fp32" and wanted == stored and stored in ("bf16", "fp16")
        return inner if widens or rounds else value

    def _cast(self, node: ast.expr) -> tuple[ast.expr | None, str | None]:
        """What ``node`` casts, and to which type; a name is looked through.

        Behind a name only another name is given: any other expression would be computed, or
        loaded, a second time and elsewhere.
        """
        cast = self._types.behind(node)
        if not (isinstance(cast, ast.Call) and isinstance(cast.func, ast.Attribute)):
            return None, None
        if cast.func.attr != "to" or len(cast.args) != 1 or cast.keywords:
            return None, None
        inner = cast.func.value
        reachable = cast is node or isinstance(inner, ast.Name)
        return (inner if reachable else None), tl_dtype(cast.args[0])


def _drop_dead(function: ast.FunctionDef) -> None:
    """Remove assignments that nothing reads; only atomics have an effect beside their value."""
    changed = True
    while changed:
        changed = False
        loads, _ = _counts(function)
        for block in _blocks(function):
            kept = [s for s in block if not _is_dead(s, loads)]
            changed |= len(kept) < len(block)
            block[:] = kept or [ast.Pass()]


def _is_dead(statement: ast.stmt, loads: Counter[str]) -> bool:
    if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
        return loads[statement.target.id] == 0
    if not isinstance(statement, ast.Assign) or "atomic" in ast.unparse(statement.value):
        return False
    names = {n.id for t in statement.targets for n in ast.walk(t) if isinstance(n, ast.Name)}
    own = Counter(n.id for n in ast.walk(statement.value) if isinstance(n, ast.Name))
    return all(loads[n] == own[n] and (own[n] == 0 or n.startswith("_")) for n in names)


def _merge_where(function: ast.FunctionDef) -> None:
    """``where(c, where(c, a, b), d)`` is ``where(c, a, d)``."""
    loads, stores = _counts(function)
    values = {
        name: node.value
        for node in ast.walk(function)
        if isinstance(node, ast.Assign)
        and (name := _single_target(node)) is not None
        and stores[name] == 1
    }
    for node in ast.walk(function):
        if not _is_where(node):
            continue
        assert isinstance(node, ast.Call)
        inner = node.args[1]
        if isinstance(inner, ast.Name) and loads[inner.id] == 1:
            inner = values.get(inner.id, inner)
        if not _is_where(inner) or not isinstance(inner, ast.Call):
            continue
        if ast.dump(inner.args[0]) == ast.dump(node.args[0]):
            node.args[1] = copy.deepcopy(inner.args[1])


def _is_where(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call) and ast.unparse(node.func) == "tl.where" and len(node.args) == 3
    )


def _inline_single_uses(function: ast.FunctionDef) -> None:
    """Move values that are used once to their use, in the same block, while it stays short."""
    changed = True
    while changed:
        changed = any(_inline_one(function, block) for block in _blocks(function))


def _inline_one(function: ast.FunctionDef, block: list[ast.stmt]) -> bool:
    loads, stores = _counts(function)
    for position, statement in enumerate(block):
        name = _single_target(statement)
        if name is None or not isinstance(statement, ast.Assign):
            continue
        if loads[name] != 1 or stores[name] != 1 or _stays_apart(statement.value):
            continue
        reads = {n.id for n in ast.walk(statement.value) if isinstance(n, ast.Name)}
        if any(stores[r] > 1 and not r.startswith("r0_") for r in reads):
            continue
        user = _user_in(block[position + 1 :], name)
        if user is None or isinstance(user, ast.For | ast.If | ast.While):
            continue
        trial = copy.deepcopy(user)
        value = statement.value
        _Substitute(name, value).visit(trial)
        if len(ast.unparse(ast.fix_missing_locations(trial))) > LONGEST_INLINE:
            continue
        block[block.index(user)] = trial
        block.remove(statement)
        return True
    return False


def _user_in(statements: list[ast.stmt], name: str) -> ast.stmt | None:
    for statement in statements:
        if any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(statement)):
            return statement
    return None


def _stays_apart(value: ast.expr) -> bool:
    for node in ast.walk(value):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if name in _KEPT_APART or name.startswith("tl.atomic"):
                return True
            if name.startswith("triton_helpers.") and name.endswith(_KEPT_APART_SUFFIX):
                return True
    return isinstance(value, ast.Compare) and "program_id" in ast.unparse(value)
