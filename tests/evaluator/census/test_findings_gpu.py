"""The census on a GPU: the profiler's kernels, matched with Triton's launches."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from evaluator.candidate import BackendName
from evaluator.evaluation import CensusMethod, Evaluation, Status, Verdict
from evaluator.supervisor import CompiledBaseline, LocalEvaluator
from policies.model import EvaluatorPolicy
from tests import samples
from tests.builders import make_candidate, make_problem

pytestmark = [pytest.mark.gpu, pytest.mark.sandbox]

BODY = samples.RMS_NORM_REFERENCE[samples.RMS_NORM_REFERENCE.index("    x = x") :]
HEAD = samples.RMS_NORM_TRITON[: samples.RMS_NORM_TRITON.index("    out = torch")]
DECOY = f"""{HEAD}    if x.numel():
        spare = torch.empty_like(x)
        rms_norm_kernel[(1,)](x, x, weight, spare, spare, 1, eps, BLOCK=16, num_warps=1)
{BODY}"""


@pytest.fixture(scope="module")
def evaluator() -> Iterator[LocalEvaluator]:
    policy = EvaluatorPolicy.default()
    confirm = policy.timing.confirm.model_copy(
        update={"process_pairs": 1, "workload_seconds": 0.5, "max_rounds": 25}
    )
    timing = policy.timing.model_copy(
        update={"confirm": confirm, "short_call_pairs": 1, "self_comparison": None}
    )
    policy = policy.model_copy(update={"timing": timing})
    with LocalEvaluator(
        make_problem(), BackendName.TRITON, policy=policy, compiled=CompiledBaseline.NEVER
    ) as started:
        yield started


def confirmed(evaluator: LocalEvaluator, source: str) -> Evaluation:
    candidate = make_candidate(source, backend=BackendName.TRITON)
    evaluation = evaluator.confirm(candidate)
    assert evaluation.status is Status.OK, evaluation.message
    assert evaluation.census[0].method is CensusMethod.PROFILER, evaluation.flags
    return evaluation


def test_a_triton_candidate_does_its_work_in_its_own_kernel(evaluator: LocalEvaluator) -> None:
    census = confirmed(evaluator, samples.RMS_NORM_TRITON).census[0]
    assert census.own_share == pytest.approx(1.0, abs=0.02)
    assert census.launches == 1
    assert census.reference_launches is not None
    assert census.reference_launches >= 5


def test_a_screen_counts_launches_without_the_profiler(evaluator: LocalEvaluator) -> None:
    candidate = make_candidate(samples.RMS_NORM_TRITON, backend=BackendName.TRITON)
    census = evaluator.screen(candidate).census[0]
    assert census.method is CensusMethod.DISPATCH
    assert [k.name for k in census.kernels] == ["rms_norm_kernel"]


def test_a_decoy_kernel_beside_the_reference_is_unimproved(evaluator: LocalEvaluator) -> None:
    evaluation = confirmed(evaluator, DECOY)
    assert evaluation.speedups[0].verdict in (Verdict.UNIMPROVED, Verdict.SLOWER)
    assert "decoy" in {f.rule for f in evaluation.flags}


def test_the_reference_in_torch_alone_is_unimproved(evaluator: LocalEvaluator) -> None:
    evaluation = confirmed(evaluator, samples.RMS_NORM_REFERENCE)
    assert evaluation.speedups[0].verdict in (Verdict.UNIMPROVED, Verdict.SLOWER)
    assert evaluation.census[0].own_share == 0.0
