"""What a search knows, as a function of its log.

Each entry is applied once, by the same code, when it is written and when a run is
resumed: there is no other state to save, and none that could disagree with the log.
Entries whose evaluation failed through the machine's fault change nothing, so that the
work is done again.
"""

from __future__ import annotations

import math
from collections import Counter

from evaluator.candidate import Candidate
from evaluator.evaluation import Status, Verdict
from evolver.archive import Archive, Elite
from evolver.bandit import Bandit
from evolver.costs import Cost
from evolver.descriptors import Score, failure_of, score_of
from evolver.store import EntryKind, LogEntry
from evolver.strategy import place_of
from evolver.summary import is_upheld

CONTENDERS = 3
"""Confirmations at the end of one session, at most."""
SCREENINGS_PER_CONFIRMATION = 8
"""Fresh processes and baselines, three times, and the full timing: about so much longer."""


class SearchState:
    """The archive, the bandit and the counters of one run."""

    def __init__(self) -> None:
        self.archive = Archive()
        self.bandit = Bandit()
        self.sequence = 0
        self.tickets = 0
        """The last ticket."""
        self.owed: dict[int, LogEntry] = {}
        """Proposals that no evaluation has answered yet, by ticket, in order."""
        self.cost = Cost()
        """Of everything so far."""
        self.evaluated = 0
        self.elapsed_seconds = 0.0
        self.stopped = False
        """Whether the search has come to its end, and nothing was done since."""
        self.fruitless = 0
        """Proposals in a row that led to no evaluation."""
        self.confirmation_seconds = 0.0
        """What a confirmation takes: the last one, else estimated from the last screening."""
        self.counts: Counter[Status] = Counter()
        self.seeded: set[str] = set()
        """Proposers that have given all their seeds."""
        self.confirmed: dict[str, bool] = {}
        """Confirmed candidates, and whether the confirmation upheld them."""
        self._seen: set[str] = set()
        self._scores: dict[str, Score] = {}

    def knows(self, candidate_id: str) -> bool:
        """Whether the candidate has been judged, or is going to be."""
        return candidate_id in self._seen or any(
            entry.candidate_id == candidate_id for entry in self.owed.values()
        )

    def apply(self, entry: LogEntry, candidate: Candidate | None) -> None:
        """Take in the next entry of the log, with its candidate where it has one."""
        self.sequence = entry.sequence
        self.tickets = max(self.tickets, entry.ticket)
        self.cost += entry.cost
        self.elapsed_seconds = entry.elapsed_seconds
        self.stopped = entry.kind is EntryKind.STOPPED
        match entry.kind:
            case EntryKind.PROPOSED:
                self.owed[entry.ticket] = entry
                self.fruitless = 0
                self.bandit.record(entry.proposer, cost=entry.cost.seconds)
            case EntryKind.EVALUATED if candidate is not None:
                self._apply_attempt(entry, candidate)
            case EntryKind.DUPLICATE | EntryKind.NOTHING | EntryKind.BROKEN:
                self.fruitless += 1
                empty = entry.kind is not EntryKind.DUPLICATE
                self.bandit.record(entry.proposer, cost=entry.cost.seconds, empty=empty)
            case EntryKind.SEEDED:
                self.seeded.add(entry.proposer)
            case EntryKind.REMEASURED:
                self._apply_measurement(entry)
            case EntryKind.CONFIRMED if _has_verdict(entry) and entry.candidate_id:
                self.confirmed[entry.candidate_id] = is_upheld(entry)
                self.confirmation_seconds = entry.cost.seconds

    def unsettled_leader(self) -> Elite | None:
        """Return the leader where it should be measured again: it leads by one measurement.

        A leader that is not faster than the reference is nobody's result yet; it may wait.
        """
        leader = self.archive.leader
        if leader is None or leader.remeasured or not leader.score.contends:
            return None
        return leader

    def next_contender(self) -> Elite | None:
        """Return who is to be confirmed next, or None: those ranked above the confirmed winner.

        Whoever was already found faster comes before whoever only may be (the overall
        speedup is high, say, but one workload is slower); within each, by score.
        """
        contenders = [e for e in self.archive.top if e.score.contends]
        contenders.sort(key=lambda e: e.score.verdict is not Verdict.FASTER)
        for elite in contenders[:CONTENDERS]:
            if self.confirmed.get(elite.candidate_id):
                return None
            if elite.candidate_id not in self.confirmed:
                return elite
        return None

    def _apply_attempt(self, entry: LogEntry, candidate: Candidate) -> None:
        self.evaluated += _has_verdict(entry)  # the machine's faults cost no steps
        if entry.evaluation is None:
            return
        self.counts[entry.evaluation.status] += 1
        score = score_of(entry.evaluation)
        gain = self._gain(score, entry.parent_id)
        self.bandit.credit(entry.proposer, cost=entry.cost.seconds, gain=gain)
        if not _has_verdict(entry):
            return
        self._seen.add(candidate.id)
        self.owed.pop(entry.ticket, None)
        if score is None:
            self.archive.add_failure(failure_of(entry.evaluation))
            return
        self._scores[candidate.id] = score
        if not self.confirmed:
            self.confirmation_seconds = SCREENINGS_PER_CONFIRMATION * entry.evaluation.seconds
        self.archive.add(candidate.id, place_of(candidate), score)

    def _apply_measurement(self, entry: LogEntry) -> None:
        if entry.candidate_id is None or entry.evaluation is None or not _has_verdict(entry):
            return
        score = score_of(entry.evaluation)
        self.archive.remeasure(entry.candidate_id, score)
        if score is None:
            self.archive.add_failure(failure_of(entry.evaluation))
        else:
            self._scores[entry.candidate_id] = score

    def _gain(self, score: Score | None, parent_id: str | None) -> float:
        """How far a score lies above its parent's, in log units; without a parent, above 1."""
        if score is None:
            return 0.0
        parent = self._scores.get(parent_id or "")
        if parent is None:
            return max(0.0, math.log(score.value)) if score.measured else 0.0
        if score.measured != parent.measured or not score.beats(parent):
            return 0.0
        return max(0.0, math.log(score.value / parent.value))


def _has_verdict(entry: LogEntry) -> bool:
    """Whether the evaluation says something about the candidate, not about the machine."""
    machines_fault = (Status.MACHINE_UNFIT, Status.HARNESS_ERROR)
    return entry.evaluation is not None and entry.evaluation.status not in machines_fault
