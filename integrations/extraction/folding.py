"""Constant folding: the value of an expression where it can be known without running anything.

``evaluate`` knows literals, the names it is told of, boolean and arithmetic operators,
comparisons and a few calls; everything else is ``UNKNOWN``. An argument that is a tensor is
known not to be None, and nothing else about it is known.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from integrations.extraction.machines import rank_answer


class Unknown:
    """The value of what cannot be folded."""

    def __repr__(self) -> str:
        return "UNKNOWN"


class SomeTensor:
    """The value of an argument that is a tensor."""


UNKNOWN = Unknown()
SOME_TENSOR = SomeTensor()

_BINARY: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Div: operator.truediv,
}
_COMPARE: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}
_UNARY: Mapping[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.Not: operator.not_,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}


@dataclass(frozen=True)
class Facts:
    """What an expression may refer to."""

    name: Callable[[str], object]
    """The value of a bare or dotted name (``flag``, ``self.top_k``), or UNKNOWN."""
    call: Callable[[ast.Call], object]
    """The value of a call, or UNKNOWN."""


def evaluate(node: ast.expr, facts: Facts) -> object:
    """Return the value of ``node``, SOME_TENSOR, or UNKNOWN."""
    match node:
        case ast.Constant():
            return node.value
        case ast.Name():
            return facts.name(node.id)
        case ast.Attribute():
            return _attribute(node, facts)
        case ast.IfExp():
            chosen = truth(node.test, facts)
            return UNKNOWN if chosen is None else evaluate(branch(node, chosen), facts)
        case ast.Tuple() | ast.List() | ast.Set():
            return _sequence(node.elts, facts)
        case ast.Call():
            return _call(node, facts)
    return _operation(node, facts)


def _operation(node: ast.expr, facts: Facts) -> object:
    match node:
        case ast.UnaryOp():
            return _apply(_UNARY.get(type(node.op)), evaluate(node.operand, facts))
        case ast.BoolOp():
            return _boolean(node, facts)
        case ast.BinOp():
            sides = evaluate(node.left, facts), evaluate(node.right, facts)
            return _apply(_BINARY.get(type(node.op)), *sides)
        case ast.Compare():
            return _comparison(node, facts)
    return UNKNOWN


def truth(node: ast.expr, facts: Facts) -> bool | None:
    """Return whether ``node`` is true, or None where that is not known."""
    value = evaluate(node, facts)
    return None if value is UNKNOWN or value is SOME_TENSOR else bool(value)


def branch(node: ast.IfExp, taken: bool) -> ast.expr:
    """Return the side of a conditional expression that is taken."""
    return node.body if taken else node.orelse


def _attribute(node: ast.Attribute, facts: Facts) -> object:
    parts = [node.attr]
    value = node.value
    while isinstance(value, ast.Attribute):
        parts.append(value.attr)
        value = value.value
    if isinstance(value, ast.Call) and not parts[1:]:
        known, answer = rank_answer(value, node.attr)
        return answer if known else UNKNOWN
    if not isinstance(value, ast.Name):
        return UNKNOWN
    return facts.name(".".join([value.id, *reversed(parts)]))


def _apply(function: Callable[..., Any] | None, *operands: object) -> object:
    if function is None or any(o is UNKNOWN or o is SOME_TENSOR for o in operands):
        return UNKNOWN
    try:
        return function(*operands)
    except (TypeError, ValueError, ArithmeticError):
        return UNKNOWN


def _boolean(node: ast.BoolOp, facts: Facts) -> object:
    """Fold ``and`` and ``or``; one operand can decide even where others are unknown."""
    decisive = isinstance(node.op, ast.Or)
    values = [truth(v, facts) for v in node.values]
    if decisive in values:
        return decisive
    return UNKNOWN if None in values else evaluate(node.values[-1], facts)


def _comparison(node: ast.Compare, facts: Facts) -> object:
    operands = [evaluate(v, facts) for v in (node.left, *node.comparators)]
    results = [
        _compare(op, left, right)
        for op, left, right in zip(node.ops, operands[:-1], operands[1:], strict=True)
    ]
    if False in results:
        return False
    return UNKNOWN if UNKNOWN in results else all(results)


def _compare(op: ast.cmpop, left: object, right: object) -> object:
    if isinstance(op, (ast.Is, ast.IsNot)) and {left, right} == {SOME_TENSOR, None}:
        return isinstance(op, ast.IsNot)
    result = _apply(_COMPARE.get(type(op)), left, right)
    return result if result is UNKNOWN else bool(result)


def _sequence(elements: list[ast.expr], facts: Facts) -> object:
    values = tuple(evaluate(e, facts) for e in elements)
    return UNKNOWN if any(v is UNKNOWN or v is SOME_TENSOR for v in values) else values


def _call(node: ast.Call, facts: Facts) -> object:
    if isinstance(node.func, ast.Name) and node.func.id == "bool" and len(node.args) == 1:
        known = truth(node.args[0], facts)
        return UNKNOWN if known is None else known
    return facts.call(node)
