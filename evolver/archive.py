"""The archive: a MAP-Elites grid of complexity and score that noise cannot shuffle.

The grid's edges are fixed and logarithmic: with running min-max scaling one outlier moves
every cell under its elites. A cell keeps a few elites with their intervals, and an elite
gives way only to a challenger that beats it beyond noise. Beside the grid stand a list of
the best, since a score that is also an axis weakens elitism, and a bounded pool of
failures for repair. The words are those of pyribs: ``add`` answers NEW, IMPROVED or
NOT_ADDED (and BESIDE, where both stay because their intervals overlap).

The archive holds ids and numbers, no sources; it is rebuilt from the run's log.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from evolver.descriptors import Complexity, Score

ELITES_PER_CELL = 3
TOP_SIZE = 12
FAILURES_KEPT = 50

# Half octaves; what lies outside falls into the outermost bins.
LOG2_SIZE_EDGES = tuple(5.0 + 0.5 * step for step in range(17))
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
    """It is kept, but is not better than its cell's best beyond noise."""
    NOT_ADDED = "not_added"
    """Its cell is full, and it beats none of the elites beyond noise."""


@dataclass(frozen=True)
class Elite:
    """One candidate in the grid."""

    candidate_id: str
    score: Score
    size: int
    """``Complexity.size``."""
    remeasured: bool = False


@dataclass(frozen=True)
class Cell:
    """A place in the grid. Unmeasured candidates have a layer of their own."""

    measured: bool
    size_bin: int
    score_bin: int


def cell_of(size: int, score: Score) -> Cell:
    """Return the cell of a candidate: a function of its numbers alone."""
    return Cell(
        measured=score.measured,
        size_bin=_bin(math.log2(size), LOG2_SIZE_EDGES),
        score_bin=_bin(math.log2(score.value), LOG2_SCORE_EDGES),
    )


class Archive:
    """The elites of one island, the best of them in order, and the latest failures."""

    def __init__(self) -> None:
        self._cells: dict[Cell, list[Elite]] = {}
        self._top: list[Elite] = []
        self._failures: deque[str] = deque(maxlen=FAILURES_KEPT)

    def add(self, candidate_id: str, complexity: Complexity, score: Score) -> AddStatus:
        """Offer a correct candidate to the archive.

        Raises:
            ValueError: the score is not a positive finite number.
        """
        _check_finite(score)
        return self._insert(Elite(candidate_id, score, complexity.size))

    def remeasure(self, candidate_id: str, score: Score | None) -> None:
        """Replace what is known of an elite by a second measurement; None removes it.

        The first measurement is forgotten: it is the one that made the candidate stand
        out, so it is biased upwards; the second had no part in that.
        """
        known = self.find(candidate_id)
        if known is None:
            return
        self._remove(known)
        if score is not None:
            _check_finite(score)
            self._insert(Elite(candidate_id, score, known.size, remeasured=True))

    def add_failure(self, candidate_id: str) -> None:
        """Remember a candidate that failed; the oldest failure gives way."""
        self._failures.append(candidate_id)

    def find(self, candidate_id: str) -> Elite | None:
        """Return the elite with this id, where it is in the top list or the grid."""
        in_cells = (e for elites in self._cells.values() for e in elites)
        return next(
            (
                e
                for source in (self._top, in_cells)
                for e in source
                if e.candidate_id == candidate_id
            ),
            None,
        )

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
        """The elites of every occupied cell, in the grid's order, best first in each."""
        ordered = sorted(self._cells, key=lambda c: (c.measured, c.size_bin, c.score_bin))
        return [tuple(self._cells[cell]) for cell in ordered]

    @property
    def failures(self) -> Sequence[str]:
        """The latest failures, latest last."""
        return tuple(self._failures)

    def _insert(self, elite: Elite) -> AddStatus:
        self._top = sorted([*self._top, elite], key=_best_first)[:TOP_SIZE]
        elites = self._cells.setdefault(cell_of(elite.size, elite.score), [])
        beaten = [e for e in elites if elite.score.beats(e.score)]
        status = _status(elites, beaten)
        if status is AddStatus.NOT_ADDED:
            return status
        if len(elites) == ELITES_PER_CELL:
            elites.remove(beaten[-1])
        elites.append(elite)
        elites.sort(key=_best_first)
        return status

    def _remove(self, elite: Elite) -> None:
        self._top = [e for e in self._top if e.candidate_id != elite.candidate_id]
        cell = cell_of(elite.size, elite.score)
        left = [e for e in self._cells.get(cell, []) if e.candidate_id != elite.candidate_id]
        if left:
            self._cells[cell] = left
        else:
            self._cells.pop(cell, None)


def _status(elites: Sequence[Elite], beaten: Sequence[Elite]) -> AddStatus:
    """What adding a challenger that beats ``beaten`` to a cell, best first, amounts to."""
    if not elites:
        return AddStatus.NEW
    if elites[0] in beaten:
        return AddStatus.IMPROVED
    if len(elites) < ELITES_PER_CELL or beaten:
        return AddStatus.BESIDE
    return AddStatus.NOT_ADDED


def _best_first(elite: Elite) -> tuple[bool, float]:
    measured, value = elite.score.rank
    return (not measured, -value)


def _bin(value: float, edges: Sequence[float]) -> int:
    """Index of the bin of ``value``: 0 below the first edge, len(edges) from the last on."""
    return sum(value >= edge for edge in edges)


def _check_finite(score: Score) -> None:
    values = (score.value, score.low, score.high)
    if not all(math.isfinite(v) and v > 0 for v in values):
        raise ValueError(f"a score must be positive and finite, got {values}")
