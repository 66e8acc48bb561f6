"""Splitting loops where a condition on the loop's own variable changes.

A concatenation or a rotation of halves comes as one loop whose body asks at each step on
which side of a constant it is. Two loops without the question vectorise plainly.
"""

from __future__ import annotations

import copy
import itertools

from .cpp_cleanup import substitute_in
from .cpp_expression import Binary, Conditional, Expression, Name, Number, rebuild, walk
from .cpp_statements import Block, Loop, Statement, Thunk, every, expressions_of

_MOST_PIECES = 4


def split_at_masks(body: list[Statement]) -> list[Statement]:
    """``body`` with innermost loops split into ranges within which no such condition changes."""
    result: list[Statement] = []
    for statement in body:
        if isinstance(statement, Loop) and _is_innermost(statement):
            result.extend(_pieces(statement))
            continue
        if isinstance(statement, Loop | Block):
            statement.body = split_at_masks(statement.body)
        result.append(statement)
    return result


def _is_innermost(loop: Loop) -> bool:
    return not any(isinstance(s, Loop | Thunk) for s in every(loop.body))


def _pieces(loop: Loop) -> list[Statement]:
    start, stop = _constant(loop.start), _constant(loop.stop)
    if start is None or stop is None or loop.step != Number("1"):
        return [loop]
    inside = sorted(t for t in _thresholds(loop) if start < t < stop)
    if not inside or len(inside) >= _MOST_PIECES or "omp for" in " ".join(loop.pragmas):
        return [loop]
    bounds = [start, *inside, stop]
    return [_piece(loop, low, high) for low, high in itertools.pairwise(bounds)]


def _constant(expression: Expression) -> int | None:
    is_number = isinstance(expression, Number) and expression.text.isdigit()
    return int(expression.text) if is_number else None  # type: ignore[union-attr]


def _thresholds(loop: Loop) -> set[int]:
    variable = Name(loop.variable)
    found: set[int] = set()
    for statement in every(loop.body):
        for expression in expressions_of(statement):
            for part in walk(expression):
                match part:
                    case Binary("<" | ">=", left, Number(text)) if left == variable:
                        found.add(int(text))
    return found


def _piece(loop: Loop, low: int, high: int) -> Loop:
    """The loop over [low, high), its conditions decided."""
    variable = Name(loop.variable)
    answers: dict[Expression, bool] = {}
    for threshold in _thresholds(loop):
        limit = Number(str(threshold))
        answers[Binary("<", variable, limit)] = high <= threshold
        answers[Binary(">=", variable, limit)] = low >= threshold
    piece = copy.deepcopy(loop)
    piece.start, piece.stop = Number(str(low)), Number(str(high))
    for statement in piece.body:
        substitute_in(statement, lambda e: _decided(e, answers))
    return piece


def _decided(expression: Expression, answers: dict[Expression, bool]) -> Expression:
    expression = rebuild(expression, lambda e: _decided(e, answers))
    if isinstance(expression, Conditional) and expression.condition in answers:
        return expression.then if answers[expression.condition] else expression.otherwise
    return expression
