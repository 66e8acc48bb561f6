"""The loop: propose, judge, remember, until the budget is spent; then confirm.

First the seeders give all they have (``compiler``); then a bandit chooses who proposes, and the
run's mode what a proposal starts from. A proposal is a ticket. One that was seen before costs no
evaluation; a new one is logged before it is judged, and so is never proposed twice. As many
evaluations are in flight as the evaluator has lanes, and one more proposal waits for the lane
that comes free; slow proposers (models) think meanwhile. Where there is a single lane, because
the host is what is timed, one thing happens at a time.

Now and then, and at the end, the leader and whoever is within noise of it are given a second
measurement (``islands.py`` has the ration). At the end contenders are confirmed in fresh
processes, best first, until one is upheld; only that one is published.

Everything that is chosen follows from the run's seed and its log (``state.py``), so a resumed
run goes on with the same proposals that it would have made.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial

from evaluator.attention import many_threads
from evaluator.evaluation import Evaluation
from evaluator.service import Evaluator
from evolver.archive import Elite
from evolver.budget import Budget
from evolver.costs import Cost
from evolver.errors import SearchError
from evolver.flights import Flights
from evolver.journal import Journal
from evolver.library.entry import Known
from evolver.progress import Observer, Phase, ignore
from evolver.proposers.base import Proposer
from evolver.run import Run
from evolver.state import SearchState, has_verdict
from evolver.store import EntryKind, LogEntry
from evolver.summary import Summary
from evolver.turns import WAIT, Turns

TRIES = 2
"""Evaluations of one candidate in one session, where the machine fails."""
PATIENCE_SECONDS = 0.5
"""Between looks at the clock while models alone are waited for: time may be up meanwhile."""


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
        known: Sequence[Known] = (),
        observer: Observer = ignore,
        clock: Callable[[], float] = time.monotonic,
        startup_seconds: float = 0.0,
    ) -> None:
        """Read the run's log and be ready to go on from there.

        ``known`` is what worked elsewhere, for proposers to use. ``startup_seconds`` were spent
        on this session already (the evaluator's start), and count against the budget like all
        others.
        """
        self._serial = evaluator.lanes == 1
        self._flights = Flights(serial=self._serial)
        self._journal = Journal(
            run, budget, observer=observer, clock=clock, startup_seconds=startup_seconds
        )
        self._turns = Turns(
            self._journal,
            self._flights,
            seeders=seeders,
            proposers=proposers,
            known=known,
            serial=self._serial,
        )
        self._run = run
        self._state = self._journal.state
        self._evaluator = evaluator
        self._budget = budget
        self._judging: set[int] = set()
        """Tickets whose evaluation is in flight."""
        self._measuring: set[str] = set()
        """Candidates whose second measurement is in flight."""
        self._unmeasurable: set[str] = set()
        """Candidates whose second measurement the machine failed."""
        self._tries: Counter[int] = Counter()

    @property
    def state(self) -> SearchState:
        """What the session knows; to look at, not to change."""
        return self._state

    @property
    def overhead_seconds(self) -> float:
        """What the search itself took in this session: neither proposing nor evaluating."""
        return self._flights.overhead_seconds

    def search(self) -> Summary:
        """Search until the budget is spent or nothing new is offered; confirm; publish.

        An interruption (Ctrl-C) passes through after the summary is written.

        Raises:
            MachineTrouble: evaluations fail in a row and no candidate is to blame.
            EvaluatorError: the sandbox or the reference fails.
            RunUnwritable: the run directory cannot be written any more.
        """
        try:
            self._turns.account_for_the_killed()
            with many_threads():
                reason = self._explore()
            self._confirm()
            if not self._state.stopped:
                own = Cost(seconds=self.overhead_seconds)
                self._journal.append(EntryKind.STOPPED, cost=own, detail=reason)
            self._journal.report(Phase.STOPPED, description=reason)
        except BaseException as error:
            self._end_early(error)
            raise
        return self._run.publish()

    def _end_early(self, error: BaseException) -> None:
        """Keep what has ended, and what is in flight unless a person waits; write the summary.

        The log is safe already; where nothing can be written, the first error is the one to
        tell.
        """
        patient = isinstance(error, Exception)
        while self._flights.has_arrivals or (patient and (self._judging or self._measuring)):
            with contextlib.suppress(Exception):
                self._flights.land()
        with contextlib.suppress(Exception):
            self._turns.abandon()
        with contextlib.suppress(SearchError):
            self._run.publish()

    def _explore(self) -> str:
        """Propose and judge until nothing more may be begun, and return why."""
        while True:
            reason = self._fill()
            late = self._out_of_time()
            if late and not self._judging and not self._measuring:
                self._turns.abandon()
                return late
            if not self._flights and not self._measure_next(final=True):
                return reason
            judging = self._judging or self._measuring
            self._flights.land(patience_seconds=None if judging else PATIENCE_SECONDS)

    def _fill(self) -> str:
        """Begin all that there is room for, and return why nothing more is begun."""
        while True:
            self._launch()
            reason = self._spent()
            if reason is None:
                has_room = self._has_room()
                judging = bool(self._judging or self._due())
                reason = self._turns.take(judging=judging) if has_room else WAIT
            if reason is not None:
                return reason

    def _launch(self) -> None:
        """Fill the lanes: second measurements first, then the candidates that wait."""
        while self._has_free_lane() and not self._out_of_time():
            if self._measure_next():
                continue
            due = self._due()
            if not due or self._budget.out_of_steps(self._state.evaluated + len(self._judging)):
                return
            self._judge(due[0])

    def _spent(self) -> str | None:
        """Return why no more may be proposed; what is in flight counts as spent."""
        ahead = len(self._judging) + len(self._due()) + self._turns.asked
        return self._out_of_time() or self._budget.out_of_steps(self._state.evaluated + ahead)

    def _out_of_time(self) -> str | None:
        state, budget = self._state, self._budget
        if not budget.limits_machine:
            return None
        reserve = state.confirmation if state.next_contender() else Cost()
        in_flight = len(self._judging) * state.cost.device_seconds / max(1, state.evaluated)
        return budget.out_of_time(
            self._journal.elapsed_seconds, reserve_seconds=reserve.seconds
        ) or budget.out_of_device_time(
            state.cost.device_seconds + in_flight, reserve_seconds=reserve.device_seconds
        )

    def _has_free_lane(self) -> bool:
        return len(self._judging) + len(self._measuring) < self._evaluator.lanes

    def _has_room(self) -> bool:
        """Whether one more candidate may wait: one, where it does not disturb those judged."""
        ahead = len(self._judging) + len(self._measuring) + len(self._due())
        if self._serial or self._run.config.mode.one_at_a_time:
            return ahead + self._turns.asked == 0
        return ahead <= self._evaluator.lanes

    def _due(self) -> list[LogEntry]:
        """Return the candidates that wait; whom the machine failed waits until it is well."""
        tries = 1 if self._journal.trouble else TRIES
        owed = self._state.owed.items()
        return [e for t, e in owed if t not in self._judging and self._tries[t] < tries]

    def _judge(self, proposed: LogEntry) -> None:
        """Begin to evaluate a proposal."""
        candidate = self._run.store.candidate(str(proposed.candidate_id))
        incumbent = self._journal.incumbent_us()

        def judged(outcome: Future[tuple[Evaluation, float]]) -> None:
            self._judging.discard(proposed.ticket)
            evaluation, seconds = outcome.result()
            self._journal.append(
                EntryKind.EVALUATED,
                proposed.proposer,
                ticket=proposed.ticket,
                candidate=candidate,
                parent_id=proposed.parent_id,
                island=proposed.island,
                evaluation=evaluation,
                cost=_cost_of(evaluation, seconds),
            )

        self._journal.report(Phase.EVALUATING, proposed.proposer, candidate.description)
        screen = self._evaluator.screen
        self._judging.add(proposed.ticket)
        self._tries[proposed.ticket] += 1
        self._flights.start(self._timed(lambda: screen(candidate, incumbent_us=incumbent)), judged)

    def _measure_next(self, *, final: bool = False) -> bool:
        """Begin a second measurement where one is due: of the leader, of whoever is as good."""
        if self._turns.seeding or (final and self._out_of_time()):
            return False
        apart = self._measuring | self._unmeasurable
        elite = self._state.islands.contested(final=final, apart=apart)
        if elite is not None:
            self._measure(elite)
        return elite is not None

    def _measure(self, elite: Elite) -> None:
        candidate = self._run.store.candidate(elite.candidate_id)

        def measured(outcome: Future[tuple[Evaluation, float]]) -> None:
            self._measuring.discard(candidate.id)
            evaluation, seconds = outcome.result()
            if not has_verdict(evaluation):
                self._unmeasurable.add(candidate.id)
            self._journal.append(
                EntryKind.REMEASURED,
                candidate=candidate,
                evaluation=evaluation,
                cost=_cost_of(evaluation, seconds),
            )

        self._journal.report(Phase.REMEASURING, candidate.proposer, candidate.description)
        self._measuring.add(candidate.id)
        self._flights.start(self._timed(lambda: self._evaluator.screen(candidate)), measured)

    def _confirm(self) -> None:
        """Confirm contenders, best first, until one is upheld."""
        while contender := self._state.next_contender():
            candidate = self._run.store.candidate(contender.candidate_id)
            self._journal.report(Phase.CONFIRMING, candidate.proposer, candidate.description)
            with self._flights.away():
                evaluation, seconds = self._timed(partial(self._evaluator.confirm, candidate))()
            self._journal.append(
                EntryKind.CONFIRMED,
                candidate=candidate,
                evaluation=evaluation,
                cost=_cost_of(evaluation, seconds),
            )

    def _timed(self, work: Callable[[], Evaluation]) -> Callable[[], tuple[Evaluation, float]]:
        """Return work that also says how many seconds it took."""

        def timed() -> tuple[Evaluation, float]:
            began = self._journal.clock()
            return work(), self._journal.clock() - began

        return timed


def _cost_of(evaluation: Evaluation, seconds: float) -> Cost:
    return Cost(seconds=seconds, device_seconds=evaluation.device_seconds)
