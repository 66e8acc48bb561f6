"""What kind of program a candidate is, read from its code: the archive's axis of diversity.

Two kernels of equal size and speed may be as unlike as a kernel that keeps a row in registers
and one that loops over it. A ``Strategy`` is a few closed choices, so that there are at most
``STRATEGIES`` of them; it is read from the text alone and never fails: what cannot be read is
the plainest value. It may be wrong where code hides its structure; nothing but diversity
rests on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from evaluator.candidate import Candidate
from evolver.descriptors import Complexity, complexity_of


class Launches(StrEnum):
    """How many kernels of its own a candidate launches."""

    NONE = "none"
    FUSED = "fused"
    """One."""
    SPLIT = "split"
    """Several."""


class Reduction(StrEnum):
    """How values are brought together along an axis."""

    NONE = "none"
    SINGLE_BLOCK = "single_block"
    """All values of a row are in one block at once."""
    LOOPED = "looped"
    """One loop gathers them block by block."""
    TWO_PASS = "two_pass"  # noqa: S105 - no password
    """Loops one after the other go over the same row."""
    ONLINE = "online"
    """One loop gathers them, correcting what it has so far (as in online softmax)."""
    SPLIT = "split"
    """Programs share a row, and meet in an atomic or a second kernel."""


class Grid(StrEnum):
    """How the work is dealt out."""

    SERIAL = "serial"
    """One thread does it all (a CPU's)."""
    TILED = "tiled"
    """A program, or a thread, per tile."""
    PERSISTENT = "persistent"
    """A fixed number of programs, each of which loops over its tiles."""


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
        extras = (("tensor cores", self.tensor_cores), ("vectorised", self.vectorised))
        words = [self.launches, self.reduction, self.grid, *(name for name, has in extras if has)]
        return ", ".join(word.replace("_", " ") for word in words if word != "none") or "no kernel"


STRATEGIES = len(Launches) * len(Reduction) * len(Grid) * 4


@dataclass(frozen=True)
class Place:
    """Where a candidate stands in the archive, its score aside."""

    complexity: Complexity
    strategy: Strategy = Strategy()


def place_of(candidate: Candidate) -> Place:
    """Return the place of the candidate: a function of its source and backend alone."""
    return Place(complexity_of(candidate), strategy_of(candidate))


def strategy_of(candidate: Candidate) -> Strategy:
    """Return the strategy that the candidate's code follows."""
    kernels = complexity_of(candidate).kernels
    launches = (Launches.NONE, Launches.FUSED, Launches.SPLIT)[min(kernels, 2)]
    return Strategy(launches=launches)
