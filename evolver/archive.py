"""One island's archive: a MAP-Elites grid that noise cannot shuffle.

A cell is a strategy (``evolver/strategy.py``), a complexity and a score, as in Kernel-Smith
with the strategy added. The edges are fixed and logarithmic: with running min-max scaling one
outlier moves every cell under its elites. A cell keeps a few elites with their intervals.
Beside the grid stand a list of the best, since a score that is also an axis weakens elitism,
and a bounded pool of failures for repair. The words are those of pyribs: ``add`` answers NEW,
IMPROVED or NOT_ADDED, and BESIDE or CONTESTED where intervals overlap.

Noise: an elite gives way only to a challenger that beats it beyond noise. A challenger that
stands above its cell's best by less than that is contested, and waits behind it. Whoever may
prove better than the leader may be measured a second time (``contested``). The second
measurement replaces the first, which made it stand out and so is biased upwards. Where two
are still not apart, both stay while there is room, else the older, or the simpler.

The archive holds ids and numbers, no sources; it is rebuilt from the run's log.
"""

from __future__ import annotations

import math
from bisect import bisect_right, insort
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from evolver.descriptors import Failure, Score
from evolver.strategy import Place, Strategy

ELITES_PER_CELL = 3
TOP_SIZE = 12
FAILURES_KEPT = 24
CELLS_KEPT = 1024

# Octaves of complexity and half octaves of the score; what lies outside falls into the
# outermost bins.
LOG2_SIZE_EDGES = tuple(5.0 + step for step in range(9))
"""Complexity from 32 to 8192."""
LOG2_SCORE_EDGES = tuple(-3.0 + 0.5 * step for step in range(19))
"""Scores from 1/8 to 64."""


class AddStatus(StrEnum):
    """What became of a candidate that was offered to the archive."""

    NEW = "new"
    """Its cell was empty."""
    IMPROVED = "improved"
    """It beats its cell's best beyond noise."""
    BESIDE = "beside"
    """It is kept, and stands below its cell's best."""
    CONTESTED = "contested"
    """It is kept, and stands above its cell's best, but not beyond noise."""
    NOT_ADDED = "not_added"
    """Its cell is full, and it beats none of the elites beyond noise."""


@dataclass(frozen=True)
class Elite:
    """One candidate in the archive."""

    candidate_id: str
    place: Place
    score: Score
    remeasured: bool = False

    @property
    def size(self) -> int:
        """Its complexity."""
        return self.place.complexity.size

    @property
    def may_be_measured_again(self) -> bool:
        """Whether a second measurement could matter: the first showed a possible gain."""
        return self.score.contends and not self.remeasured


@dataclass(frozen=True)
class Cell:
    """A place in the grid. Unmeasured candidates have a layer of their own."""

    measured: bool
    strategy: Strategy
    size_bin: int
    score_bin: int


def cell_of(place: Place, score: Score) -> Cell:
    """Return the cell of a candidate: a function of its own numbers alone."""
    return Cell(
        measured=score.measured,
        strategy=place.strategy,
        size_bin=bisect_right(LOG2_SIZE_EDGES, math.log2(place.complexity.size)),
        score_bin=bisect_right(LOG2_SCORE_EDGES, math.log2(score.value)),
    )


