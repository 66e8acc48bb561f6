"""Passes over a kernel's statements that make it short without changing what it computes.

They work on resolved statements (see ``cpp_resolve.py``). In order: buffers that only carry
one value per iteration become variables (``forward_values``), loop-invariant values move out
(``hoist``), values used once move to their use (``inline``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from .cpp_expression import (
    Binary,
    Call,
    Cast,
    Conditional,
    Expression,
    Index,
    Name,
    Number,
    Unary,
    names_in,
    rebuild,
    render,
    substitute,
    walk,
)
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
    every,
    expressions_of,
    nested,
)

_LONGEST_STATEMENT = 96
_SHORT = 32
_COMPLEMENTS = {("<", ">="), (">=", "<"), (">", "<="), ("<=", ">"), ("==", "!="), ("!=", "==")}


def forward_values(body: list[Statement], buffers: dict[str, str]) -> list[Statement]:
    """Replace buffers of ``buffers`` that carry one value from a statement to its successors.

    ``buffers`` has the element type of each. Such a buffer is stored to once, and each load
    is of the same place, later in the same block: a row's sum on its way to the loop that
    normalises the row.
    """
    for name, element in sorted(buffers.items()):
        forwarder = _Forwarder(name, element, body)
        forwarder.run(body)
    return body


@dataclass
class _Forwarder:
    buffer: str
    element: str
    kernel: list[Statement]

    def run(self, body: list[Statement]) -> bool:
        """Find the store in ``body`` or below and replace it; whether it was found."""
        for position, statement in enumerate(body):
            if isinstance(statement, Assign) and _stores_to(statement, self.buffer):
                self._replace(body, position, statement)
                return True
            if isinstance(statement, Loop | Block) and self.run(statement.body):
                return True
        return False

    def _replace(self, body: list[Statement], position: int, store: Assign) -> None:
        later = body[position + 1 :]
        if not self._all_loads_are(store.target, later):
            return
        if isinstance(store.value, Name):
            replacement: Expression = store.value
            del body[position]
        else:
            replacement = Name(f"{self.buffer}_value")
            body[position] = Declare(self.element, f"{self.buffer}_value", store.value)
        for statement in later:
            _replace_in(statement, {store.target: replacement})

    def _all_loads_are(self, place: Expression, later: list[Statement]) -> bool:
        """Whether the buffer has no other store, and no load but of ``place`` in ``later``."""
        everywhere = [e for s in every(self.kernel) for e in expressions_of(s)]
        mentions = sum(names_in(e).count(self.buffer) for e in everywhere)
        loads = sum(
            part == place for s in every(later) for e in expressions_of(s) for part in walk(e)
        )
        stores = sum(_stores_to(s, self.buffer) for s in every(self.kernel))
        return stores == 1 and loads == mentions - 1


def _stores_to(statement: Statement, name: str) -> bool:
    return (
        isinstance(statement, Assign)
        and isinstance(statement.target, Index)
        and statement.target.base == Name(name)
    )


def substitute_in(statement: Statement, change: Callable[[Expression], Expression]) -> None:
    """Apply ``change`` to every expression of ``statement``, nested statements included."""
    for inner in every([statement]):
        match inner:
            case Declare(_, _, value) if value is not None:
                inner.value = _simplified(change(value))
            case Assign(target, value):
                inner.target = change(target)
                inner.value = _simplified(change(value))
            case Evaluate(expression):
                inner.expression = change(expression)
            case Return(value):
                inner.value = _simplified(change(value))


def _replace_in(statement: Statement, replacements: dict[Expression, Expression]) -> None:
    substitute_in(statement, lambda e: substitute(e, replacements))


def _simplified(expression: Expression) -> Expression:
    """Nested conditionals on one condition become one; rounding that rounds nothing goes."""
    expression = rebuild(expression, _simplified)
    match expression:
        case Cast("float", Cast(kind, value, _), _) if _is_exact(value, kind):
            return value
        case Conditional(condition, Conditional(same, then, _), otherwise) if same == condition:
            return Conditional(condition, then, otherwise)
        case Conditional(condition, then, Conditional(other, inner, _)) if _complement(
            condition, other
        ):
            return Conditional(condition, then, inner)
    return expression


def _is_exact(expression: Expression, kind: str) -> bool:
    """Whether the float is a value of the 16-bit type ``kind`` already."""
    match expression:
        case Cast("float", _, widens):
            return widens == kind
        case Unary("-", operand):
            return _is_exact(operand, kind)
        case Conditional(_, then, otherwise):
            return _is_exact(then, kind) and _is_exact(otherwise, kind)
    return False


def _complement(first: Expression, second: Expression) -> bool:
    """Whether exactly one of two integer comparisons holds."""
    match first, second:
        case Binary(a, left, right), Binary(b, left2, right2):
            return (a, b) in _COMPLEMENTS and left == left2 and right == right2
        case _, Unary("!", operand):
            return operand == first
    return False


def mutable_names(kernel: list[Statement]) -> set[str]:
    """Variables that are assigned to after their declaration."""
    return {
        s.target.name for s in every(kernel) if isinstance(s, Assign) and isinstance(s.target, Name)
    }


def hoist(body: list[Statement], mutable: set[str]) -> list[Statement]:
    """Move declarations that no iteration changes out of their loop."""
    result: list[Statement] = []
    for statement in body:
        if isinstance(statement, Loop):
            statement.body = hoist(statement.body, mutable)
            result.extend(_take_invariants(statement, mutable))
        elif isinstance(statement, Block):
            statement.body = hoist(statement.body, mutable)
        result.append(statement)
    return result


def _take_invariants(loop: Loop, mutable: set[str]) -> list[Statement]:
    if any(p.startswith("omp for") for p in loop.pragmas):
        return []
    # An accumulator is settled outside the loop that feeds it, so it counts as fixed here.
    varying = {loop.variable} | {
        s.target.name
        for s in every(loop.body)
        if isinstance(s, Assign) and isinstance(s.target, Name)
    }
    for inner in every(loop.body):
        if isinstance(inner, Declare | Scratch | Thunk):
            varying.add(inner.name)
        elif isinstance(inner, Loop):
            varying.add(inner.variable)
    taken: list[Statement] = []
    for statement in list(loop.body):
        if isinstance(statement, Declare) and _is_invariant(statement, varying, mutable):
            loop.body.remove(statement)
            varying.discard(statement.name)
            taken.append(statement)
    return taken


def _is_invariant(declare: Declare, varying: set[str], mutable: set[str]) -> bool:
    assert declare.value is not None
    if declare.name in mutable:
        return False
    for part in walk(declare.value):
        if isinstance(part, Index) or (isinstance(part, Call) and not part.arguments):
            return False
        if isinstance(part, Name) and part.name in varying:
            return False
    return True


def inline(body: list[Statement]) -> list[Statement]:
    """Move values that are used once to their use, and drop unused ones, until nothing moves."""
    mutable = mutable_names(body)
    while _inline_once(body, mutable, _use_counts(body)):
        pass
    return body


def _use_counts(body: list[Statement]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for statement in every(body):
        for expression in expressions_of(statement):
            counts.update(names_in(expression))
            counts.update(
                e.function for e in walk(expression) if isinstance(e, Call) and not e.arguments
            )
    return counts


def _inline_once(body: list[Statement], mutable: set[str], counts: Counter[str]) -> bool:
    changed = False
    position = 0
    while position < len(body):
        statement = body[position]
        inner = nested(statement)
        if inner and _inline_once(inner, mutable, counts):
            changed = True
        if _move(body, position, mutable, counts):
            del body[position]
            changed = True
        else:
            position += 1
    return changed


def _move(body: list[Statement], position: int, mutable: set[str], counts: Counter[str]) -> bool:
    """Substitute the value declared at ``position`` into what follows, if that is safe."""
    statement = body[position]
    later = body[position + 1 :]
    if isinstance(statement, Thunk):
        last = statement.body[-1]
        if not isinstance(last, Return) or len(statement.body) > 1 or counts[statement.name] > 1:
            return False
        return _replace_all(later, {Call(statement.name, ()): last.value})
    if not isinstance(statement, Declare) or statement.name in mutable:
        return False
    value = statement.value
    assert value is not None
    if counts[statement.name] == 0:
        return True
    if _is_plain(value) and not _changes(value, later):
        return _replace_all(later, {Name(statement.name): value})
    if counts[statement.name] > 1:
        return False
    user = _single_user(later, statement, mutable)
    if user is None or not _fits(value, user):
        return False
    return _replace_all([user], {Name(statement.name): value})


def _length(item: Statement | Expression) -> int:
    """Characters of the expressions of ``item``."""
    parts = expressions_of(item) if isinstance(item, Statement) else [item]
    return sum(len(render(e)) for e in parts)


def _fits(value: Expression, user: Statement) -> bool:
    """Whether the user's line stays readable with the value in it, or may become shorter."""
    inner = value.operand if isinstance(value, Cast) else value
    length = _length(value)
    is_short = length <= _SHORT or length + _length(user) <= _LONGEST_STATEMENT
    return is_short or isinstance(inner, Conditional)


