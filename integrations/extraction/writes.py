"""Which arguments a function's code writes, before it is run.

Follows views of arguments through assignments and into the functions of the reference, and takes
trailing underscores, stores into subscripts, augmented assignments and ``out=`` for writes. It
errs towards seeing too many; running the reference has the last word.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from integrations.extraction.closure import Closure
from integrations.extraction.machines import last_name
from integrations.extraction.piece import Piece

_VIEWS = frozenset(
    [
        *("view", "view_as", "reshape", "reshape_as", "flatten", "unflatten", "squeeze"),
        *("unsqueeze", "transpose", "permute", "movedim", "t", "narrow", "select", "expand"),
        *("expand_as", "chunk", "split", "unbind", "detach", "contiguous", "to", "type_as"),
        *("diagonal", "unfold", "as_strided", "swapaxes"),
    ]
)
_VIEW_ATTRIBUTES = frozenset({"T", "mT", "H", "data", "real", "imag"})
_DEEPEST = 8


def written_arguments(closure: Closure) -> list[str]:
    """Return the arguments of the closure's entry that its code seems to write, in order."""
    functions = {p.name: p for p in closure.everything if isinstance(p.statement, ast.FunctionDef)}
    return _Writes(functions, closure.entry).found()


@dataclass
class _Writes:
    functions: Mapping[str, Piece]
    piece: Piece
    depth: int = 0
    roots: dict[str, frozenset[str]] = field(default_factory=dict)
    """Local name → the arguments that it may be, or be a view of."""
    written: set[str] = field(default_factory=set)

    def found(self) -> list[str]:
        names = parameters(self.piece.statement)
        self.roots = {name: frozenset({name}) for name in names}
        self._block(getattr(self.piece.statement, "body", []), certain=True)
        return [name for name in names if name in self.written]

    def _block(self, body: Sequence[ast.stmt], *, certain: bool) -> None:
        for statement in body:
            if statement not in self.piece.edits.hidden:
                self._statement(statement, certain=certain)

    def _statement(self, node: ast.stmt, *, certain: bool) -> None:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            return
        for call in _calls_of(node):
            self._call(call)
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            value = self._roots_of(node.value)
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                self._assign(target, value, certain=certain)
        elif isinstance(node, ast.AugAssign):
            self.written |= self._roots_of(node.target)
        elif isinstance(node, ast.For):
            self._assign(node.target, self._roots_of(node.iter), certain=False)
        for name in ("body", "orelse", "finalbody"):
            inside = certain and isinstance(node, ast.With)
            self._block(getattr(node, name, []), certain=inside)

    def _assign(self, target: ast.expr, value: frozenset[str], *, certain: bool) -> None:
        if isinstance(target, ast.Name):
            before = frozenset() if certain else self.roots.get(target.id, frozenset())
            self.roots[target.id] = before | value
        elif isinstance(target, (ast.Tuple, ast.List)):
            for element in target.elts:
                self._assign(element, value, certain=certain)
        elif isinstance(target, (ast.Subscript, ast.Attribute)):
            self.written |= self._roots_of(target.value)

    def _call(self, call: ast.Call) -> None:
        name = last_name(call.func) or ""
        for keyword in call.keywords:
            if keyword.arg == "out":
                self.written |= self._roots_of(keyword.value)
        if name.endswith("_") and not name.endswith("__"):
            written = _owner(call.func)
            if written is None or self._is_foreign(written):  # torch.relu_(x), fill_(x)
                written = call.args[0] if call.args else None
            if written is not None:
                self.written |= self._roots_of(written)
        called = self._called(call.func)
        if called is not None and self.depth < _DEEPEST:
            names = parameters(called.statement)
            inner = _Writes(self.functions, called, self.depth + 1).found()
            given = dict(zip(names, call.args, strict=False))
            given |= {k.arg: k.value for k in call.keywords if k.arg is not None}
            for argument in inner:
                if argument in given:
                    self.written |= self._roots_of(given[argument])

    def _is_foreign(self, node: ast.expr) -> bool:
        """Whether a dotted name begins with none of the function's own."""
        while isinstance(node, ast.Attribute):
            node = node.value
        return isinstance(node, ast.Name) and node.id not in self.roots and node.id != "self"

    def _called(self, function: ast.expr) -> Piece | None:
        if isinstance(function, ast.Name):
            return self.functions.get(function.id)
        is_own = isinstance(function, ast.Attribute) and ast.unparse(function.value) == "self"
        return self.functions.get(last_name(function) or "") if is_own else None

    def _roots_of(self, node: ast.expr) -> frozenset[str]:
        match node:
            case ast.Name():
                return self.roots.get(node.id, frozenset())
            case ast.Subscript() | ast.Starred():
                return self._roots_of(node.value)
            case ast.Attribute():
                is_view = node.attr in _VIEW_ATTRIBUTES
                return self._roots_of(node.value) if is_view else frozenset()
            case ast.IfExp():
                return self._roots_of(node.body) | self._roots_of(node.orelse)
            case ast.Tuple() | ast.List():
                return frozenset().union(*(self._roots_of(e) for e in node.elts))
            case ast.Call(func=ast.Attribute(attr=name, value=owner)):
                keeps = name in _VIEWS or name.endswith("_")
                return self._roots_of(owner) if keeps else frozenset()
        return frozenset()


def _owner(function: ast.expr) -> ast.expr | None:
    return function.value if isinstance(function, ast.Attribute) else None


def parameters(function: ast.AST) -> list[str]:
    """Return the names of a function's positional parameters, ``self`` left out."""
    if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return []
    names = [a.arg for a in [*function.args.posonlyargs, *function.args.args]]
    return names[1:] if names[:1] == ["self"] else names


def _calls_of(node: ast.stmt) -> Iterator[ast.Call]:
    """Yield the calls of a statement, not those of the statements below it, innermost last."""
    pending = [c for c in ast.iter_child_nodes(node) if not isinstance(c, ast.stmt)]
    while pending:
        child = pending.pop()
        if isinstance(child, ast.Call):
            yield child
        pending.extend(c for c in ast.iter_child_nodes(child) if not isinstance(c, ast.stmt))
