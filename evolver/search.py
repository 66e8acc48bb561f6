"""The loop: propose, judge, remember, until the budget is spent; then confirm.

First the seeders give all they have (``compiler``); then a bandit chooses who proposes,
and the archive whom to improve. A proposal that was seen before costs no evaluation. A
candidate that takes the lead is measured again before it leads. At the end contenders are
confirmed in fresh processes, best first, until one is upheld; only that one is published.

Everything that is chosen follows from the run's seed and its log, so a resumed run goes
on with the same proposals that it would have made. Every step is on disk before the next.
"""

from __future__ import annotations

import contextlib
import math
import random
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from evaluator.candidate import Candidate
from evaluator.errors import EvaluatorError
from evaluator.evaluation import Evaluation, Speedup, Status
from evaluator.problem import Problem
from evaluator.service import Evaluator
from evolver.archive import Elite
from evolver.budget import Budget
from evolver.costs import Cost, Meter
from evolver.errors import MachineTrouble, SearchError
from evolver.progress import Observer, Phase, Progress, ignore
from evolver.proposers.base import Attempt, ProposalContext, Proposer
from evolver.run import Run
from evolver.selection import choose_exemplars, choose_failures, choose_parent
from evolver.state import SearchState
from evolver.store import EntryKind, LogEntry
from evolver.summary import Summary

FRUITLESS_LIMIT = 60
"""Proposals in a row without a new candidate, after which the search is at its end."""
SEEDER_REPEATS = 40
"""Known seeds in a row, after which a seeder is taken to have no others."""
SEEDER_FAILURES = 3
TROUBLE_LIMIT = 4
"""Evaluations in a row that fail through the machine's fault, after which it is given up."""


