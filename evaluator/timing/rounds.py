"""The rounds of one measurement: which count, and why the others do not.

A round is one block of every contestant. It counts whole or not at all, for its blocks are
compared with each other. Only what the supervisor sees for itself, or feels through the eager
baseline, can drop a round: a candidate must not choose which of its blocks count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum

import numpy as np

from evaluator.client import BlockTime
from evaluator.evaluation import Baseline
from evaluator.timing.clocks import clock_moved
from evaluator.timing.statistics import Floats
from policies.model import TimingPolicy

OWN = "candidate"


class Cause(StrEnum):
    """Why a round does not count."""

    WAITED = "other work took the cores"
    CLOCK = "the device's clock moved"


class Rounds:
    """The blocks of the rounds that nothing disturbed, and the candidate's of all."""

    def __init__(self, contestants: Sequence[str]) -> None:
        """Begin with no rounds."""
        self.blocks: dict[str, list[BlockTime]] = {who: [] for who in contestants}
        self.claims: list[BlockTime] = []
        self.kept = 0
        self.dropped: Counter[Cause] = Counter()

    def add(self, blocks: Mapping[str, BlockTime], cause: Cause | None) -> None:
        """Take one round, or only note the cause for which it does not count."""
        self.claims.append(blocks[OWN])
        if cause is not None:
            self.dropped[cause] += 1
            return
        self.kept += 1
        for who, block in blocks.items():
            self.blocks[who].append(block)

    @property
    def made(self) -> int:
        """All rounds so far."""
        return self.kept + self.dropped.total()

    @property
    def dropped_shares(self) -> dict[str, float]:
        """Of all rounds, those that each cause dropped."""
        return {cause.value: count / self.made for cause, count in self.dropped.items()}

    @property
    def dropped_share(self) -> float:
        """Of all rounds, those that do not count."""
        return self.dropped.total() / max(1, self.made)

    def per_call(self) -> dict[str, Floats]:
        """Nanoseconds per call of the rounds that count, for each contestant."""
        return {who: per_call_ns(blocks) for who, blocks in self.blocks.items()}


def per_call_ns(blocks: Sequence[BlockTime]) -> Floats:
    """Nanoseconds per call of each block."""
    return np.array([b.per_call_ns for b in blocks], dtype=np.float64)


def disturbance(
    blocks: Mapping[str, BlockTime], policy: TimingPolicy, *, on_the_cores: bool
) -> Cause | None:
    """Return why the round of ``blocks`` does not count, or None if it does.

    Only eager's threads tell of waiting: a candidate whose own threads stand in each other's
    way (its OpenMP's and torch's, say) is slow by its own doing.
    """
    eager = blocks[Baseline.EAGER]
    if on_the_cores and eager.waited_ns > policy.waiting_share * eager.claimed_ns:
        return Cause.WAITED
    if clock_moved(blocks.values(), policy.clock_share):
        return Cause.CLOCK
    return None
