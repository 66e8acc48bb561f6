"""Reductions and OpenMP: from Inductor's hand-made partial results to reduction clauses.

Inductor keeps one partial result per thread in an array and, for long sums, a cascade of
partial sums. Here the loop carries a ``reduction`` clause instead, and what was a cascade
becomes a sum in double: at least as accurate, and it vectorises.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from .cpp_expression import (
    Binary,
    Call,
    Expression,
    Index,
    Name,
    Untranslatable,
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
    Scratch,
    Statement,
    every,
    expressions_of,
)

_CLAUSES = {
    "+": "+",
    "*": "*",
    "||": "||",
    "&&": "&&",
    "max_propagate_nan": "max_nan",
    "min_propagate_nan": "min_nan",
}


@dataclass(frozen=True)
class ParallelStyle:
    """How loops are annotated."""

    simd: bool = True
    """``omp simd`` with reduction clauses on innermost loops; else the order of sums is kept."""
    grain: int | None = None
    """Below this many iterations in all, a loop whose length is a parameter stays serial."""


def undo_partial_results(body: list[Statement]) -> list[Statement]:
    """``body`` with plain accumulators in place of arrays of partial results and cascades."""
    body = _without_cascades(body)
    result: list[Statement] = []
    for statement in body:
        if isinstance(statement, Block | Loop):
            statement.body = undo_partial_results(statement.body)
        result.append(statement)
    arrays = {s.name for s in result if isinstance(s, Declare) and s.type.endswith("[]")}
    if not arrays:
        return result
    return [_merged(s) for s in result if not _is_bookkeeping(s, arrays)]


def _without_cascades(body: list[Statement]) -> list[Statement]:
    wide: set[str] = set()
    for statement in every(body):
        if isinstance(statement, Assign) and _calls(statement.value, "cascade_sum_combine"):
            assert isinstance(statement.value, Call)
            wide.add(render(statement.target))
            statement.value = Binary("+", statement.target, statement.value.arguments[0])
    if not wide:
        return body
    wide |= {name.removesuffix("_local") for name in wide}
    for statement in every(body):
        if isinstance(statement, Declare) and statement.name in wide:
            statement.type = "double"
    return _filtered(body)


def _filtered(body: list[Statement]) -> list[Statement]:
    kept: list[Statement] = []
    for statement in body:
        if isinstance(statement, Block | Loop):
            statement.body = _filtered(statement.body)
        if not (isinstance(statement, Assign) and _calls(statement.value, "cascade_sum_final")):
            kept.append(statement)
    return kept


def _calls(expression: Expression, function: str) -> bool:
    return isinstance(expression, Call) and expression.function == function


def _is_bookkeeping(statement: Statement, arrays: set[str]) -> bool:
    """Whether the statement only declares, clears or combines the arrays of partial results."""
    if isinstance(statement, Declare):
        return statement.name in arrays or statement.name == "max_threads"
    if not isinstance(statement, Loop):
        return False
    mentioned = {
        e.name
        for inner in every(statement.body)
        for expression in expressions_of(inner)
        for e in walk(expression)
        if isinstance(e, Name)
    }
    return bool(mentioned & arrays)


def _merged(statement: Statement) -> Statement:
    """In a parallel region, let the loops accumulate into the outer variable itself."""
    if not (isinstance(statement, Block) and statement.is_parallel):
        return statement
    kept: list[Statement] = []
    for inner in statement.body:
        is_local = isinstance(inner, Declare) and inner.name.endswith("_local")
        is_saved = (
            isinstance(inner, Assign)
            and isinstance(inner.target, Index)
            and render(inner.target.base).endswith("_arr")
        )
        if not is_local and not is_saved:
            kept.append(inner)
    for inner in every(kept):
        if isinstance(inner, Assign) and render(inner.target).endswith("_local"):
            local = render(inner.target)
            outer = Name(local.removesuffix("_local"))
            inner.value = substitute(inner.value, {Name(local): outer})
            inner.target = outer
    return Block(kept, statement.pragma)


def accumulations(loop: Loop) -> dict[str, str | None]:
    """Variables that ``loop`` updates from the outside, with their clause (None: has none)."""
    inside = {s.name for s in every(loop.body) if isinstance(s, Declare | Scratch)}
    found: dict[str, str | None] = {}
    for statement in every(loop.body):
        if isinstance(statement, Assign) and isinstance(statement.target, Name):
            name = statement.target.name
            if name not in inside:
                found[name] = _clause(name, statement.value)
    return found


def _clause(name: str, value: Expression) -> str | None:
    match value:
        case Binary(operator, Name(first), _) if first == name:
            return _CLAUSES.get(operator)
        case Call(function, (Name(first), _)) if first == name:
            return _CLAUSES.get(re.sub(r"<.*>", "", function))
    return None


def annotate(body: list[Statement], style: ParallelStyle) -> list[Statement]:
    """Replace Inductor's pragmas: ``parallel for`` where one loop is shared, ``simd`` inside."""
    result: list[Statement] = []
    for statement in body:
        if isinstance(statement, Block) and statement.pragma:
            statement.body = annotate(statement.body, style)
            is_parallel = statement.is_parallel
            result.append(_simplified_region(statement, style) if is_parallel else statement)
            continue
        if isinstance(statement, Loop):
            _annotate_loop(statement, style)
        result.append(statement)
    return result