class Search:
    """One session of searching in a run that is open for writing."""

    def __init__(
        self,
        run: Run,
        evaluator: Evaluator,
        *,
        seeders: Sequence[Proposer],
        proposers: Sequence[Proposer],
        budget: Budget,
        observer: Observer = ignore,
        clock: Callable[[], float] = time.monotonic,
        startup_seconds: float = 0.0,
    ) -> None:
        """Read the run's log and be ready to go on from there.

        ``startup_seconds`` were spent on this session already (the evaluator's start), and
        count against the budget like all others.
        """
        self._run = run
        self._evaluator = evaluator
        self._seeders = seeders
        self._proposers = {p.name: p for p in proposers}
        self._budget = budget
        self._observer = observer
        self._clock = clock
        self._state = replay(run)
        self._started = clock() - self._state.elapsed_seconds - startup_seconds
        self._trouble = 0

    @property
    def state(self) -> SearchState:
        """What the session knows; to look at, not to change."""
        return self._state

    def search(self) -> Summary:
        """Search until the budget is spent or nothing new is offered; confirm; publish.

        An interruption (Ctrl-C) passes through after the summary is written.

        Raises:
            MachineTrouble: evaluations fail in a row and no candidate is to blame.
            EvaluatorError: the sandbox or the reference fails.
            RunUnwritable: the run directory cannot be written any more.
        """
        try:
            self._pay_debts()
            reason = self._seed() or self._evolve()
            self._settle_leader()
            self._confirm()
            if not self._state.stopped:
                self._append(EntryKind.STOPPED, detail=reason)
            self._report(Phase.STOPPED, description=reason)
        except BaseException:
            # The log is safe already; where not even the summary can be written, the first
            # error is the one to tell.
            with contextlib.suppress(SearchError):
                self._run.publish()
            raise
        return self._run.publish()

    def _pay_debts(self) -> None:
        """Evaluate what was proposed before the last session ended."""
        for entry in list(self._state.owed.values()):
            self._evaluate(entry)

    def _seed(self) -> str | None:
        """Take in all that the seeders offer. Return why to stop, where the budget ends it."""
        for seeder in self._seeders:
            if seeder.name not in self._state.seeded:
                reason = self._drain(seeder)
                if reason is not None:
                    return reason
        return None

    def _drain(self, seeder: Proposer) -> str | None:
        repeats = failures = 0
        began = self._clock()
        while repeats < SEEDER_REPEATS and failures < SEEDER_FAILURES:
            reason = self._spent()
            if reason is not None:
                return reason
            meter = Meter()
            candidate, failure = self._propose(seeder, parent=None, meter=meter)
            if failure is not None:
                failures += 1
                self._append(
                    EntryKind.BROKEN,
                    seeder.name,
                    ticket=self._ticket,
                    spent=meter.spent,
                    began=began,
                    detail=failure,
                )
                began = self._clock()
            elif candidate is None:
                break
            elif self._state.knows(candidate.id):
                # Not logged: a seeder starts over in a resumed session, and its repeats must
                # not shift the numbers, and so the choices, of all that follows.
                repeats += 1
            else:
                repeats = 0
                self._judge(seeder.name, candidate, None, spent=meter.spent, began=began)
                began = self._clock()
        why = "; ".join(dict.fromkeys(getattr(seeder, "failures", ())))
        self._append(EntryKind.SEEDED, seeder.name, began=began, detail=why)
        return None

    def _evolve(self) -> str:
        """Improve on what is there. Return why it ended."""
        while True:
            self._settle_leader()
            reason = self._spent()
            if reason is not None:
                return reason
            if self._state.fruitless >= FRUITLESS_LIMIT:
                return f"{FRUITLESS_LIMIT} proposals in a row brought nothing new"
            name = self._state.bandit.choose(list(self._proposers))
            if name is None:
                return "no proposer has anything more to offer"
            self._step(self._proposers[name])

    def _step(self, proposer: Proposer) -> None:
        began = self._clock()
        parent = choose_parent(self._state.archive, self._rng("parent"))
        meter = Meter()
        candidate, failure = self._propose(proposer, parent, meter)
        if candidate is not None and not self._state.knows(candidate.id):
            self._judge(proposer.name, candidate, parent, spent=meter.spent, began=began)
            return
        kind, detail = EntryKind.NOTHING, ""
        if failure is not None:
            kind, detail = EntryKind.BROKEN, failure
        elif candidate is not None:
            kind, detail = EntryKind.DUPLICATE, candidate.id
        self._append(
            kind,
            proposer.name,
            ticket=self._ticket,
            parent_id=parent.candidate_id if parent else None,
            spent=meter.spent,
            began=began,
            detail=detail,
        )

    def _propose(
        self, proposer: Proposer, parent: Elite | None, meter: Meter
    ) -> tuple[Candidate | None, str | None]:
        """Return a candidate or None, or the text of the proposer's failure."""
        self._report(Phase.PROPOSING, proposer.name)
        try:
            return proposer.propose(self._context(parent, meter)), None
        except EvaluatorError:
            raise
        except Exception as error:
            # A proposer's bug must not end a run that others can go on with; the log keeps
            # it, and a proposer that fails on and on comes to rest.
            return None, f"{type(error).__name__}: {error}"

    def _context(self, parent: Elite | None, meter: Meter) -> ProposalContext:
        archive = self._state.archive
        exemplars = choose_exemplars(archive, self._rng("exemplars"), parent)
        return ProposalContext(
            loaded=self._run.loaded,
            backend=self._run.config.backend,
            rng=self._rng("proposal"),
            attempt_number=self._ticket,
            parent=self._attempt(parent.candidate_id) if parent else None,
            exemplars=[self._attempt(e.candidate_id) for e in exemplars],
            failures=[self._attempt(i) for i in choose_failures(archive)],
            meter=meter,
        )

    def _judge(
        self,
        proposer: str,
        candidate: Candidate,
        parent: Elite | None,
        *,
        spent: Cost,
        began: float,
    ) -> None:
        entry = self._append(
            EntryKind.PROPOSED,
            proposer,
            ticket=self._ticket,
            candidate=candidate,
            parent_id=parent.candidate_id if parent else None,
            spent=spent,
            began=began,
        )
        self._evaluate(entry)

    def _evaluate(self, proposed: LogEntry) -> None:
        began = self._clock()
        candidate = self._run.store.candidate(str(proposed.candidate_id))
        self._report(Phase.EVALUATING, proposed.proposer, candidate.description)
        evaluation = self._evaluator.screen(candidate, incumbent_us=self._incumbent_us())
        self._append(
            EntryKind.EVALUATED,
            proposed.proposer,
            ticket=proposed.ticket,
            candidate=candidate,
            parent_id=proposed.parent_id,
            evaluation=evaluation,
            began=began,
        )

    @property
    def _ticket(self) -> int:
        """The next proposal's number."""
        return self._state.tickets + 1

    def _settle_leader(self) -> None:
        """Measure again whoever leads by a single measurement, while there is time."""
        while (leader := self._state.unsettled_leader()) and not self._out_of_time():
            began = self._clock()
            candidate = self._run.store.candidate(leader.candidate_id)
            self._report(Phase.REMEASURING, candidate.proposer, candidate.description)
            evaluation = self._evaluator.screen(candidate)
            self._append(
                EntryKind.REMEASURED, candidate=candidate, evaluation=evaluation, began=began
            )

    def _confirm(self) -> None:
        """Confirm contenders, best first, until one is upheld."""
        while contender := self._state.next_contender():
            began = self._clock()
            candidate = self._run.store.candidate(contender.candidate_id)
            self._report(Phase.CONFIRMING, candidate.proposer, candidate.description)
            evaluation = self._evaluator.confirm(candidate)
            self._append(
                EntryKind.CONFIRMED, candidate=candidate, evaluation=evaluation, began=began
            )

    def _append(
        self,
        kind: EntryKind,
        proposer: str = "",
        *,
        ticket: int = 0,
        candidate: Candidate | None = None,
        parent_id: str | None = None,
        evaluation: Evaluation | None = None,
        spent: Cost = Cost(),  # noqa: B008 - frozen
        began: float | None = None,
        detail: str = "",
    ) -> LogEntry:
        """Commit one step, then take it into the state."""
        now = self._clock()
        machine = Cost(
            seconds=0.0 if began is None else now - began,
            device_seconds=evaluation.device_seconds if evaluation else 0.0,
        )
        entry = LogEntry(
            sequence=self._state.sequence + 1,
            kind=kind,
            ticket=ticket,
            proposer=proposer,
            candidate_id=candidate.id if candidate else None,
            parent_id=parent_id,
            evaluation=evaluation,
            cost=machine + spent,
            elapsed_seconds=now - self._started,
            island=0,
            detail=detail,
            at=datetime.now(UTC),
        )
        self._run.store.append(entry, candidate)
        self._state.apply(entry, candidate)
        if evaluation is not None:
            self._report(Phase.PROPOSING, proposer, evaluation.message, evaluation)
            self._watch_machine(evaluation)
        return entry

    def _watch_machine(self, evaluation: Evaluation) -> None:
        if evaluation.status not in (Status.MACHINE_UNFIT, Status.HARNESS_ERROR):
            self._trouble = 0
            return
        self._trouble += 1
        if self._trouble >= TROUBLE_LIMIT:
            raise MachineTrouble(
                f"{self._trouble} evaluations in a row failed through no candidate's fault, the "
                f"last with {evaluation.status.value}: {evaluation.message}. Quiet the machine or "
                f"mend it (`ksmith doctor`), then continue {self._run.path} with --resume"
            )

    def _spent(self) -> str | None:
        return self._out_of_time() or self._budget.out_of_steps(self._state.evaluated)

    def _out_of_time(self) -> str | None:
        contender = self._state.next_contender()
        reserve = self._state.confirmation_seconds if contender else 0.0
        return self._budget.out_of_time(self._clock() - self._started, reserve_seconds=reserve)

    def _rng(self, purpose: str) -> random.Random:
        """Return a generator of the next step's own: nothing of it has to be saved."""
        seed = f"{self._run.config.seed}/{self._ticket}/{purpose}"
        return random.Random(seed)  # noqa: S311 - choices, not secrets

    def _attempt(self, candidate_id: str) -> Attempt:
        store = self._run.store
        return Attempt(store.candidate(candidate_id), store.latest_evaluation(candidate_id))

    def _incumbent_us(self) -> float | None:
        leader = self._state.archive.leader
        if leader is None or not leader.score.measured:
            return None
        evaluation = self._run.store.latest_evaluation(leader.candidate_id)
        return mean_candidate_us(evaluation, self._run.loaded.problem)

    def _best(self) -> Speedup | None:
        leader = self._state.archive.leader
        if leader is None or not leader.score.measured:
            return None
        return self._run.store.latest_evaluation(leader.candidate_id).speedup()

    def _report(
        self,
        phase: Phase,
        proposer: str = "",
        description: str = "",
        finished: Evaluation | None = None,
    ) -> None:
        self._observer(
            Progress(
                phase=phase,
                proposer=proposer,
                description=description,
                evaluated=self._state.evaluated,
                counts=dict(self._state.counts),
                best=self._best(),
                elapsed_seconds=self._clock() - self._started,
                budget=self._budget,
                finished=finished,
                cost=self._state.cost,
            )
        )


def replay(run: Run) -> SearchState:
    """Return the state that the run's log amounts to."""
    state = SearchState()
    for entry in run.log():
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
