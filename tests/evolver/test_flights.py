"""Several things at once: lanes are filled, slow proposers think meanwhile, ends are clean."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from evaluator.candidate import Candidate
from evaluator.errors import WorkerLost
from evaluator.evaluation import Evaluation, Status
from evolver.budget import Budget
from evolver.costs import Cost
from evolver.errors import RunUnwritable
from evolver.proposers.base import ProposalContext
from evolver.run import Run
from evolver.store import EntryKind
from evolver.turns import SLOW_PROPOSALS
from tests.builders import make_evaluation
from tests.evolver.toys import Nudge, ToyEvaluator, make_run, make_search, toy_candidate

LANES = 3


class Together(ToyEvaluator):
    """Notes how many are screened at once, and lets them wait for one another."""

    def __init__(self, lanes: int = LANES) -> None:
        super().__init__(lanes=lanes)
        self.most = 0
        self._now = 0
        self._lock = threading.Lock()

    def screen(self, candidate: Candidate, *, incumbent_us: float | None = None) -> Evaluation:
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
        time.sleep(0.002)
        evaluation = super().screen(candidate, incumbent_us=incumbent_us)
        with self._lock:
            self._now -= 1
        return evaluation


class Thinker:
    """A slow proposer that costs tokens; notes how many think at once."""

    name = "thinker"
    slow = True

    def __init__(self, seconds: float = 0.002, tokens: int = 100) -> None:
        self.most = self.asked = self._now = 0
        self._seconds = seconds
        self._tokens = tokens
        self._lock = threading.Lock()

    def propose(self, context: ProposalContext) -> Candidate | None:
        with self._lock:
            self.asked += 1
            self._now += 1
            self.most = max(self.most, self._now)
        context.meter.charge(Cost(prompt_tokens=self._tokens))
        time.sleep(self._seconds)
        with self._lock:
            self._now -= 1
        return toy_candidate(round(1 + context.rng.random(), 4), proposer=self.name)


class OnDevice(ToyEvaluator):
    """Holds a device for two seconds per evaluation, as it says."""

    SECONDS = 2.0

    def __init__(self) -> None:
        super().__init__(lanes=LANES)

    def screen(self, candidate: Candidate, *, incumbent_us: float | None = None) -> Evaluation:
        evaluation = super().screen(candidate, incumbent_us=incumbent_us)
        return evaluation.model_copy(update={"device_seconds": self.SECONDS})


def count(run: Run, kind: EntryKind) -> int:
    return sum(entry.kind is kind for entry in run.log())


def test_all_lanes_are_used_and_never_more(tmp_path: Path) -> None:
    evaluator = Together()
    with make_run(tmp_path / "run") as run:
        summary = make_search(run, evaluator, steps=30).search()
    assert evaluator.most == LANES
    assert summary.evaluated == 30


def test_with_one_lane_one_thing_happens_at_a_time(tmp_path: Path) -> None:
    class Alone(Thinker):
        def propose(self, context: ProposalContext) -> Candidate | None:
            assert threading.current_thread() is threading.main_thread()
            return super().propose(context)

    evaluator, thinker = Together(lanes=1), Alone()
    with make_run(tmp_path / "run") as run:
        make_search(run, evaluator, steps=12, proposers=[thinker, Nudge()]).search()
    assert (evaluator.most, thinker.most) == (1, 1)


def test_slow_proposers_think_side_by_side_and_the_budget_counts_them(tmp_path: Path) -> None:
    thinker = Thinker()
    with make_run(tmp_path / "run") as run:
        summary = make_search(run, Together(), steps=20, proposers=[thinker]).search()
        proposed = count(run, EntryKind.PROPOSED)
    assert 1 < thinker.most <= SLOW_PROPOSALS
    assert summary.evaluated == proposed == 20
    assert summary.costs.total.tokens == 100 * thinker.asked


def test_where_time_is_limited_nobody_waits_for_a_model_and_its_tokens_count(
    tmp_path: Path,
) -> None:
    class NeverDone(Thinker):
        def propose(self, context: ProposalContext) -> Candidate | None:
            super().propose(context)
            threading.Event().wait()
            return None

    thinker = NeverDone()
    with make_run(tmp_path / "run") as run:
        proposers, budget = [thinker, Nudge()], Budget(gpu_seconds=60)
        summary = make_search(run, OnDevice(), proposers=proposers, budget=budget).search()
        assert count(run, EntryKind.ABANDONED) == thinker.asked > 0
    assert summary.evaluated >= 60 / 2 / OnDevice.SECONDS
    assert summary.costs.total.tokens == 100 * thinker.asked


def test_models_are_not_asked_beyond_their_tokens_and_the_others_go_on(tmp_path: Path) -> None:
    thinker = Thinker()
    with make_run(tmp_path / "run") as run:
        budget = Budget(steps=60, tokens=1000)
        proposers = [thinker, Nudge()]
        summary = make_search(run, Together(), proposers=proposers, budget=budget).search()
    # Before the first has ended nobody knows what one costs.
    assert 10 <= thinker.asked < 10 + SLOW_PROPOSALS
    assert summary.evaluated == 60


def test_a_machine_that_fails_once_costs_no_candidate(tmp_path: Path) -> None:
    failed: list[str] = []

    class Hiccup(ToyEvaluator):
        def screen(self, candidate: Candidate, *, incumbent_us: float | None = None) -> Evaluation:
            evaluation = super().screen(candidate, incumbent_us=incumbent_us)
            if len(self.screened) == 2:
                failed.append(candidate.id)
                return make_evaluation(candidate, status=Status.MACHINE_UNFIT)
            return evaluation

    with make_run(tmp_path / "run") as run:
        search = make_search(run, Hiccup(), steps=3, proposers=[])
        search.search()
        assert search.state.evaluated == 3
        assert search.state.owed == {}
        judged = [e.candidate_id for e in run.log() if e.kind is EntryKind.EVALUATED]
    assert judged.count(failed[0]) == 2


def test_an_evaluator_that_breaks_loses_no_evaluation_beside(tmp_path: Path) -> None:
    class Breaks(Together):
        def screen(self, candidate: Candidate, *, incumbent_us: float | None = None) -> Evaluation:
            evaluation = super().screen(candidate, incumbent_us=incumbent_us)
            if len(self.screened) == 6:
                raise WorkerLost("the reference's worker died")
            time.sleep(0.02)
            return evaluation

    evaluator = Breaks()
    with make_run(tmp_path / "run") as run, pytest.raises(WorkerLost):
        make_search(run, evaluator, steps=30).search()
    with Run.open(tmp_path / "run") as run:
        ended = [e for e in run.log() if e.kind in (EntryKind.EVALUATED, EntryKind.REMEASURED)]
    assert len(ended) == len(evaluator.screened) - 1


def test_a_full_disk_with_evaluations_in_flight_ends_and_goes_on_later(tmp_path: Path) -> None:
    with make_run(tmp_path / "run") as run:
        run.store._connection.execute("PRAGMA max_page_count = 16")
        with pytest.raises(RunUnwritable, match="free some space"):
            make_search(run, Together(), steps=500).search()
        kept = len(run.attempts())
    with Run.resume(tmp_path / "run") as run:
        assert make_search(run, Together(), steps=kept + 5).search().evaluated == kept + 5
        assert count(run, EntryKind.PROPOSED) == count(run, EntryKind.EVALUATED)


def test_gpu_seconds_end_a_search_and_count_over_sessions(tmp_path: Path) -> None:
    budget = Budget(gpu_seconds=30)
    with make_run(tmp_path / "run") as run:
        search = make_search(run, OnDevice(), budget=budget)
        search.search()
        assert list(run.log())[-1].detail == "the budget of 30 GPU seconds is spent"
        assert 30 / 2 <= search.state.cost.device_seconds <= 30  # some is kept to confirm
    with Run.resume(tmp_path / "run") as run:
        search = make_search(run, OnDevice(), budget=budget)
        search.search()
        assert 30 <= search.state.cost.device_seconds <= 30 + 2 * LANES
