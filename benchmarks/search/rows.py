"""What was measured, a line of JSON each.

All that the figures need is in the rows, so that they can be carried to another machine without
their run directories.
"""

from __future__ import annotations

import math

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from evaluator.records import Record


class Unit(Record):
    """One search: what is measured at once, and what a row is found by."""

    problem: str
    mode: str
    """One of ``evolver.modes.SearchMode``."""
    seed: int
    steps: int
    adaptive: bool = False
    """Whether the search may stop by itself."""

    @property
    def name(self) -> str:
        """Of its run directory."""
        adaptive = "-adaptive" if self.adaptive else ""
        return f"{self.problem}-{self.mode}{adaptive}-{self.steps}-{self.seed}"


class Step(Record):
    """The search after one evaluation of a new candidate."""

    evaluated: NonNegativeInt
    device_seconds: NonNegativeFloat
    """That all evaluations so far held the device."""
    lower: PositiveFloat
    """The best lower 99 % bound so far, as screened; 1 where nothing is above it."""


class SearchRow(Record):
    """What became of one unit."""

    unit: Unit
    failure: str = ""
    """Why it could not be measured; a later session tries it again."""
    steps: tuple[Step, ...] = ()
    confirmed: PositiveFloat | None = None
    """The winner's speedup; None where no confirmation upheld one."""
    confirmed_lower: PositiveFloat | None = None
    """The lower 99 % bound of it."""
    device_seconds: NonNegativeFloat = 0.0
    """Of all evaluations, confirmations included."""
    seconds: NonNegativeFloat = 0.0
    """Wall time of the unit."""
    overhead_seconds: NonNegativeFloat = 0.0
    """Wall time of the search that was neither proposing nor evaluating."""
    search_seconds: NonNegativeFloat = 0.0
    """Wall time of the search."""
    proposers: tuple[str, ...] = ()
    headroom: PositiveFloat | None = None
    """The speedup that was thought possible, from the first candidate that was timed."""
    stopped_at: PositiveInt | None = None
    """After how many evaluations the adaptive rule would have ended it; None if never."""

    def value_at(self, *, device_seconds: float = math.inf, evaluated: float = math.inf) -> float:
        """What the search had to show after so much: a lower bound of the speedup.

        What was screened by then counts at most as much as what was confirmed in the end, and
        as the reference's own 1 where nothing was: so a lucky screening counts in no mode.
        """
        reached = [
            s.lower
            for s in self.steps
            if s.device_seconds <= device_seconds and s.evaluated <= evaluated
        ]
        return max(1.0, min(max(reached, default=1.0), self.confirmed_lower or 1.0))

    def spent_at(self, evaluated: float = math.inf) -> float:
        """Device seconds of so many evaluations."""
        spent = (s.device_seconds for s in self.steps if s.evaluated <= evaluated)
        return max(spent, default=0.0)

    @property
    def spent(self) -> float:
        """Device seconds of all steps."""
        return self.spent_at()


class Contender(Record):
    """One candidate under both clocks, and what fresh confirmations say of it."""

    candidate: str
    naive_us: PositiveFloat
    stable: PositiveFloat
    """Our screened lower bound of its speedup: what the search ranks by."""
    value: PositiveFloat | None = None
    """Its speedup by a fresh confirmation; None where it was not confirmed."""
    low: PositiveFloat | None = None
    high: PositiveFloat | None = None


class RankingRow(Record):
    """The candidates of one finished search, ranked by one naive run each and by ours."""

    unit: Unit
    clock: str = ""
    failure: str = ""
    contenders: tuple[Contender, ...] = ()
    seconds: NonNegativeFloat = 0.0

    def wrong(self, pick: Contender | None) -> bool | None:
        """Whether another was confirmed as faster than ``pick`` beyond noise; None if unknown."""
        if pick is None or pick.high is None:
            return None
        return any(c.low is not None and c.low > pick.high for c in self.contenders)

    @property
    def naive_pick(self) -> Contender | None:
        """Whom the naive clock calls the fastest."""
        return min(self.contenders, key=lambda c: c.naive_us, default=None)

    @property
    def stable_pick(self) -> Contender | None:
        """Whom our screening calls the fastest."""
        return max(self.contenders, key=lambda c: c.stable, default=None)


class KillRow(Record):
    """One search that was killed at a random moment, again and again, until it ended."""

    trial: int
    kills: NonNegativeInt
    lost: NonNegativeInt
    """Evaluations that had ended and are in no log."""
    repeated: NonNegativeInt
    """Evaluations that ended and were made again."""
    same_result: bool
    machine: str = ""
    seconds: NonNegativeFloat = 0.0


class ScaleRow(Record):
    """The archive and the store at the end of a very long run."""

    candidates: NonNegativeInt
    insert_ms: PositiveFloat
    """Of one candidate, mean over the last thousand."""
    peak_gib: NonNegativeFloat
    machine: str
