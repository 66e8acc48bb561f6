"""What a search knows, as a function of its log.

Each entry is applied once, by the same code, when it is written and when a run is
resumed: there is no other state to save, and none that could disagree with the log.
An evaluation that failed through the machine's fault changes nothing: it is still owed.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TypeGuard

from evaluator.candidate import Candidate
from evaluator.evaluation import Evaluation, Status, Verdict
from evolver.adaptive import Point, point_after
from evolver.archive import Elite
from evolver.bandit import Bandit
from evolver.budget import Budget
from evolver.costs import Cost
from evolver.descriptors import Score, failure_of, score_of
from evolver.islands import Islands
from evolver.store import EntryKind, LogEntry
from evolver.strategy import place_of
from evolver.summary import is_upheld

CONTENDERS = 3
"""Confirmations at the end of one session, at most."""
SCREENINGS_PER_CONFIRMATION = 8
"""Fresh processes and baselines, three times, and the full timing: about so much longer."""


class SearchState:
    """The archives, the bandit and the counters of one run."""

    def __init__(self, *, islands: int = 1, budget: Budget | None = None) -> None:
        """Begin with nothing; ``budget`` tells the bandit what each currency is worth."""
        self.islands = Islands(islands)
        self.bandit = Bandit()
        self.sequence = 0
        self.tickets = 0
        """The last ticket."""
        self.owed: dict[int, LogEntry] = {}
        """Proposals that no evaluation has answered yet, by ticket, in order."""
        self.evaluated = 0
        self.cost = Cost()
        """Of everything so far."""
        self.elapsed_seconds = 0.0
        self.stopped = False
        """Whether the search has come to its end, and nothing was done since."""
        self.fruitless = 0
        """Proposals in a row that led to no new candidate."""
        self.confirmation = Cost()
        """What a confirmation takes: the last one, else estimated from the last screening."""
        self.counts: Counter[Status] = Counter()
        self.seeded: set[str] = set()
        """Proposers that have given all their seeds."""
        self.confirmed: dict[str, bool] = {}
        """Confirmed candidates, and whether the confirmation upheld them."""
        self.latest: str | None = None
        """The candidate that was judged last, whatever became of it."""
        self.correct: dict[str, list[str]] = {}
        """Candidates that a screening found correct, by proposer."""
        self.history: list[Point] = []
        """Where the search stood after each evaluation of a new candidate."""
        self.seeds = 0
        """How many of these came of seeds; the climb begins at the last of them."""
        self.first_timed: Evaluation | None = None
        """Tells of the reference's side what the predicted headroom needs."""
        self.redirected: list[int] = []
        """How many candidates were evaluated at each redirection."""
        self.exploring = False
        """Whether the search was sent elsewhere and nobody has gained since."""
        self.resting: set[str] = set()
        """Proposers that rest meanwhile."""
        self._budget = budget or Budget()
        self._proposing: dict[str, tuple[int, Cost]] = {}
        self._seen: set[str] = set()
        self._owed_ids: Counter[str] = Counter()
        self._scores: dict[str, Score] = {}
        self._leading: dict[str, Evaluation] = {}

    def knows(self, candidate_id: str) -> bool:
        """Whether the candidate has been judged, or is going to be."""
        return candidate_id in self._seen or self._owed_ids[candidate_id] > 0

    def apply(self, entry: LogEntry, candidate: Candidate | None) -> None:
        """Take in the next entry of the log, with its candidate where it has one."""
        self.sequence = entry.sequence
        self.tickets = max(self.tickets, entry.ticket)
        self.cost += entry.cost
        self.elapsed_seconds = entry.elapsed_seconds
        self.stopped = entry.kind is EntryKind.STOPPED
        match entry.kind:
            case EntryKind.PROPOSED if entry.candidate_id is not None:
                self.owed[entry.ticket] = entry
                self._owed_ids[entry.candidate_id] += 1
                self.fruitless = 0
                self._record(entry)
            case EntryKind.EVALUATED if candidate is not None:
                self._apply_attempt(entry, candidate)
            case EntryKind.ABANDONED:
                self._record(entry)
            case EntryKind.DUPLICATE | EntryKind.NOTHING | EntryKind.BROKEN:
                self.fruitless += 1
                self._record(entry, empty=entry.kind is not EntryKind.DUPLICATE)
            case EntryKind.SEEDED:
                self.seeded.add(entry.proposer)
                self.seeds = len(self.history)
            case EntryKind.REMEASURED:
                self._apply_measurement(entry)
            case EntryKind.ADVISED:
                self._apply_advice(entry)
            case EntryKind.CONFIRMED if has_verdict(entry.evaluation) and entry.candidate_id:
                self.confirmed[entry.candidate_id] = is_upheld(entry)
                self.confirmation = entry.cost

    def proposing(self, proposer: str) -> tuple[int, Cost]:
        """Return how often a proposer was asked, and what its proposals have cost."""
        return self._proposing.get(proposer, (0, Cost()))

    def leader_evaluation(self) -> Evaluation | None:
        """Return what was last found about the leader."""
        leader = self.islands.leader
        return self._leading.get(leader.candidate_id) if leader is not None else None

    def next_contender(self) -> Elite | None:
        """Return who is to be confirmed next, or None: those ranked above the confirmed winner.

        Whoever was already found faster comes before whoever only may be (the overall
        speedup is high, say, but one workload is slower); within each, by score.
        """
        contenders = [e for e in self.islands.top if e.score.contends]
        contenders.sort(key=lambda e: e.score.verdict is not Verdict.FASTER)
        for elite in contenders[:CONTENDERS]:
            if self.confirmed.get(elite.candidate_id):
                return None
            if elite.candidate_id not in self.confirmed:
                return elite
        return None

    def _record(self, entry: LogEntry, *, empty: bool = False) -> None:
        count, cost = self.proposing(entry.proposer)
        self._proposing[entry.proposer] = (count + 1, cost + entry.cost)
        self.bandit.record(entry.proposer, cost=self._budget.price(entry.cost), empty=empty)

    def _apply_attempt(self, entry: LogEntry, candidate: Candidate) -> None:
        if entry.evaluation is None:
            return
        self.counts[entry.evaluation.status] += 1
        score = score_of(entry.evaluation)
        gain = self._gain(score, entry.parent_id)
        cost = self._budget.price(entry.cost, evaluations=1)
        self.bandit.credit(entry.proposer, cost=cost, gain=gain)
        if not has_verdict(entry.evaluation):
            return  # the machine's faults cost no steps
        self.evaluated += 1
        self.latest = candidate.id
        self._seen.add(candidate.id)
        self.owed.pop(entry.ticket, None)
        del self._owed_ids[candidate.id]
        if score is None:
            self.islands.add_failure(entry.island, failure_of(entry.evaluation))
        else:
            self._admit(entry, entry.evaluation, candidate, score)
        if gain > 0:
            self.exploring = False
            self.resting.clear()
        self._look_back(entry)

    def _admit(
        self, entry: LogEntry, evaluation: Evaluation, candidate: Candidate, score: Score
    ) -> None:
        self._scores[candidate.id] = score
        self.correct.setdefault(entry.proposer, []).append(candidate.id)
        if not self.confirmed:
            self.confirmation = Cost(
                seconds=SCREENINGS_PER_CONFIRMATION * evaluation.seconds,
                device_seconds=SCREENINGS_PER_CONFIRMATION * evaluation.device_seconds,
            )
        if self.first_timed is None and evaluation.timings:
            self.first_timed = evaluation
        if self.islands.leader is None:
            self.bandit.wake()
        self.islands.add(entry.island, candidate.id, place_of(candidate), score)
        self._keep(candidate.id, evaluation)

    def _apply_measurement(self, entry: LogEntry) -> None:
        if entry.candidate_id is None or not has_verdict(entry.evaluation):
            return
        score = score_of(entry.evaluation)
        self.islands.remeasure(entry.candidate_id, score)
        if score is None:
            self.islands.add_failure(entry.island, failure_of(entry.evaluation))
        else:
            self._scores[entry.candidate_id] = score
            self._keep(entry.candidate_id, entry.evaluation)

    def _apply_advice(self, entry: LogEntry) -> None:
        if not self.redirected or self.redirected[-1] != self.evaluated:
            self.redirected.append(self.evaluated)
        self.exploring = True
        if entry.proposer:
            self.resting.add(entry.proposer)

    def _keep(self, candidate_id: str, evaluation: Evaluation) -> None:
        """Keep what was found about those who may lead, and forget the others."""
        ids = {e.candidate_id for e in self.islands.top}
        if candidate_id in ids:
            self._leading[candidate_id] = evaluation
        if len(self._leading) > 4 * len(ids):
            self._leading = {i: e for i, e in self._leading.items() if i in ids}

    def _look_back(self, entry: LogEntry) -> None:
        self.history.append(
            point_after(
                self.leader_evaluation(),
                cost=self.cost,
                evaluated=self.evaluated,
                proposer=entry.proposer,
            )
        )

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


def has_verdict(evaluation: Evaluation | None) -> TypeGuard[Evaluation]:
    """Whether the evaluation says something about the candidate, not about the machine."""
    return evaluation is not None and not evaluation.status.is_machines_fault