class Archive:
    """The elites of one island, the best of them in order, and the latest failures."""

    def __init__(self) -> None:
        self._grid: dict[Strategy, dict[Cell, list[Elite]]] = {}
        """Cells by strategy, in the order in which they were opened."""
        self._top: list[Elite] = []
        self._failures: deque[Failure] = deque(maxlen=FAILURES_KEPT)
        self._by_id: dict[str, Elite] = {}

    def add(self, candidate_id: str, place: Place, score: Score) -> AddStatus:
        """Offer a correct candidate; one that is here already stays as it is.

        Raises:
            ValueError: the score is not a positive finite number.
        """
        return self.admit(Elite(candidate_id, place, score))

    def admit(self, elite: Elite) -> AddStatus:
        """Offer an elite, of another island say, with all that is known of it."""
        _check_finite(elite.score)
        if elite.candidate_id in self._by_id:
            return AddStatus.NOT_ADDED
        status = self._insert_in_cell(elite)
        self._insert_in_top(elite)
        self._by_id[elite.candidate_id] = elite
        self._drop_unless_held(elite)
        return status if elite.candidate_id in self._by_id else AddStatus.NOT_ADDED

    def remeasure(self, candidate_id: str, score: Score | None) -> None:
        """Replace what is known of an elite by a second measurement; None removes it.

        The first measurement is forgotten: it is the one that made the candidate stand
        out, so it is biased upwards; the second had no part in that.
        """
        if score is not None:
            _check_finite(score)
        known = self._by_id.pop(candidate_id, None)
        if known is None:
            return
        self._remove(known)
        if score is not None:
            self.admit(replace(known, score=score, remeasured=True))

    def add_failure(self, failure: Failure) -> None:
        """Remember a candidate that failed; the oldest failure gives way."""
        self._failures.append(failure)

    def find(self, candidate_id: str) -> Elite | None:
        """Return the elite with this id, where it is in the top list or the grid."""
        return self._by_id.get(candidate_id)

    @property
    def leader(self) -> Elite | None:
        """The best candidate so far."""
        return self._top[0] if self._top else None

    @property
    def top(self) -> Sequence[Elite]:
        """The best candidates, best first, whatever their cells."""
        return tuple(self._top)

    @property
    def cells(self) -> Sequence[Sequence[Elite]]:
        """The elites of every occupied cell, by strategy, best first in each."""
        return [tuple(elites) for cells in self._grid.values() for elites in cells.values()]

    @property
    def by_strategy(self) -> Mapping[Strategy, Sequence[Elite]]:
        """The elites of the grid by strategy, best first in each."""
        return {
            strategy: sorted((e for elites in cells.values() for e in elites), key=best_first)
            for strategy, cells in self._grid.items()
        }

    @property
    def failures(self) -> Sequence[Failure]:
        """The latest failures, latest last."""
        return tuple(self._failures)

    def contested(self) -> Sequence[Elite]:
        """Return whom a second measurement could move to the lead, the most promising first.

        The leader itself, then those whose interval reaches the leader's.
        """
        near = [e for e in self._top if not self._top[0].score.beats(e.score)]
        near[1:] = sorted(near[1:], key=lambda e: -e.score.high)
        return [e for e in near if e.may_be_measured_again]

    def _insert_in_top(self, elite: Elite) -> None:
        insort(self._top, elite, key=best_first)
        for fallen in self._top[TOP_SIZE:]:
            self._top.remove(fallen)
            self._drop_unless_held(fallen)

    def _insert_in_cell(self, elite: Elite) -> AddStatus:
        cell = cell_of(elite.place, elite.score)
        elites = self._grid.setdefault(cell.strategy, {}).setdefault(cell, [])
        status = _status(elite, elites)
        if len(elites) == ELITES_PER_CELL:
            loser = _who_gives_way(elite, elites)
            if loser is None:
                return AddStatus.NOT_ADDED
            elites.remove(loser)
            self._drop_unless_held(loser)
        elites.insert(_rank(elite, elites), elite)
        if status is AddStatus.NEW and sum(map(len, self._grid.values())) > CELLS_KEPT:
            self._close_a_cell()
        return status

    def _close_a_cell(self) -> None:
        """Give up the lowest cell of the strategy that has the most, so that every one lasts."""
        crowded = max(self._grid.values(), key=len)
        lowest = min(crowded, key=lambda cell: (cell.measured, cell.score_bin, -cell.size_bin))
        for elite in crowded.pop(lowest):
            self._drop_unless_held(elite)

    def _remove(self, elite: Elite) -> None:
        if elite in self._top:
            self._top.remove(elite)
        elites = self._cell_with(elite)
        if elite not in elites:
            return
        elites.remove(elite)
        if not elites:
            del self._grid[elite.place.strategy][cell_of(elite.place, elite.score)]
        if not self._grid[elite.place.strategy]:
            del self._grid[elite.place.strategy]

    def _drop_unless_held(self, elite: Elite) -> None:
        if elite not in self._top and elite not in self._cell_with(elite):
            self._by_id.pop(elite.candidate_id, None)

    def _cell_with(self, elite: Elite) -> list[Elite]:
        cells = self._grid.get(elite.place.strategy, {})
        return cells.get(cell_of(elite.place, elite.score), [])


def best_first(elite: Elite) -> tuple[bool, float]:
    """Sorts elites: the measured before the rest, the best first."""
    measured, value = elite.score.rank
    return (not measured, -value)


def _status(challenger: Elite, elites: Sequence[Elite]) -> AddStatus:
    """What offering a challenger to a cell, best first, amounts to where there is room."""
    if not elites:
        return AddStatus.NEW
    if challenger.score.beats(elites[0].score):
        return AddStatus.IMPROVED
    if challenger.score.value > elites[0].score.value and not challenger.remeasured:
        return AddStatus.CONTESTED
    return AddStatus.BESIDE


def _who_gives_way(challenger: Elite, elites: Sequence[Elite]) -> Elite | None:
    """Return whom a challenger replaces in a full cell: the last that it beats beyond noise.

    One that was measured twice also replaces a larger one that it equals.
    """
    beaten = [e for e in elites if challenger.score.beats(e.score)]
    if not beaten and challenger.remeasured:
        beaten = [
            e
            for e in elites
            if e.size > challenger.size and challenger.score.value >= e.score.value
        ]
    return beaten[-1] if beaten else None


def _rank(challenger: Elite, elites: Sequence[Elite]) -> int:
    """Where a challenger stands in its cell: behind all that it does not surpass.

    Of two that were measured twice the numbers decide, since neither was picked for them.
    """
    rank = len(elites)
    while rank > 0 and _surpasses(challenger, elites[rank - 1]):
        rank -= 1
    return rank


def _surpasses(challenger: Elite, elite: Elite) -> bool:
    both_settled = challenger.remeasured and elite.remeasured
    by_number = both_settled and challenger.score.value > elite.score.value
    return by_number or challenger.score.beats(elite.score)


def _check_finite(score: Score) -> None:
    values = (score.value, score.low, score.high)
    if not all(math.isfinite(v) and v > 0 for v in values):
        raise ValueError(f"a score must be positive and finite, got {values}")
