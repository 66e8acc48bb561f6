"""OpenMP: schedules, numbers of threads, collapsed nests and vectorised loops."""

from __future__ import annotations

from collections.abc import Iterator

from tree_sitter import Node

from evolver.proposers.mutate.cpp_dataflow import Independence, independence
from evolver.proposers.mutate.cpp_pragmas import OmpDirective, parse_omp, remove, rewrite
from evolver.proposers.mutate.cpp_source import (
    CppSource,
    Function,
    Loop,
    Splice,
    describe,
    identifiers,
    parse_cpp,
    text_of,
    walk,
)
from evolver.proposers.mutate.operators import Option

SCHEDULES = (
    "static", "static, 1", "static, 8", "static, 64", "dynamic, 1", "dynamic, 8", "dynamic, 64",
    "guided",
)  # fmt: skip
THREADS = (1, 2, 4, 8, 16)
GRAINS = (4, 32, 256, 2048)
"""Iterations below which starting threads is not worth it."""
VECTOR_LENGTHS = (4, 8, 16, 32)


def schedule_options(source: str) -> list[Option]:
    """Give one worksharing loop another schedule."""
    parsed = parse_cpp(source)
    if parsed is None:
        return []
    return [
        _directive_option(parsed, pragma, directive.with_clause("schedule", schedule), text)
        for function, loop in _all_loops(parsed)
        for pragma, directive in _directives(loop.pragmas)
        if "for" in directive.words
        for schedule in SCHEDULES
        if schedule.replace(" ", "") != (directive.clause("schedule") or "").replace(" ", "")
        for text in [f"schedule({schedule}) on {describe(function, loop)}"]
    ]


def threads_options(source: str) -> list[Option]:
    """Bound the threads of a parallel region, or start them only above a number of iterations.

    Left alone where the function asks which thread it is: its buffers may depend on that.
    """
    parsed = parse_cpp(source)
    if parsed is None:
        return []
    options: list[Option] = []
    for function in parsed.functions:
        if any(name.startswith("omp_get") for name in identifiers(function.node)):
            continue
        pragmas = [n for n in walk(function.node) if n.type == "preproc_call"]
        for pragma, directive in _directives(pragmas):
            if "parallel" in directive.words:
                options += _thread_counts(parsed, function, pragma, directive)
                options += _grains(parsed, function, pragma, directive)
    return options


def collapse_options(source: str) -> list[Option]:
    """Share out a perfect nest of two loops as one, or no longer."""
    parsed = parse_cpp(source)
    if parsed is None:
        return []
    options: list[Option] = []
    for function, loop in _all_loops(parsed):
        for pragma, directive in _directives(loop.pragmas):
            if "for" not in directive.words:
                continue
            place = f"on {describe(function, loop)}"
            if directive.clause("collapse") is not None:
                plain = directive.with_clause("collapse", None)
                options.append(_directive_option(parsed, pragma, plain, f"no collapse {place}"))
            elif _is_collapsible(function, loop):
                both = directive.with_clause("collapse", "2")
                options.append(_directive_option(parsed, pragma, both, f"collapse(2) {place}"))
    return options


def simd_options(source: str) -> list[Option]:
    """Vectorise one innermost loop whose iterations commute, or change its vector length."""
    parsed = parse_cpp(source)
    if parsed is None:
        return []
    options: list[Option] = []
    for function, loop in _all_loops(parsed):
        free = independence(loop) if loop.is_innermost else None
        if free is None or loop.step != "1" or not loop.takes_pragmas:
            continue
        for length in (None, *VECTOR_LENGTHS):
            option = _simd(parsed, function, loop, free, length)
            options += [option] if option is not None else []
    return options


def _all_loops(parsed: CppSource) -> Iterator[tuple[Function, Loop]]:
    for function in parsed.functions:
        for loop in function.loops:
            yield function, loop


def _directives(pragmas: tuple[Node, ...] | list[Node]) -> list[tuple[Node, OmpDirective]]:
    return [(p, d) for p in pragmas if (d := parse_omp(p)) is not None]


