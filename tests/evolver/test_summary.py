"""The summary: what each proposer cost and brought, and how to run the search again."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from evaluator.candidate import Candidate
from evaluator.evaluation import Evaluation, Status
from evolver.budget import Budget
from evolver.proposers.base import ProposalContext
from evolver.search import Search
from evolver.summary import Outcome, Summary
from tests.builders import make_evaluation
from tests.evolver.toys import Nudge, ToyEvaluator, make_run, make_search


def make_summary(tmp_path: Path, **options: object) -> Summary:
    with make_run(tmp_path / "run", steps=20, seed=2) as run:
        return make_search(run, steps=20, **options).search()  # type: ignore[arg-type]


def test_the_gains_of_the_proposers_multiply_to_the_best_screened_bound(tmp_path: Path) -> None:
    summary = make_summary(tmp_path)
    by_name = {p.name: p for p in summary.proposers}
    assert by_name["seeds"].gain == pytest.approx(1.1 * 0.9975)
    best = max(p.best_screened or 0.0 for p in summary.proposers)
    assert by_name["seeds"].gain * by_name["nudge"].gain == pytest.approx(best * 0.9975)


def test_counts_and_attempts_agree(tmp_path: Path) -> None:
    summary = make_summary(tmp_path)
    assert summary.evaluated == 20 == sum(summary.counts.values())
    assert sum(p.evaluated for p in summary.proposers) == 20
    assert sum(p.correct for p in summary.proposers) == summary.counts[Status.OK]


def test_the_command_that_reproduces_names_problem_budget_and_seed(tmp_path: Path) -> None:
    words = shlex.split(make_summary(tmp_path).reproduce)
    assert words[:3] == ["ksmith", "optimize", str(tmp_path / "run" / "problem")]
    assert words[3:9] == ["--backend", "cpp", "--steps", "20", "--seed", "2"]


def test_a_run_without_a_single_step_is_unfinished(tmp_path: Path) -> None:
    with make_run(tmp_path / "run") as run:
        assert run.summary().outcome is Outcome.UNFINISHED
        assert run.best() is None


class Helpless:
    name = "helpless"
    failures = ("cannot trace torch.bincount",)

    def propose(self, context: ProposalContext) -> Candidate | None:
        return None


def test_when_nobody_offers_a_candidate_the_message_says_why(tmp_path: Path) -> None:
    with make_run(tmp_path / "run") as run:
        search = Search(run, ToyEvaluator(), seeders=[Helpless()], proposers=[], budget=Budget())
        message = search.search().message
    assert "no proposer offered a candidate (helpless: cannot trace torch.bincount)" in message


@pytest.mark.parametrize("budget", [Budget(steps=0), Budget(minutes=0.0), Budget(gpu_seconds=0.0)])
def test_a_budget_of_nothing_is_told_as_the_reason(tmp_path: Path, budget: Budget) -> None:
    summary = make_summary(tmp_path, budget=budget)
    assert summary.outcome is Outcome.NOTHING_FASTER
    assert re.search(r"the budget of 0 \S+.* is spent", summary.message)


def test_evaluations_that_the_machine_failed_are_no_candidates(tmp_path: Path) -> None:
    class SometimesUnfit(ToyEvaluator):
        def screen(self, candidate: Candidate, **_: Any) -> Evaluation:
            evaluation = super().screen(candidate)
            if len(self.screened) % 3 == 0:
                return make_evaluation(candidate, status=Status.MACHINE_UNFIT)
            return evaluation

    summary = make_summary(tmp_path, evaluator=SometimesUnfit())
    assert summary.counts[Status.MACHINE_UNFIT] > 3
    assert summary.evaluated == 20 == sum(p.evaluated for p in summary.proposers)


def test_no_proposers_and_no_seeds_is_an_honest_no(tmp_path: Path) -> None:
    summary = make_summary(tmp_path, seeds=(), proposers=[Nudge()])
    assert (summary.evaluated, summary.outcome) == (0, Outcome.NOTHING_FASTER)
