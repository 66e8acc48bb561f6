"""What ``ksmith bench search`` is asked for, and the units of work that follow from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.search.figures import EVOLVE, MODES
from benchmarks.search.problems import OWN_NAMES
from benchmarks.search.rows import Unit

LONG_STEPS = 512
"""As far as Kernel-Smith's curves of production cases go."""


@dataclass(frozen=True)
class Plan:
    """What is measured, over all sessions."""

    problems: Sequence[str] = OWN_NAMES
    """Of our own."""
    kernelbench: Path | None = None
    """A checkout, of which the first ``sample`` of each level are searched too."""
    sample: int = 3
    repositories: Path = Path(".real")
    """Holds the unpacked engines that production cases come from."""
    modes: Sequence[str] = MODES
    seeds: int = 2
    steps: int = 40
    """Evaluations of each search."""
    adaptive: int = 0
    """On so many problems, searches that may stop by themselves, to hold the replay against."""
    long: bool = False
    """Instead of all that: ``evolve`` alone, 512 steps, on production cases."""
    kills: int = 50
    """Of a search, at random moments."""
    scale: int = 100_000
    """Candidates that fill the archive; 0 leaves it out."""
    minutes: float | None = None
    """Of this session; nothing is begun that would not end in it, as far as others tell."""

    @property
    def wanted_steps(self) -> int:
        """Evaluations of each search of this plan; rows of others are another benchmark's."""
        return LONG_STEPS if self.long else self.steps

    def units(self, problem: str, number: int, seed: int) -> list[Unit]:
        """The searches of one problem, the ``number``-th from 0, with one seed."""
        modes = [EVOLVE] if self.long else self.modes
        steps = self.wanted_steps
        plain = [Unit(problem=problem, mode=m, seed=seed, steps=steps) for m in modes]
        if self.long or number >= self.adaptive:
            return plain
        return [*plain, plain[0].model_copy(update={"mode": EVOLVE, "adaptive": True})]
