"""A search with the real evaluator: compiled, judged and timed in sandboxes."""

from __future__ import annotations

from pathlib import Path

import pytest

from evaluator.candidate import BackendName, Candidate
from evaluator.evaluation import Status
from evaluator.supervisor import CompiledBaseline, LocalEvaluator
from evolver.budget import Budget
from evolver.proposers.base import ProposalContext
from evolver.proposers.mutate import MutateProposer
from evolver.run import Run
from evolver.search import Search
from evolver.summary import Outcome
from policies.model import EvaluatorPolicy
from tests import samples
from tests.builders import make_candidate
from tests.evolver.toys import make_run


class Handwritten:
    """Offers one honest candidate and one that does not compile."""

    name = "handwritten"

    def __init__(self) -> None:
        broken = samples.RMS_NORM_CPP.replace("float total = 0.0f;", "float total = ;")
        self._left = [make_candidate(samples.RMS_NORM_CPP), make_candidate(broken)]

    def propose(self, context: ProposalContext) -> Candidate | None:
        return self._left.pop(0) if self._left else None


def make_real_search(run: Run, evaluator: LocalEvaluator, *, steps: int) -> Search:
    return Search(
        run,
        evaluator,
        seeders=[Handwritten()],
        proposers=[MutateProposer()],
        budget=Budget(steps=steps),
    )


def undisturbed_policy() -> EvaluatorPolicy:
    """The default, but judging on a busy machine too: what is tested is the search."""
    policy = EvaluatorPolicy.default()
    timing = policy.timing.model_copy(
        update={"waiting_share": 1e9, "slope_noise_limit": 1e9, "self_comparison": None}
    )
    return policy.model_copy(update={"timing": timing})


@pytest.mark.sandbox
@pytest.mark.timeout(300)
def test_a_real_search_confirms_what_it_publishes_and_resumes(tmp_path: Path) -> None:
    with (
        make_run(tmp_path / "run") as run,
        LocalEvaluator(
            run.loaded,
            BackendName.CPP,
            policy=undisturbed_policy(),
            compiled=CompiledBaseline.NEVER,
        ) as evaluator,
    ):
        make_real_search(run, evaluator, steps=3).search()
        first = run.attempts()
        summary = make_real_search(run, evaluator, steps=4).search()
        attempts = run.attempts()
    assert attempts[:3] == first
    assert [a.evaluation.status for a in attempts][:2] == [Status.OK, Status.COMPILE_ERROR]
    assert attempts[2].proposer == "mutate"
    assert summary.outcome is not Outcome.UNFINISHED
    if summary.outcome is Outcome.FASTER:
        with Run.open(tmp_path / "run") as run:
            best = run.best()
        assert best is not None
        assert best.evaluation.confirmed
