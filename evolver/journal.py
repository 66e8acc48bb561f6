"""The journal of one session: every step is on disk, then in the state, then shown.

It alone writes the log, and it alone changes the state; the search asks it for both. It also
watches for evaluations that fail through the machine's fault, one after the other.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from datetime import UTC, datetime

from evaluator.candidate import Candidate
from evaluator.evaluation import Evaluation
from evaluator.problem import Problem
from evolver.budget import Budget
from evolver.costs import Cost
from evolver.errors import MachineTrouble, RunDamaged
from evolver.progress import Observer, Phase, Progress, ignore
from evolver.proposers.base import Attempt
from evolver.run import Run
from evolver.state import SearchState, has_verdict
from evolver.store import EntryKind, LogEntry
from evolver.unbroken import unbroken

TROUBLE_LIMIT = 4
"""Evaluations in a row that fail through the machine's fault, after which it is given up."""

ATTEMPTS_KEPT = 64


class Journal:
    """Log, state and clock of a run that is open for writing."""

    def __init__(
        self,
        run: Run,
        budget: Budget,
        *,
        observer: Observer = ignore,
        clock: Callable[[], float] = time.monotonic,
        startup_seconds: float = 0.0,
    ) -> None:
        """Read the run's log; ``startup_seconds`` of this session have passed already."""
        self.run = run
        self.budget = budget
        self.clock = clock
        self.state = replay(run, budget)
        self.trouble = 0
        """Evaluations in a row that failed through the machine's fault."""
        self.advice = ""
        """Why the search goes on as it does, where it was advised; shown to who watches."""
        self._attempts: dict[str, Attempt] = {}
        """What was read last: the same few are shown again and again."""
        self._observer = observer
        self._started = clock() - self.state.elapsed_seconds - startup_seconds

    @property
    def elapsed_seconds(self) -> float:
        """The run's wall time so far, over all its sessions."""
        return self.clock() - self._started

    def append(
        self,
        kind: EntryKind,
        proposer: str = "",
        *,
        ticket: int = 0,
        candidate: Candidate | None = None,
        parent_id: str | None = None,
        evaluation: Evaluation | None = None,
        cost: Cost | None = None,
        island: int = 0,
        detail: str = "",
    ) -> None:
        """Commit one step, then take it into the state.

        Raises:
            RunUnwritable: it cannot be written; the state is as it was.
            MachineTrouble: too many evaluations in a row failed, and no candidate is to blame.
        """
        entry = LogEntry(
            sequence=self.state.sequence + 1,
            kind=kind,
            ticket=ticket,
            proposer=proposer,
            candidate_id=candidate.id if candidate else None,
            parent_id=parent_id,
            evaluation=evaluation,
            cost=cost or Cost(),
            elapsed_seconds=self.elapsed_seconds,
            island=island,
            detail=detail,
            at=datetime.now(UTC),
        )
        with unbroken():
            self.run.store.append(entry, candidate if kind is EntryKind.PROPOSED else None)
            self.state.apply(entry, candidate)
        if evaluation is not None:
            self._attempts.pop(evaluation.candidate_id, None)
            self.report(Phase.PROPOSING, proposer, evaluation.message, evaluation)
            self._watch_machine(evaluation)

    def _watch_machine(self, evaluation: Evaluation) -> None:
        if has_verdict(evaluation):
            self.trouble = 0
            return
        self.trouble += 1
        if self.trouble >= TROUBLE_LIMIT:
            raise MachineTrouble(
                f"{self.trouble} evaluations in a row failed through no candidate's fault, the "
                f"last with {evaluation.status.value}: {evaluation.message}. Quiet the machine or "
                f"mend it (`ksmith doctor`), then continue {self.run.path} with --resume"
            )

    def rng(self, ticket: int, purpose: str) -> random.Random:
        """Return a generator of the ticket's own: nothing of it has to be saved."""
        return random.Random(f"{self.run.config.seed}/{ticket}/{purpose}")  # noqa: S311 - choices

    def attempt(self, candidate_id: str) -> Attempt:
        """Return a judged candidate with what was last found about it."""
        store, kept = self.run.store, self._attempts
        if candidate_id not in kept:
            evaluation = store.latest_evaluation(candidate_id)
            kept[candidate_id] = Attempt(store.candidate(candidate_id), evaluation)
            if len(kept) > ATTEMPTS_KEPT:
                del kept[next(iter(kept))]
        return kept[candidate_id]

    def incumbent_us(self) -> float | None:
        """Return the leader's time, where it was measured."""
        evaluation = self._leader_evaluation()
        return mean_candidate_us(evaluation, self.run.loaded.problem) if evaluation else None

    def report(
        self,
        phase: Phase,
        proposer: str = "",
        description: str = "",
        finished: Evaluation | None = None,
    ) -> None:
        """Tell who watches."""
        leading = self._leader_evaluation()
        self._observer(
            Progress(
                phase=phase,
                proposer=proposer,
                description=description,
                evaluated=self.state.evaluated,
                counts=dict(self.state.counts),
                best=leading.speedup() if leading else None,
                elapsed_seconds=self.elapsed_seconds,
                budget=self.budget,
                cost=self.state.cost,
                finished=finished,
                advice=self.advice,
            )
        )

    def _leader_evaluation(self) -> Evaluation | None:
        leader = self.state.islands.leader
        if leader is None or not leader.score.measured:
            return None
        known = self.state.leader_evaluation()
        return known or self.run.store.latest_evaluation(leader.candidate_id)


def replay(run: Run, budget: Budget | None = None) -> SearchState:
    """Return the state that the run's log amounts to.

    Raises:
        RunDamaged: the log is not whole, or not that of this ``run.yaml``.
    """
    state = SearchState(islands=run.config.islands, budget=budget or run.config.budget)
    for entry in run.log():
        if entry.sequence != state.sequence + 1 or entry.island >= run.config.islands:
            raise RunDamaged(
                f"{run.path}: entry {entry.sequence} of the log comes after {state.sequence}, on "
                f"island {entry.island} of {run.config.islands}: run.db is not whole, or run.yaml "
                "is another run's; restore them from a copy, or start a new run elsewhere"
            )
        needs_source = entry.kind is EntryKind.EVALUATED and entry.candidate_id is not None
        candidate = run.store.candidate(str(entry.candidate_id)) if needs_source else None
        state.apply(entry, candidate)
    return state


def mean_candidate_us(evaluation: Evaluation, problem: Problem) -> float:
    """Return the weighted geometric mean of the candidate's medians over the workloads, in µs."""
    weights = {w.name: w.weight for w in problem.workloads}
    total = sum(weights[t.workload] for t in evaluation.timings)
    logs = sum(weights[t.workload] * math.log(t.candidate_us) for t in evaluation.timings)
    return math.exp(logs / total)
