"""Text under construction: statements within loops and branches, and what is known in each.

A value is computed in the outermost scope that has all the loops that it depends on, so that
what does not change in a loop stands before it; a branch keeps what it computes to itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from evolver.proposers.synth.emit.index import Place, Variable
from evolver.proposers.synth.emit.names import Names


class EmitError(ValueError):
    """The plan cannot be written in this language; the message says what of it, and why."""


@dataclass
class Scope:
    """Statements of one loop's or branch's body."""

    variables: frozenset[Variable]
    is_branch: bool = False
    lines: list[str] = field(default_factory=list)
    values: dict[tuple[int, Place], str] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    """What is declared in it."""


class Scopes:
    """A stack of scopes; the first is the row's."""

    def __init__(self, rows: frozenset[Variable], names: Names) -> None:
        self._stack = [Scope(rows)]
        self._names = names

    @property
    def row(self) -> Scope:
        """The scope that all loops within the row lie in."""
        return self._stack[0]

    @property
    def inner(self) -> Scope:
        """The scope that is being written."""
        return self._stack[-1]

    def home(self, variables: frozenset[Variable]) -> Scope:
        """Where a value that depends on ``variables`` belongs."""
        for scope in reversed(self._stack):
            if scope.is_branch or scope.variables & variables:
                return scope
        return self.row

    def value(self, number: int, place: Place) -> str | None:
        """What a node at a place is called, where that is known."""
        for scope in reversed(self._stack):
            if (number, place) in scope.values:
                return scope.values[number, place]
        return None

    @contextmanager
    def within(self, *variables: Variable, branch: bool = False) -> Iterator[Scope]:
        """Write into a new innermost scope; the caller puts its lines where they belong."""
        scope = Scope(frozenset(variables), branch)
        self._stack.append(scope)
        try:
            yield scope
        finally:
            self._stack.pop()
            self._names.release(scope.names)

    def name(self, home: Scope, wanted: str) -> str:
        """Return a name for something that ``home`` declares."""
        home.names.append(self._names.fresh(wanted))
        return home.names[-1]

    @contextmanager
    def at_row(self) -> Iterator[Scope]:
        """Write into the row's scope, outside of all loops."""
        stack, self._stack = self._stack, self._stack[:1]
        try:
            yield self.row
        finally:
            self._stack = stack