def _directive_option(
    parsed: CppSource, pragma: Node, directive: OmpDirective, description: str
) -> Option:
    return Option(description, lambda: parsed.splice([rewrite(pragma, str(directive))]))


def _thread_counts(
    parsed: CppSource, function: Function, pragma: Node, directive: OmpDirective
) -> Iterator[Option]:
    now = directive.clause("num_threads")
    for count in (*map(str, THREADS), None):
        if count != now:
            what = "as many threads as cores" if count is None else f"num_threads({count})"
            new = directive.with_clause("num_threads", count)
            yield _directive_option(parsed, pragma, new, f"{what} in {function.name}")


def _grains(
    parsed: CppSource, function: Function, pragma: Node, directive: OmpDirective
) -> Iterator[Option]:
    known = {name for p in function.parameters for name in identifiers(p)}
    after = [lo for lo in function.loops if lo.node.start_byte >= pragma.end_byte]
    if directive.clause("if") is not None:
        new = directive.with_clause("if", None)
        yield _directive_option(parsed, pragma, new, f"always parallel in {function.name}")
    elif after and _names_of_bound(after[0]) and _names_of_bound(after[0]) <= known:
        for grain in GRAINS:
            condition = f"{after[0].upper} > {grain}"
            new = directive.with_clause("if", condition)
            description = f"parallel only if {condition} in {function.name}"
            yield _directive_option(parsed, pragma, new, description)


def _names_of_bound(loop: Loop) -> set[str]:
    condition = loop.node.child_by_field_name("condition")
    right = condition.child_by_field_name("right") if condition is not None else None
    return identifiers(right) - {"static_cast"} if right is not None else set()


def _is_collapsible(function: Function, outer: Loop) -> bool:
    """Whether ``outer`` holds one loop and nothing else, whose own iterations commute."""
    inner = _only_statement(outer.body)
    loop = next((lo for lo in function.loops if inner is not None and lo.node == inner), None)
    if loop is None or loop.pragmas or outer.variable in _names_of_bound(loop):
        return False
    free = independence(loop)
    depends = outer.variable in loop.names_in_lower
    return free is not None and not free.reductions and not depends


def _only_statement(body: Node) -> Node | None:
    """Return the one statement inside ``body``, through braces in braces."""
    while body.type == "compound_statement":
        inside = [c for c in body.named_children if c.type != "comment"]
        if len(inside) != 1:
            return None
        body = inside[0]
    return body


def _simd(
    parsed: CppSource, function: Function, loop: Loop, free: Independence, length: int | None
) -> Option | None:
    pragmas = _directives(loop.pragmas)
    pragma, directive = pragmas[-1] if pragmas else (None, OmpDirective((), ()))
    new = directive.with_word("simd").with_clause(
        "simdlen", None if length is None else str(length)
    )
    for operator, name in free.reductions:
        new = _with_reduction(new, operator, name)
    if new == directive:
        return None
    text = "simd" if length is None else f"simd of length {length}"
    where = f"on {describe(function, loop)}"
    hints = [p for p in loop.pragmas if text_of(p).startswith("#pragma GCC")]
    # OpenMP wants its loop directly below, so that GCC's own hints go.
    splices: list[Splice] = [remove(parsed, hint) for hint in hints]
    splices.append(
        rewrite(pragma, str(new)) if pragma is not None else parsed.before(loop.node, str(new))
    )
    return Option(f"{text} {where}", lambda: parsed.splice(splices))


def _with_reduction(directive: OmpDirective, operator: str, name: str) -> OmpDirective:
    listed = [argument or "" for n, argument in directive.clauses if n == "reduction"]
    if any(name in argument.split(":")[-1].replace(",", " ").split() for argument in listed):
        return directive
    clause = ("reduction", f"{operator}: {name}")
    return OmpDirective(directive.words, (*directive.clauses, clause))
