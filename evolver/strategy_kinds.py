"""The words for what kind of program a candidate is: a few closed choices.

What a candidate's source says of itself in these words is read by ``strategy_triton.py`` and
``strategy_native.py``.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from evaluator.normal_form import nodes_in


class Launches(StrEnum):
    """How many kernels of its own one call runs; in C++, loop nests one after the other."""

    NONE = "none"
    FUSED = "fused"
    """One."""
    SPLIT = "split"
    """Several."""


class Reduction(StrEnum):
    """How values are brought together along an axis, the plainest first.

    Where a candidate does it in several ways, the last in this order is told.
    """

    NONE = "none"
    SINGLE_BLOCK = "single_block"
    """All values of a row are in one block at once."""
    LOOPED = "looped"
    """One loop gathers them."""
    TWO_PASS = "two_pass"  # noqa: S105 - no password
    """A loop gathers them, and another one goes over the same row before or after."""
    ONLINE = "online"
    """One loop gathers several values, of which one corrects another (online softmax, Welford)."""
    SPLIT = "split_row"
    """Programs share a row, and meet in an atomic or a second kernel."""


class Grid(StrEnum):
    """How the work is dealt out."""

    SERIAL = "serial"
    """One thread does it all (a CPU's)."""
    TILED = "tiled"
    """A program, or a thread, per tile."""
    CHUNKED = "chunked"
    """Each program has several tiles that follow one another."""
    PERSISTENT = "persistent"
    """A fixed number of programs, each of which strides over the tiles."""


@dataclass(frozen=True)
class Strategy:
    """The kind of a candidate; hashable, and the same for the same source."""

    launches: Launches = Launches.NONE
    reduction: Reduction = Reduction.NONE
    grid: Grid = Grid.TILED
    tensor_cores: bool = False
    vectorised: bool = False
    """Asked for by hand: SIMD pragmas or intrinsics, vector types. Triton vectorises by itself."""

    def __str__(self) -> str:
        """Name what sets it apart, in a few words."""
        words: list[str] = [w for w in (self.launches, self.reduction, self.grid) if w != "none"]
        words += ["tensor cores"] * self.tensor_cores + ["vectorised"] * self.vectorised
        return ", ".join(words).replace("_", " ")


PLAINEST = Strategy()
STRATEGIES = len(Launches) * len(Reduction) * len(Grid) * 4


def launches_of(count: int) -> Launches:
    """Return the word for a number of kernels."""
    return (Launches.NONE, Launches.FUSED, Launches.SPLIT)[min(count, 2)]


def plainest_last(reductions: Iterator[Reduction]) -> Reduction:
    """Return the most elaborate of several reductions."""
    order = list(Reduction)
    return max(reductions, key=order.index, default=Reduction.NONE)


def most_in_a_row(body: Sequence[ast.stmt], count: Callable[[ast.stmt], int | None]) -> int:
    """Return how many of what ``count`` counts one run through ``body`` can meet.

    Of branches the larger counts. ``count`` answers None for a compound statement that is to
    be looked into.
    """
    total = 0
    for index, statement in enumerate(body):
        found = count(statement)
        if found is not None:
            total += found
        elif isinstance(statement, ast.If):
            rest = body[index + 1 :]
            if isinstance(statement.body[-1], ast.Return | ast.Raise):
                otherwise = most_in_a_row([*statement.orelse, *rest], count)
                return total + max(most_in_a_row(statement.body, count), otherwise)
            branches = (statement.body, statement.orelse)
            total += max(most_in_a_row(branch, count) for branch in branches)
        else:
            total += most_in_a_row(getattr(statement, "body", []), count)
    return total


def host_launches(
    tree: ast.Module,
    is_launch: Callable[[ast.Call], bool],
    *,
    device: Collection[ast.FunctionDef] = (),
) -> int:
    """Return how many launches one call of the module's busiest function makes.

    ``device`` functions launch nothing.
    """
    functions = {n.name: n for n in nodes_in(tree) if isinstance(n, ast.FunctionDef)}
    for function in device:
        functions.pop(function.name, None)
    known: dict[str, int] = {}

    def of(name: str) -> int:
        if name not in known:
            known[name] = 0  # a function that calls itself adds nothing
            known[name] = most_in_a_row(functions[name].body, in_statement)
        return known[name]

    def in_statement(statement: ast.stmt) -> int | None:
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            return 0
        if hasattr(statement, "body"):
            return None
        calls = [n for n in nodes_in(statement) if type(n) is ast.Call]
        named = [c.func.id for c in calls if isinstance(c.func, ast.Name)]
        return sum(map(is_launch, calls)) + sum(of(n) for n in named if n in functions)

    return max((of(name) for name in functions), default=0)