def _annotate_loop(loop: Loop, style: ParallelStyle) -> None:
    shared = next((p for p in loop.pragmas if p.startswith("omp for")), None)
    has_ivdep = "GCC ivdep" in loop.pragmas
    found = accumulations(loop)
    parallel = "" if shared is None or None in found.values() else shared
    innermost = not any(isinstance(s, Loop) for s in every(loop.body))
    if parallel and "collapse" in parallel and not _collapses(loop):
        parallel = "omp for"
    clauses = "".join(f" reduction({c}:{n})" for n, c in found.items() if c)
    if innermost and style.simd and _vectorises(loop, found):
        loop.pragmas = [f"{parallel or 'omp'} simd{clauses}"]
    elif parallel:
        loop.pragmas = [parallel + clauses]
    else:
        loop.pragmas = ["GCC ivdep"] if innermost and has_ivdep and not found else []
    loop.body = annotate(loop.body, style)


def _collapses(loop: Loop) -> bool:
    """Whether two perfectly nested loops are left above the innermost one."""
    only = loop.body[0] if len(loop.body) == 1 else None
    return isinstance(only, Loop) and any(isinstance(s, Loop) for s in only.body)


def _vectorises(loop: Loop, found: dict[str, str | None]) -> bool:
    """No unknown dependence between iterations: stores only to places the loop itself counts."""
    if None in found.values():
        return False
    if any(isinstance(s, Evaluate | Scratch) for s in loop.body):
        return False
    for statement in loop.body:
        if isinstance(statement, Assign) and isinstance(statement.target, Index):
            place = statement.target.index
            scattered = any(isinstance(e, Index) for e in walk(place))
            declared = {s.name for s in loop.body if isinstance(s, Declare)}
            if scattered or declared & {e.name for e in walk(place) if isinstance(e, Name)}:
                return False
    return True


def _simplified_region(region: Block, style: ParallelStyle) -> Statement:
    """A region that holds one shared loop is that loop as ``parallel for``."""
    loops = [s for s in region.body if isinstance(s, Loop)]
    if not any(p.startswith("omp for") for s in loops for p in s.pragmas):
        # Nothing is shared: every thread would repeat the whole body.
        return Block([Block(s.body) if isinstance(s, Block) else s for s in region.body])
    if len(region.body) != 1 or len(loops) != 1:
        return Block(region.body, "omp parallel" + _condition(loops, style))
    (loop,) = loops
    loop.pragmas[0] = loop.pragmas[0].replace("omp for", "omp parallel for", 1)
    loop.pragmas[0] += _condition(loops, style)
    return loop


def _condition(loops: Iterable[Loop], style: ParallelStyle) -> str:
    if style.grain is None:
        return ""
    works = [_work(loop) for loop in loops]
    symbolic = [w for w in works if not w.isdigit()]
    if not symbolic:
        return ""
    return f" if({symbolic[0]} > {style.grain})"


def _work(loop: Loop) -> str:
    """Iterations of the deepest nest under ``loop``, as text."""
    inner = max((_work(s) for s in loop.body if isinstance(s, Loop)), key=len, default="1")
    extent = render(loop.stop)
    if inner == "1":
        return extent
    if inner.isdigit() and extent.isdigit():
        return str(int(inner) * int(extent))
    factor = render(loop.stop, 10)
    return f"{factor} * {inner}"


def check_reductions(body: list[Statement]) -> None:
    """Refuse a parallel region that updates a shared variable without a clause.

    Raises:
        Untranslatable: such an update (an argmax over a whole tensor is one).
    """
    for region in every(body):
        if not (isinstance(region, Block) and region.is_parallel):
            continue
        own = {s.name for s in region.body if isinstance(s, Declare)}
        for statement in region.body:
            if isinstance(statement, Loop):
                lost = [n for n, c in accumulations(statement).items() if c is None]
                if set(lost) - own:
                    raise Untranslatable(f"a parallel reduction of {lost[0]} has no clause")
