"""The choice between proposers: UCB on gain per cost, a pure function of the log.

The gain of an attempt is the logarithm of how far its score lies above its parent's, and
nothing where their intervals overlap. A proposer that has nothing to offer, or fails, a
few times in a row rests.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

EXPLORATION = 0.5
REST_AFTER = 8
"""Empty answers in a row. Mutation may find nothing in one parent and much in the next."""


@dataclass
class Arm:
    """What one proposer has cost and brought."""

    pulls: int = 0
    gain: float = 0.0
    cost: float = 0.0
    empty_in_a_row: int = 0

    @property
    def rate(self) -> float:
        """Gain per cost."""
        return self.gain / self.cost if self.cost > 0 else 0.0

    @property
    def rests(self) -> bool:
        """Whether it has been empty too often to be asked again."""
        return self.empty_in_a_row >= REST_AFTER


class Bandit:
    """Chooses by upper confidence bound; rates are scaled to the best arm's."""

    def __init__(self) -> None:
        self._arms: dict[str, Arm] = {}

    def record(self, proposer: str, *, cost: float, gain: float = 0.0, empty: bool = False) -> None:
        """Account for one proposal; ``empty`` when there was no candidate."""
        arm = self._arms.setdefault(proposer, Arm())
        arm.pulls += 1
        arm.gain += gain
        arm.cost += cost
        arm.empty_in_a_row = arm.empty_in_a_row + 1 if empty else 0

    def credit(self, proposer: str, *, cost: float, gain: float) -> None:
        """Account for the evaluation of a proposal that was recorded."""
        arm = self._arms.setdefault(proposer, Arm())
        arm.cost += cost
        arm.gain += gain

    def wake(self) -> None:
        """Let those who rest be asked again: there is something new to start from."""
        for arm in self._arms.values():
            arm.empty_in_a_row = 0

    def choose(
        self, proposers: Sequence[str], asked: Mapping[str, int] = MappingProxyType({})
    ) -> str | None:
        """Return the proposer to ask next; None when all of them rest. Ties go to the first.

        ``asked`` counts the proposals in flight: they are pulls whose gain is not known yet.
        """
        arms = {name: self._arms.get(name, Arm()) for name in proposers}
        awake = {name: arm for name, arm in arms.items() if not arm.rests}
        if not awake:
            return None
        pulls = {name: arm.pulls + asked.get(name, 0) for name, arm in awake.items()}
        total, best_rate = sum(pulls.values()), max(arm.rate for arm in awake.values())
        return max(awake, key=lambda n: _upper_bound(awake[n].rate, pulls[n], total, best_rate))


def _upper_bound(rate: float, pulls: int, total_pulls: int, best_rate: float) -> float:
    if pulls == 0:
        return math.inf
    mean = rate / best_rate if best_rate > 0 else 0.0
    return mean + EXPLORATION * math.sqrt(2 * math.log(total_pulls) / pulls)
