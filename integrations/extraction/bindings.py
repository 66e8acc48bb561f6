"""What each name of a module is bound to, read from its top-level statements.

Top-level ``if`` statements whose condition is known (platform flags, TYPE_CHECKING) count
only with the branch that is taken; both branches of any other count. What is bound in the
handlers of a ``try`` is a fallback, for when the ``try`` itself binds nothing usable.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

Decide = Callable[[ast.expr], bool | None]
"""The truth of a condition, or None where it is not known."""


@dataclass(frozen=True, eq=False)
class Binding:
    """One statement that binds a name."""

    statement: ast.stmt
    alias: ast.alias | None = None
    """The part of an import statement that binds the name."""
    fallback: bool = False
    """In a handler of a ``try``."""
    attempted: bool = False
    """In the body of a ``try``."""
    condition: int | None = None
    """Line of the undecided ``if`` that the binding depends on."""

    @property
    def line(self) -> int:
        """Line of the statement in its file (of ``def``, not of its decorators)."""
        return self.statement.lineno


@dataclass(frozen=True)
class Bindings:
    """The names of a module."""

    by_name: dict[str, list[Binding]]
    stars: list[ast.ImportFrom]

    def definitions(self, name: str) -> list[Binding]:
        """The functions and classes called ``name``, overload stubs left out."""
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        return [b for b in self.by_name.get(name, []) if isinstance(b.statement, kinds)]


def read_bindings(body: list[ast.stmt], decide: Decide) -> Bindings:
    """Return what the statements of ``body`` bind, in source order."""
    bindings = Bindings(by_name={}, stars=[])
    for statement, place in _flatten(body, decide, _Place()):
        if isinstance(statement, ast.ImportFrom) and statement.names[0].name == "*":
            bindings.stars.append(statement)
            continue
        for name, alias in _bound_names(statement):
            binding = Binding(statement, alias, place.fallback, place.attempted, place.condition)
            bindings.by_name.setdefault(name, []).append(binding)
    return bindings


def is_overload(statement: ast.stmt) -> bool:
    """Whether the statement is a stub under ``@overload``."""
    decorators = getattr(statement, "decorator_list", [])
    return any(ast.unparse(d).split(".")[-1] == "overload" for d in decorators)


@dataclass(frozen=True)
class _Place:
    """What surrounds a top-level statement."""

    fallback: bool = False
    attempted: bool = False
    condition: int | None = None


def _flatten(
    body: list[ast.stmt], decide: Decide, place: _Place
) -> Iterator[tuple[ast.stmt, _Place]]:
    for statement in body:
        if isinstance(statement, ast.If):
            known = decide(statement.test)
            inner = place if known is not None else replace(place, condition=statement.lineno)
            if known is not False:
                yield from _flatten(statement.body, decide, inner)
            if known is not True:
                yield from _flatten(statement.orelse, decide, inner)
        elif isinstance(statement, ast.Try):
            attempted = replace(place, attempted=True)
            yield from _flatten(statement.body + statement.orelse, decide, attempted)
            for handler in statement.handlers:
                yield from _flatten(handler.body, decide, replace(place, fallback=True))
            yield from _flatten(statement.finalbody, decide, place)
        elif isinstance(statement, ast.With):
            yield from _flatten(statement.body, decide, place)
        elif not is_overload(statement):
            yield statement, place


def _bound_names(statement: ast.stmt) -> list[tuple[str, ast.alias | None]]:
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return [(statement.name, None)]
    if isinstance(statement, ast.Import):
        return [(a.asname or a.name.split(".")[0], a) for a in statement.names]
    if isinstance(statement, ast.ImportFrom):
        return [(a.asname or a.name, a) for a in statement.names]
    return [(name, None) for name in _assigned_names(statement)]


def _assigned_names(statement: ast.stmt) -> list[str]:
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
        targets = [statement.target]
    else:
        return []
    names = [n for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)]
    return [n.id for n in names if isinstance(n.ctx, ast.Store)]
