"""Which outputs are positions of selected values, and whether their order means anything.

A small data-flow look at the reference: ``topk``, ``sort``, ``argmax`` and their kin make a
selection; gathering by its indices gives the selected values; casts, views and offsets keep
what an index is. ``sorted=False`` says that the order along the dimension is free. The look
is shallow on purpose; the user's ``contract:`` corrects it.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from integrations.extraction.closure import Closure
from integrations.extraction.edits import TakeBranch
from integrations.extraction.folding import UNKNOWN, Facts, branch, evaluate
from integrations.extraction.machines import last_name
from integrations.extraction.piece import Piece

_PAIRS = frozenset({"topk", "sort", "kthvalue", "max", "min", "mode", "median"})
_NEEDS_DIM = frozenset({"max", "min", "median"})
_ALONE = frozenset({"argsort", "argmax", "argmin"})
_GATHERS = frozenset({"gather", "take_along_dim", "index_select", "take"})
_KEEP_INDEX = frozenset(
    [
        "to",
        "int",
        "long",
        "type",
        "type_as",
        "view",
        "reshape",
        "flatten",
        "contiguous",
        "unsqueeze",
        "squeeze",
        "clone",
    ]
)
_FORGET = frozenset(
    [
        "sum",
        "mean",
        "prod",
        "amax",
        "amin",
        "any",
        "all",
        "argsort",
        "size",
        "numel",
        "zeros_like",
        "ones_like",
    ]
)
_FACTS = frozenset({"shape", "dtype", "device", "ndim"})
_LITERALS = Facts(name=lambda _: UNKNOWN, call=lambda _: UNKNOWN)


@dataclass(frozen=True)
class Selection:
    """One call that selects along a dimension."""

    line: int
    column: int
    order_free: bool
    dim: int


@dataclass(frozen=True)
class Tags:
    """What a value holds: indices of some selections, values chosen by others."""

    indices: frozenset[Selection] = frozenset()
    selected: frozenset[Selection] = frozenset()

    def __or__(self, other: Tags) -> Tags:
        return Tags(self.indices | other.indices, self.selected | other.selected)


_NOTHING = Tags()
_Value = Tags | tuple[Tags, ...]


def output_tags(closure: Closure) -> tuple[Tags, ...]:
    """Return the tags of each output of the closure's entry."""
    functions = {p.name: p for p in closure.everything if isinstance(p.statement, ast.FunctionDef)}
    returned = _Flow(functions, depth=0).returns(closure.entry, [])
    return returned if isinstance(returned, tuple) else (returned,)


