"""Reads the strategy of a C++ or CUDA candidate from the tokens of its source.

Tokens and matched brackets are enough to find loops, their nesting, and what is carried from
one round to the next; they exist for any text, macros and half-written code included.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from evolver.descriptors import cpp_tokens
from evolver.strategy_kinds import (
    Grid,
    Reduction,
    Strategy,
    host_launches,
    launches_of,
    plainest_last,
)

_TENSOR_CORES = re.compile(r"\bw?mma(?:_sync|::|\.sync)|\bwgmma|\btcgen05|\bMMA_Atom|_mm\d*_dp")
_VECTORS = re.compile(
    r"#\s*pragma[^\n]*\bsimd\b|\b_mm\d*_|\b__m\d+|vector_size|std::experimental::simd"
    r"|\b(?:float|int|uint|half|__half|__nv_bfloat16|double)[248]\b|\b__nv_bfloat162|ld\.global\.v"
)
_MEETING = re.compile(
    r"\batomic(?:Add|Max|Min)|#\s*pragma\s+omp\s+atomic"
    r"|#\s*pragma\s+omp\s[^\n]*\bfor\b(?![^\n]*\bsimd\b)[^\n]*\breduction\b"
)
_PARALLEL = re.compile(
    r"#\s*pragma\s+omp\s[^\n]*\bparallel\b|std::j?thread|\btbb::|at::parallel_for"
)
_BLOCK_REDUCERS = re.compile(r"__shfl|BlockReduce|WarpReduce|cg::reduce|__reduce_")
_OPEN = {"(": ")", "{": "}", "[": "]"}
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_CONDITIONS = {"for", "while", "if", "switch", "catch"}


def native_strategy(tree: ast.Module, source: str, *, on_cpu: bool) -> Strategy:
    """Return the strategy of the C++ in ``source``, which the Python in ``tree`` calls."""
    tokens = cpp_tokens(source)
    ends = _matching(tokens)
    functions = [_read(tokens, ends, body) for body in _function_bodies(tokens, ends)]
    calls = host_launches(tree, lambda call: ast.unparse(call.func).startswith("native."))
    runs = [f.nests if on_cpu else f.launches for f in functions]
    reduction = plainest_last(f.reduction for f in functions)
    if reduction is Reduction.NONE and _BLOCK_REDUCERS.search(source):
        reduction = Reduction.SINGLE_BLOCK
    return Strategy(
        launches=launches_of(max([calls, *runs])) if calls else launches_of(0),
        reduction=Reduction.SPLIT if _MEETING.search(source) else reduction,
        grid=_grid(functions, is_parallel=not on_cpu or bool(_PARALLEL.search(source))),
        tensor_cores=bool(_TENSOR_CORES.search(source)),
        vectorised=bool(_VECTORS.search(source)),
    )


def _grid(functions: Sequence[_Function], *, is_parallel: bool) -> Grid:
    if any(f.strides_over_grid for f in functions):
        return Grid.PERSISTENT
    return Grid.TILED if is_parallel else Grid.SERIAL


@dataclass
class _Loop:
    start: int
    """Of its keyword; ``header`` and ``body`` are ranges of tokens."""
    header: range
    body: range
    inner: list[_Loop] = field(default_factory=list)


@dataclass(frozen=True)
class _Function:
    reduction: Reduction
    nests: int
    launches: int
    strides_over_grid: bool


def _read(tokens: Sequence[str], ends: Sequence[int], body: range) -> _Function:
    outer = _loops(tokens, ends, body)
    arrays = _local_arrays([tokens[i] for i in body])
    strides = [
        loop for loop in outer if {"blockIdx", "gridDim"} <= {tokens[i] for i in loop.header}
    ]
    return _Function(
        reduction=plainest_last(_reductions(tokens, outer, arrays)),
        nests=len(outer),
        launches=sum(tokens[i : i + 3] == ["<", "<", "<"] for i in body),
        strides_over_grid=bool(strides),
    )


def _reductions(
    tokens: Sequence[str], siblings: Sequence[_Loop], arrays: set[str]
) -> Iterator[Reduction]:
    """Yield the reductions of loops that follow one another, and of those inside."""
    carried = [_carried(tokens, loop, arrays) for loop in siblings if not loop.inner]
    if any(carried):
        reads = len(siblings)
        yield Reduction.TWO_PASS if reads > 1 else Reduction.LOOPED
    for loop in siblings:
        names = _carried(tokens, loop, arrays)
        if len(names) > 1 and _has_correction(tokens, loop, names):
            yield Reduction.ONLINE
        yield from _reductions(tokens, loop.inner, arrays)


def _carried(tokens: Sequence[str], loop: _Loop, arrays: set[str]) -> set[str]:
    """Return the names that a round takes over from the one before, and adds something to.

    Elements of ``arrays``, which the function keeps for itself, count like names.
    """
    header = {tokens[i] for i in loop.header}
    inside = [tokens[i] for i in loop.body]
    declared = _declared(inside)
    found: set[str] = set()
    for statement in _statements(inside):
        name = statement[0] if statement else ""
        is_own = name in header or name in declared or not _IDENTIFIER.fullmatch(name)
        adds = _adds_to(_without_index(statement) if name in arrays else statement)
        if adds and not is_own and any(_IDENTIFIER.fullmatch(t) for t in adds):
            found.add(name)
    return found if "[" in inside else set()


def _adds_to(statement: Sequence[str]) -> Sequence[str]:
    """Return what a statement adds to its first name: ``x += y``, or ``x = f(x, y)``; else ()."""
    if len(statement) > 3 and statement[1] in "+-*" and statement[2] == "=":
        return statement[3:]
    if len(statement) > 3 and statement[1] == "=" and statement[2] != "=":
        return statement[2:] if statement[0] in statement[2:] else ()
    return ()


def _without_index(statement: Sequence[str]) -> Sequence[str]:
    """Return ``x += y`` of ``x[i][j] += y``."""
    at, depth = 1, 0
    while at < len(statement) and (depth or statement[at] == "["):
        depth += (statement[at] == "[") - (statement[at] == "]")
        at += 1
    return [statement[0], *statement[at:]]


def _local_arrays(tokens: Sequence[str]) -> set[str]:
    """Return the arrays that are declared in a function and belong to one thread."""
    return {
        name
        for statement in _statements(tokens)
        if "__shared__" not in statement and "=" not in statement
        for kind, name, bracket in zip(statement, statement[1:], statement[2:], strict=False)
        if bracket == "[" and _IDENTIFIER.fullmatch(kind) and _IDENTIFIER.fullmatch(name)
    }


def _declared(tokens: Sequence[str]) -> set[str]:
    """Return the names that are declared in a stretch of code: a word after a word or a star."""
    return {
        name
        for before, name, after in zip(tokens, tokens[1:], tokens[2:], strict=False)
        if after in ("=", ";", ",", "[")
        and _IDENTIFIER.fullmatch(name)
        and _IDENTIFIER.fullmatch(before)
        and before not in ("return", "else")
    }


def _has_correction(tokens: Sequence[str], loop: _Loop, carried: set[str]) -> bool:
    inside = [tokens[i] for i in loop.body]
    pairs = zip(inside, inside[1:], inside[2:], strict=False)
    return any(
        (a in carried and op in "-*/" and b != "=") or (b in carried and op in "-*/")
        for a, op, b in pairs
    )


def _statements(tokens: Sequence[str]) -> Iterator[list[str]]:
    statement: list[str] = []
    for word in tokens:
        if word in ";{}":
            yield statement
            statement = []
        else:
            statement.append(word)
    yield statement


def _loops(tokens: Sequence[str], ends: Sequence[int], inside: range) -> list[_Loop]:
    """Return the outermost loops in a stretch of tokens, each with those inside it."""
    found: list[_Loop] = []
    open_loops: list[_Loop] = []
    for at in inside:
        while open_loops and at >= open_loops[-1].body.stop:
            open_loops.pop()
        if tokens[at] not in ("for", "while") or at + 1 >= len(tokens) or tokens[at + 1] != "(":
            continue
        closing = ends[at + 1]
        loop = _Loop(at, range(at + 2, closing), _body(tokens, ends, closing + 1))
        (open_loops[-1].inner if open_loops else found).append(loop)
        open_loops.append(loop)
    return found


def _body(tokens: Sequence[str], ends: Sequence[int], start: int) -> range:
    """Return the statement at ``start``, of which loops and conditions may precede the block."""
    at = start
    while at < len(tokens) and tokens[at] in _CONDITIONS and at + 1 < len(tokens):
        at = ends[at + 1] + 1
    if at < len(tokens) and tokens[at] == "{":
        return range(start, ends[at])
    while at < len(tokens) and tokens[at] != ";":
        at = ends[at] + 1 if tokens[at] in _OPEN else at + 1
    return range(start, min(at, len(tokens)))


def _function_bodies(tokens: Sequence[str], ends: Sequence[int]) -> list[range]:
    """Return the blocks that follow a list of parameters, outermost ones."""
    found: list[range] = []
    for at, word in enumerate(tokens):
        inside_last = found and at < found[-1].stop
        if word == "{" and not inside_last and at > 0 and tokens[at - 1] == ")":
            found.append(range(at + 1, ends[at]))
    return found


def _matching(tokens: Sequence[str]) -> list[int]:
    """Return, for each opening bracket, where it is closed: at the end where it is not."""
    ends = [len(tokens)] * len(tokens)
    stack: list[int] = []
    for at, word in enumerate(tokens):
        if word in _OPEN:
            stack.append(at)
        elif word in ")}]":
            while stack:
                opened = stack.pop()
                ends[opened] = at
                if _OPEN[tokens[opened]] == word:
                    break
    return ends
