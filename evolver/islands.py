"""Islands: a few archives side by side, which exchange their best now and then.

Parents and exemplars come from one island between migrations, so that an early leader does
not take over the whole search. Every ``migrate_every`` adds each island gives its leader to
the next of the ring; an island that has nothing yet is given the first that works. Migrants
are ids, so all that the store knows of them comes along.

Second measurements are rationed over all islands. In simulations of 40 evaluations, where
one in ten measurements was lucky by some standard deviations, swapping on luck picked the
true best in 21 % of runs; measuring every new leader again in 40 %, since it leaves 5 fewer
candidates to choose from and to build on; one in twenty, and three at the end, in 51 %. It is
an insurance: where noise has no such outliers, the pick is some 7 % less of a gain than by
luck (``tests/evolver/test_islands.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from evolver.archive import TOP_SIZE, AddStatus, Archive, Elite, best_first
from evolver.descriptors import Failure, Score
from evolver.strategy import Place

REMEASURE_EVERY = 20
"""Correct candidates per second measurement."""
FINAL_REMEASUREMENTS = 3
"""Second measurements at the end of a search, when nothing else competes for the time."""


class Islands:
    """The archives of a run, a function of what was added in which order."""

    def __init__(self, count: int = 2, *, migrate_every: int = 20) -> None:
        """Make ``count`` empty islands.

        Raises:
            ValueError: there is none, or ``migrate_every`` is not positive.
        """
        if count < 1 or migrate_every < 1:
            raise ValueError(f"{count} islands with migration every {migrate_every} adds")
        self._archives = [Archive() for _ in range(count)]
        self._migrate_every = migrate_every
        self._adds = 0
        self._remeasured: set[str] = set()

    def __len__(self) -> int:
        """Number of islands."""
        return len(self._archives)

    def island(self, number: int) -> Archive:
        """Return the archive of island ``number``, from 0."""
        return self._archives[number]

    def for_ticket(self, ticket: int) -> int:
        """Return the island on which a ticket, from 1, is worked: round robin."""
        return (ticket - 1) % len(self)

    def add(self, island: int, candidate_id: str, place: Place, score: Score) -> AddStatus:
        """Offer a correct candidate to an island; every so many, let the best migrate.

        Raises:
            ValueError: the score is not a positive finite number.
        """
        status = self._archives[island].add(candidate_id, place, score)
        self._adds += 1
        if self._adds % self._migrate_every == 0:
            self._migrate()
        self._settle_empty_islands(island)
        return status

    def add_failure(self, island: int, failure: Failure) -> None:
        """Remember on an island that a candidate failed."""
        self._archives[island].add_failure(failure)

    def remeasure(self, candidate_id: str, score: Score | None) -> None:
        """Replace what is known of a candidate, wherever it is; None removes it."""
        self._remeasured.add(candidate_id)
        for archive in self._archives:
            archive.remeasure(candidate_id, score)

    def find(self, candidate_id: str) -> Elite | None:
        """Return the elite with this id, from the first island that holds it."""
        found = (archive.find(candidate_id) for archive in self._archives)
        return next((elite for elite in found if elite is not None), None)

    @property
    def leader(self) -> Elite | None:
        """The best of all islands."""
        leaders = [a.leader for a in self._archives if a.leader is not None]
        return min(leaders, key=best_first, default=None)

    @property
    def top(self) -> Sequence[Elite]:
        """The best of all islands, best first, nobody twice."""
        by_id = {e.candidate_id: e for archive in self._archives for e in archive.top}
        return sorted(by_id.values(), key=best_first)[:TOP_SIZE]

    def contested(
        self, *, final: bool = False, apart: AbstractSet[str] = frozenset()
    ) -> Elite | None:
        """Return whom to measure a second time next, or None; nobody is measured a third time.

        First the leader, then whoever may prove better; nobody who cannot be faster than the
        reference. None as well when the ration is used up, which is larger where the search is
        at its end (``final``). Those ``apart`` are being measured, or cannot be: they count as
        measured.
        """
        ration = self._adds // REMEASURE_EVERY + final * FINAL_REMEASUREMENTS
        leader = self.leader
        taken = self._remeasured | apart
        if leader is None or len(taken) >= ration:
            return None
        found = {e.candidate_id: e for archive in self._archives for e in archive.contested()}
        reaching = [
            e
            for e in found.values()
            if e.candidate_id not in taken and e.score.contends and not leader.score.beats(e.score)
        ]
        return min(reaching, key=lambda e: (e != leader, -e.score.high), default=None)

    def _migrate(self) -> None:
        leaders = [archive.leader for archive in self._archives]
        for number, leader in enumerate(leaders):
            if leader is not None:
                self._archives[(number + 1) % len(self)].admit(leader)

    def _settle_empty_islands(self, source: int) -> None:
        leader = self._archives[source].leader
        for archive in self._archives:
            if archive.leader is None and leader is not None:
                archive.admit(leader)
