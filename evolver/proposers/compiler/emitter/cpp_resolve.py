"""One name and one type for every variable of a kernel, and no braces that mean nothing.

Inductor reuses ``tmp0`` in every block and writes ``auto``. Later passes move statements
between blocks, for which names must be unique, and write types, for which they must be known.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from .cpp_expression import Call, Expression, Name, rebuild
from .cpp_statements import (
    Assign,
    Block,
    Declare,
    Evaluate,
    Loop,
    Return,
    Scratch,
    Statement,
    Thunk,
)
from .cpp_types import cast_to, typed


class Resolver:
    """Gives every variable one name and type, flattens plain braces, drops needless casts.

    ``scope`` maps parameters as generated to (name, type) as wanted; two parameters that
    are one tensor map to one name.
    """

    def __init__(self) -> None:
        self._numbers = itertools.count()

    def resolve(self, body: list[Statement], scope: dict[str, tuple[str, str]]) -> list[Statement]:
        """Return ``body`` resolved. Raises ``Untranslatable`` where typing does."""
        scope = dict(scope)
        result: list[Statement] = []
        for statement in body:
            result.extend(self._statement(statement, scope))
        return result

    def _statement(
        self, statement: Statement, scope: dict[str, tuple[str, str]]
    ) -> Iterator[Statement]:
        match statement:
            case Block(inner, pragma):
                resolved = self.resolve(inner, scope)
                yield from [Block(resolved, pragma)] if pragma else resolved
            case Loop():
                yield self._loop(statement, scope)
            case Thunk():
                yield self._thunk(statement, scope)
            case Declare():
                yield self._declare(statement, scope)
            case Scratch(kind, name, elements):
                size = self._typed(elements, scope)[0]
                yield Scratch(kind, self._fresh(name, kind + "*", scope), size)
            case Assign(target, value):
                place, kind = self._typed(target, scope)
                yield Assign(place, cast_to(kind, self._typed(value, scope))[0])
            case Evaluate(expression):
                yield Evaluate(self._typed(expression, scope)[0])

    def _thunk(self, thunk: Thunk, scope: dict[str, tuple[str, str]]) -> Thunk:
        inside = dict(scope)
        *body, last = thunk.body
        assert isinstance(last, Return)
        resolved = [s for inner in body for s in self._statement(inner, inside)]
        value, kind = self._typed(last.value, inside)
        return Thunk(self._fresh(thunk.name, kind, scope), [*resolved, Return(value)])

    def _loop(self, loop: Loop, scope: dict[str, tuple[str, str]]) -> Loop:
        start, stop, step = (self._typed(e, scope)[0] for e in (loop.start, loop.stop, loop.step))
        inside = dict(scope)
        inside[loop.variable] = (loop.variable, "int64_t")
        body = self.resolve(loop.body, inside)
        return Loop(loop.variable, start, stop, step, body, loop.pragmas)

    def _declare(self, declare: Declare, scope: dict[str, tuple[str, str]]) -> Declare:
        assert declare.value is not None
        value, kind = self._typed(declare.value, scope)
        if declare.type not in ("auto", kind):
            value, kind = cast_to(declare.type, (value, kind))
        return Declare(kind, self._fresh(declare.name, kind, scope), value)

    def _typed(
        self, expression: Expression, scope: dict[str, tuple[str, str]]
    ) -> tuple[Expression, str]:
        value, kind = typed(expression, {old: kind for old, (_, kind) in scope.items()})
        new_names: dict[Expression, Expression] = {
            Name(old): Name(new) for old, (new, _) in scope.items() if old != new
        }
        return _with_names(value, new_names, {o: n for o, (n, _) in scope.items()}), kind

    def _fresh(self, name: str, kind: str, scope: dict[str, tuple[str, str]]) -> str:
        new = f"{name.rstrip('0123456789')}_{next(self._numbers)}"
        scope[name] = (new, kind)
        return new


def _with_names(
    expression: Expression, names: dict[Expression, Expression], calls: dict[str, str]
) -> Expression:
    if expression in names:
        return names[expression]
    if isinstance(expression, Call) and not expression.arguments:
        return Call(calls.get(expression.function, expression.function), ())
    return rebuild(expression, lambda e: _with_names(e, names, calls))
