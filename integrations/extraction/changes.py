"""Whether a module-level value stays what it was made.

One that its module changes afterwards, or that a function may replace, is no constant: it can
neither be folded nor taken into a reference.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import cache

from integrations.extraction.source import SourceModule

_LAZY = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_CHANGES = frozenset(
    [
        *("append", "extend", "insert", "add", "update", "setdefault", "pop", "popitem"),
        *("remove", "discard", "clear", "sort", "reverse"),
    ]
)


@cache
def change_of(module: SourceModule, name: str, statement: ast.stmt) -> str | None:
    """Return how what ``statement`` binds ``name`` to is changed later, None where it stays."""
    if isinstance(statement, _LAZY):
        return None
    if any(_loads(node, name) for node in ast.walk(statement)):
        return f"is made from its own earlier value at line {statement.lineno}"
    for later in _statements(module.tree.body):
        if isinstance(later, _LAZY):
            for node in ast.walk(later):
                if isinstance(node, ast.Global) and name in node.names:
                    where = getattr(later, "name", "")
                    return f"{where} may replace (line {node.lineno})"
        elif later is not statement and _changes(later, name):
            return f"its module changes at line {later.lineno}"
    return None


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    for statement in body:
        yield statement
        if not isinstance(statement, _LAZY):
            for name in ("body", "orelse", "finalbody", "handlers"):
                yield from _statements(getattr(statement, name, []))


def _changes(statement: ast.stmt, name: str) -> bool:
    targets: list[ast.expr] = []
    if isinstance(statement, ast.Assign):
        targets = [
            t.value for t in statement.targets if isinstance(t, (ast.Subscript, ast.Attribute))
        ]
    elif isinstance(statement, ast.AugAssign):
        target = statement.target
        targets = [target if isinstance(target, ast.Name) else target.value]
    elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        function = statement.value.func
        if isinstance(function, ast.Attribute) and function.attr in _CHANGES:
            targets = [function.value]
    return any(isinstance(t, ast.Name) and t.id == name for t in targets)


def _loads(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)
