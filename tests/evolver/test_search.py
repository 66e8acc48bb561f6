"""The loop: what it does in which order, what it publishes, and how it ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evaluator.candidate import Candidate
from evaluator.errors import WorkerLost
from evaluator.evaluation import Evaluation, Status
from evolver.budget import Budget
from evolver.errors import MachineTrouble
from evolver.progress import Phase, Progress
from evolver.proposers.base import ProposalContext
from evolver.run import Run
from evolver.store import EntryKind
from evolver.summary import Outcome
from tests.builders import make_evaluation
from tests.evolver.toys import (
    Nudge,
    Seeds,
    Ticks,
    ToyEvaluator,
    make_run,
    make_search,
    toy_candidate,
)


class Always:
    """Proposes the same thing again and again."""

    name = "always"

    def __init__(self, candidate: Candidate | None) -> None:
        self._candidate = candidate
        self.asked = 0

    def propose(self, context: ProposalContext) -> Candidate | None:
        self.asked += 1
        return self._candidate


class Bug:
    name = "bug"

    def propose(self, context: ProposalContext) -> Candidate | None:
        raise RuntimeError("an index is out of range")


def kinds(run: Run) -> list[EntryKind]:
    return [entry.kind for entry in run.log()]


def test_all_seeds_are_evaluated_before_anything_is_mutated(tmp_path: Path) -> None:
    with make_run(tmp_path / "run") as run:
        make_search(run, seeds=(0.8, 1.1, 0.9), steps=6).search()
        assert [a.proposer for a in run.attempts()] == ["seeds"] * 3 + ["nudge"] * 3


def test_only_a_confirmed_candidate_is_published(tmp_path: Path) -> None:
    lucky, solid = toy_candidate(2.0, proposer="seeds"), toy_candidate(1.5, proposer="seeds")
    evaluator = ToyEvaluator()
    evaluator.refuses.add(lucky.id)
    with make_run(tmp_path / "run") as run:
        summary = make_search(run, evaluator, seeds=(1.5, 2.0), proposers=[]).search()
    assert evaluator.confirmed == [lucky.id, solid.id]
    assert summary.outcome is Outcome.FASTER
    assert summary.best_candidate_id == solid.id
    assert summary.speedups[0].value == 1.5
    best = tmp_path / "run" / "best"
    assert (best / "candidate.py").read_text() == solid.source
    assert json.loads((best / "evaluation.json").read_text())["confirmed"] is True
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["outcome"] == "faster"


def test_when_nothing_is_faster_the_answer_is_no_and_there_is_no_best(tmp_path: Path) -> None:
    with make_run(tmp_path / "run") as run:
        summary = make_search(run, seeds=(0.5, 0.7), proposers=[]).search()
        assert run.best() is None
    assert summary.outcome is Outcome.NOTHING_FASTER
    assert summary.speedups == ()
    assert not (tmp_path / "run" / "best").exists()


def test_a_confirmation_that_fails_publishes_nothing(tmp_path: Path) -> None:
    evaluator = ToyEvaluator()
    evaluator.refuses.add(toy_candidate(2.0, proposer="seeds").id)
    with make_run(tmp_path / "run") as run:
        summary = make_search(run, evaluator, seeds=(2.0,), proposers=[]).search()
    assert summary.outcome is Outcome.NOTHING_FASTER


def test_a_duplicate_costs_no_evaluation(tmp_path: Path) -> None:
    evaluator = ToyEvaluator()
    again = Always(toy_candidate(0.9, proposer="seeds"))
    with make_run(tmp_path / "run") as run:
        make_search(run, evaluator, seeds=(0.9,), proposers=[again]).search()
        assert len(run.attempts()) == 1
        assert kinds(run).count(EntryKind.DUPLICATE) == again.asked
    assert len(evaluator.screened) == 1


def test_a_search_ends_when_nobody_has_anything_to_offer(tmp_path: Path) -> None:
    silent = Always(None)
    with make_run(tmp_path / "run") as run:
        make_search(run, proposers=[silent], steps=None).search()
        assert list(run.log())[-1].detail == "no proposer has anything more to offer"
    assert silent.asked < 20


def test_a_new_leader_is_measured_again_before_it_leads(tmp_path: Path) -> None:
    class Lucky(ToyEvaluator):
        """The first measurement of a 1.2 shows 3.0."""

        def screen(self, candidate: Candidate, *, incumbent_us: float | None = None) -> Evaluation:
            first = candidate.id not in self.screened
            evaluation = super().screen(candidate, incumbent_us=incumbent_us)
            is_lucky = first and "1.2" in candidate.source
            return make_evaluation(candidate, speedup=3.0) if is_lucky else evaluation

    evaluator = Lucky()
    with make_run(tmp_path / "run") as run:
        summary = make_search(run, evaluator, seeds=(1.2, 1.5), proposers=[]).search()
        assert kinds(run).count(EntryKind.REMEASURED) == 2
    assert summary.speedups[0].value == 1.5
    assert evaluator.confirmed == [toy_candidate(1.5, proposer="seeds").id]


def test_a_proposer_with_a_bug_is_recorded_and_does_not_end_the_run(tmp_path: Path) -> None:
    with make_run(tmp_path / "run") as run:
        summary = make_search(run, proposers=[Bug(), Nudge()], steps=8).search()
        broken = [e for e in run.log() if e.kind is EntryKind.BROKEN]
    assert summary.evaluated == 8
    assert broken[0].detail == "RuntimeError: an index is out of range"


def test_a_failing_machine_stops_the_run_and_blames_no_candidate(tmp_path: Path) -> None:
    class Unfit(ToyEvaluator):
        def screen(self, candidate: Candidate, **_: Any) -> Evaluation:
            self.screened.append(candidate.id)
            return make_evaluation(candidate, status=Status.MACHINE_UNFIT)

    with make_run(tmp_path / "run") as run, pytest.raises(MachineTrouble, match="--resume"):
        make_search(run, Unfit(), seeds=(1.1, 1.2, 1.3, 1.4, 1.5)).search()
    with Run.resume(tmp_path / "run") as run:
        summary = make_search(run, seeds=(1.1, 1.2, 1.3, 1.4, 1.5), proposers=[], steps=5).search()
    assert summary.speedups[0].value == 1.5
    assert summary.counts[Status.OK] == 5


def test_where_the_machine_failed_every_time_nothing_is_said_of_the_candidates(
    tmp_path: Path,
) -> None:
    class Unfit(ToyEvaluator):
        def screen(self, candidate: Candidate, **_: Any) -> Evaluation:
            return make_evaluation(candidate, status=Status.MACHINE_UNFIT)

    with make_run(tmp_path / "run") as run:
        summary = make_search(run, Unfit(), seeds=(1.1, 1.2), proposers=[], steps=5).search()
    assert summary.outcome is Outcome.UNMEASURED
    assert "the machine's fault" in summary.message


def test_an_evaluator_that_breaks_ends_the_session_with_its_own_error(tmp_path: Path) -> None:
    class Lost(ToyEvaluator):
        def screen(self, candidate: Candidate, **_: Any) -> Evaluation:
            raise WorkerLost("the reference's worker died")

    with make_run(tmp_path / "run") as run:
        with pytest.raises(WorkerLost):
            make_search(run, Lost()).search()
        assert run.summary().outcome is Outcome.UNFINISHED


def test_an_interrupted_search_leaves_a_summary_and_goes_on_later(tmp_path: Path) -> None:
    def interrupt(candidate: Candidate) -> None:
        if "0.9" in candidate.source:
            raise KeyboardInterrupt

    with make_run(tmp_path / "run") as run, pytest.raises(KeyboardInterrupt):
        make_search(run, ToyEvaluator(on_screen=interrupt)).search()
    written = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (written["outcome"], written["evaluated"]) == ("unfinished", 2)
    evaluator = ToyEvaluator()
    with Run.resume(tmp_path / "run") as run:
        assert make_search(run, evaluator, steps=3).search().evaluated == 3
    assert evaluator.screened[0] == toy_candidate(0.9, proposer="seeds").id


def test_candidates_that_cannot_be_timed_here_still_evolve_and_never_win(tmp_path: Path) -> None:
    class NoDevice(ToyEvaluator):
        def screen(self, candidate: Candidate, **_: Any) -> Evaluation:
            return make_evaluation(candidate, status=Status.NOT_MEASURED)

    evaluator = NoDevice()
    with make_run(tmp_path / "run") as run:
        summary = make_search(run, evaluator, steps=9).search()
    assert (summary.evaluated, summary.outcome) == (9, Outcome.UNMEASURED)
    assert summary.speedups == ()
    assert evaluator.confirmed == []


def test_a_finished_run_with_a_larger_budget_goes_on_and_confirms_only_the_new(
    tmp_path: Path,
) -> None:
    with make_run(tmp_path / "run") as run:
        make_search(run, seeds=(1.5,), steps=1, proposers=[]).search()
    evaluator = ToyEvaluator()
    with Run.resume(tmp_path / "run") as run:
        make_search(run, evaluator, seeds=(1.5,), steps=1, proposers=[]).search()
    assert (evaluator.screened, evaluator.confirmed) == ([], [])
    with Run.resume(tmp_path / "run") as run:
        better = Seeds(1.9)
        summary = make_search(run, evaluator, seeds=(1.5,), steps=2, proposers=[better]).search()
    assert summary.speedups[0].value == 1.9


def test_the_time_budget_counts_all_sessions(tmp_path: Path) -> None:
    with make_run(tmp_path / "run") as run:
        first = make_search(run, budget=Budget(minutes=1)).search()
    assert 60 <= first.seconds < 90
    evaluator = ToyEvaluator()
    with Run.resume(tmp_path / "run") as run:
        make_search(run, evaluator, budget=Budget(minutes=1), clock=Ticks()).search()
    assert evaluator.screened == []


def test_who_watches_sees_every_evaluation_and_the_end(tmp_path: Path) -> None:
    seen: list[Progress] = []
    with make_run(tmp_path / "run") as run:
        make_search(run, steps=5, observer=seen.append).search()
    finished = [p.finished for p in seen if p.finished is not None]
    assert len(finished) >= 5
    assert seen[-1].phase is Phase.STOPPED
    assert seen[-1].best is not None