def _is_plain(value: Expression) -> bool:
    """Literals, variables, limits, and comparisons of these: as clear as a name for them."""
    match value:
        case Number() | Name():
            return True
        case Call(function, ()):
            return function.startswith("std::numeric_limits")
        case Binary("<" | ">=" | ">" | "<=", left, right):
            return _is_plain(left) and _is_plain(right)
    return False


def _changes(value: Expression, later: list[Statement]) -> bool:
    """Whether ``later`` assigns to a variable of ``value``."""
    return bool(set(names_in(value)) & mutable_names(later))


def _replace_all(later: list[Statement], replacements: dict[Expression, Expression]) -> bool:
    for statement in later:
        _replace_in(statement, replacements)
    return True


def _single_user(later: list[Statement], declare: Declare, mutable: set[str]) -> Statement | None:
    """The statement at this level that uses the value, unless something it reads may change."""
    assert declare.value is not None
    reads_memory = any(isinstance(e, Index) for e in walk(declare.value))
    reads_mutable = bool(set(names_in(declare.value)) & mutable)
    for statement in later:
        if any(declare.name in names_in(e) for e in expressions_of(statement)):
            # A loop evaluates its own bounds only; its body is not reached from here.
            return None if isinstance(statement, Loop) else statement
        is_effect = not isinstance(statement, Declare | Thunk)
        if is_effect and (reads_memory or reads_mutable):
            return None
    return None