@dataclass
class _Flow:
    functions: dict[str, Piece]
    depth: int
    values: dict[str, _Value] = field(default_factory=dict)
    returned: _Value | None = None
    piece: Piece | None = None
    branches: int = 0

    def returns(self, piece: Piece, arguments: list[_Value]) -> _Value:
        """Return the tags of what the function returns."""
        function = piece.statement
        assert isinstance(function, ast.FunctionDef)
        self.piece = piece
        names = [a.arg for a in function.args.args]
        names = names[1:] if names[:1] == ["self"] else names
        self.values = dict(zip(names, arguments, strict=False))
        self._block(function.body)
        return self.returned if self.returned is not None else _NOTHING

    # --- statements

    def _block(self, body: list[ast.stmt]) -> None:
        assert self.piece is not None
        for statement in body:
            if statement not in self.piece.edits.hidden:
                self._statement(statement)

    def _statement(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Return) and node.value is not None:
            value = self._value(node.value)
            self.returned = value if self.returned is None else _join(self.returned, value)
        elif isinstance(node, ast.Assign):
            value = self._value(node.value)
            for target in node.targets:
                self._assign(target, value)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            self._assign(node.target, self._value(node.value))
        elif not isinstance(node, (ast.FunctionDef, ast.ClassDef)):  # what these return stays there
            self.branches += 1
            for name in ("body", "orelse", "finalbody"):
                self._block(getattr(node, name, []))
            self.branches -= 1

    def _assign(self, target: ast.expr, value: _Value) -> None:
        if isinstance(target, ast.Name):
            old = self.values.get(target.id)
            self.values[target.id] = _join(old, value) if self.branches and old else value
        elif isinstance(target, ast.Tuple):
            parts = value if isinstance(value, tuple) else (value,) * len(target.elts)
            for element, part in zip(target.elts, parts, strict=False):
                self._assign(element, part)

    # --- expressions

    def _value(self, node: ast.expr) -> _Value:
        match node:
            case ast.Name():
                return self.values.get(node.id, _NOTHING)
            case ast.Tuple() | ast.List():
                return tuple(_flat(self._value(e)) for e in node.elts)
            case ast.Subscript():
                return self._subscript(node)
            case ast.Attribute():
                return self._attribute(node)
            case ast.Call():
                return self._call(node)
            case ast.BinOp():
                both = _flat(self._value(node.left)) | _flat(self._value(node.right))
                keeps = isinstance(node.op, (ast.Add, ast.Sub))
                return both if keeps else Tags(selected=both.selected)
            case ast.UnaryOp():
                return Tags(selected=_flat(self._value(node.operand)).selected)
            case ast.IfExp() if self._folded(node) is not node:
                return self._value(self._folded(node) or node)
            case ast.IfExp():
                return _join(self._value(node.body), self._value(node.orelse))
        return _NOTHING

    def _subscript(self, node: ast.Subscript) -> _Value:
        base = self._value(node.value)
        if isinstance(base, tuple):
            position = node.slice.value if isinstance(node.slice, ast.Constant) else None
            inside = isinstance(position, int) and -len(base) <= position < len(base)
            return base[position] if inside else _flat(base)  # type: ignore[index]
        by_index = _flat(self._value(node.slice)).indices
        return Tags(selected=base.selected | by_index) if by_index else base

    def _attribute(self, node: ast.Attribute) -> _Value:
        if node.attr in _FACTS:
            return _NOTHING
        base = self._value(node.value)
        if isinstance(base, tuple) and node.attr in ("values", "indices"):
            return base[0 if node.attr == "values" else 1]
        return base

    def _call(self, node: ast.Call) -> _Value:
        name = last_name(node.func) or ""
        if name in _PAIRS and not (name in _NEEDS_DIM and _argument(node, "dim") is None):
            made = frozenset({self._selection(node)})
            return Tags(selected=made), Tags(indices=made)
        if name in _ALONE:
            return Tags(indices=frozenset({self._selection(node)}))
        arguments = [self._value(a) for a in [*node.args, *(k.value for k in node.keywords)]]
        called = self._called(node.func)
        if called is not None and self.depth < 8:
            return _Flow(self.functions, self.depth + 1).returns(called, arguments)
        owner = self._value(node.func.value) if isinstance(node.func, ast.Attribute) else _NOTHING
        if name in _KEEP_INDEX:
            return owner
        if name in _FORGET:
            return _NOTHING
        gathered = _flat(owner)
        for argument in arguments:
            gathered |= _flat(argument)
        chosen = gathered.indices if name in _GATHERS else frozenset()
        return Tags(selected=gathered.selected | chosen)

    def _selection(self, node: ast.Call) -> Selection:
        dim = _argument(node, "dim")
        number = evaluate(dim, _LITERALS) if dim is not None else -1
        ordered = self._folded(_argument(node, "sorted"))
        order_free = isinstance(ordered, ast.Constant) and ordered.value is False
        return Selection(
            node.lineno, node.col_offset, order_free, number if isinstance(number, int) else -1
        )

    def _folded(self, node: ast.expr | None) -> ast.expr | None:
        """Return the side that is taken of a conditional expression that was folded."""
        assert self.piece is not None
        edit = self.piece.edits.by_node.get(node) if node is not None else None
        if isinstance(node, ast.IfExp) and isinstance(edit, TakeBranch):
            return branch(node, edit.taken)
        return node

    def _called(self, function: ast.expr) -> Piece | None:
        if isinstance(function, ast.Name):
            return self.functions.get(function.id)
        is_method = isinstance(function, ast.Attribute) and ast.unparse(function.value) == "self"
        return self.functions.get(last_name(function) or "") if is_method else None


def _argument(node: ast.Call, name: str) -> ast.expr | None:
    return next((k.value for k in node.keywords if k.arg == name), None)


def _flat(value: _Value) -> Tags:
    if isinstance(value, Tags):
        return value
    result = _NOTHING
    for part in value:
        result |= part
    return result


def _join(left: _Value, right: _Value) -> _Value:
    if isinstance(left, tuple) and isinstance(right, tuple) and len(left) == len(right):
        return tuple(a | b for a, b in zip(left, right, strict=True))
    return _flat(left) | _flat(right)
