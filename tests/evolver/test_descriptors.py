"""Complexity and score: what counts, and what does not."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from evaluator.candidate import BackendName
from evaluator.evaluation import KernelResources, Status, WorkloadCorrectness
from evolver.archive import AddStatus, Archive
from evolver.descriptors import Complexity, complexity_of, failure_of, score_of
from evolver.strategy import Place
from tests import samples
from tests.builders import make_candidate, make_evaluation, make_speedup


def test_only_the_code_inside_triton_kernels_counts() -> None:
    kernel = make_candidate(samples.RMS_NORM_TRITON, backend=BackendName.TRITON)
    more_host = (
        samples.RMS_NORM_TRITON + "\n\ndef helper(x):\n    return [x + i for i in range(9)]\n"
    )
    assert complexity_of(kernel) == complexity_of(
        make_candidate(more_host, backend=BackendName.TRITON)
    )
    found = complexity_of(kernel)
    assert (found.loops, found.memory_operations, found.kernels) == (0, 5, 1)


def test_cpp_is_counted_by_its_tokens_without_comments_and_directives() -> None:
    plain = make_candidate()
    commented = make_candidate(
        samples.RMS_NORM_CPP.replace(
            "float total = 0.0f;", "float total = 0.0f; // for (;;) x[0]\n"
        )
    )
    assert complexity_of(plain) == complexity_of(commented)
    found = complexity_of(plain)
    assert (found.loops, found.kernels) == (3, 1)
    assert found.nodes > 100


def test_a_failure_has_no_score() -> None:
    assert score_of(make_evaluation(status=Status.INCORRECT)) is None
    assert score_of(make_evaluation(status=Status.TIMEOUT)) is None


def test_the_score_is_the_lower_bound_of_the_speedup_over_eager() -> None:
    evaluation = make_evaluation(speedup=2.0)
    score = score_of(evaluation)
    assert score is not None
    assert score.measured
    assert score.value == evaluation.speedups[0].lower_99


def make_resources(registers: int = 32, spill_bytes: int = 0) -> KernelResources:
    return KernelResources(
        kernel="k", target="sm_90", registers=registers, spill_bytes=spill_bytes, shared_bytes=0
    )


def test_without_a_device_spills_and_more_kernels_rank_lower_and_nothing_is_a_speedup() -> None:
    def proxy(*resources: KernelResources) -> float:
        score = score_of(make_evaluation(status=Status.NOT_MEASURED, resources=resources))
        assert score is not None
        assert not score.measured
        return score.value

    assert proxy(make_resources()) > proxy(make_resources(spill_bytes=256))
    assert proxy(make_resources()) > proxy(make_resources(), make_resources())
    assert proxy(make_resources()) <= 1.0


@given(st.sampled_from([s for s in Status if s.is_candidates_fault]), st.lists(st.booleans()))
def test_every_failure_scores_low_and_the_more_was_right_the_less_low(
    status: Status, passed: list[bool]
) -> None:
    checks = tuple(
        WorkloadCorrectness(workload=str(n), passed=p, trials=1, reason=None if p else "differs")
        for n, p in enumerate([*passed, False])
    )
    failure = failure_of(make_evaluation(status=status, correctness=checks))
    assert 0 < failure.score < 1 / 8  # the lowest edge of the archive's scores
    one_right = (checks[0].model_copy(update={"passed": True, "reason": None}), *checks[1:])
    better = failure_of(
        make_evaluation(status=status).model_copy(update={"correctness": one_right})
    )
    assert better.score >= failure.score
    assert score_of(make_evaluation(status=status, correctness=checks)) is None


def test_failures_of_one_kind_have_one_cause_whatever_their_numbers() -> None:
    def cause(message: str, status: Status = Status.RUNTIME_ERROR) -> str:
        return failure_of(make_evaluation(status=status, message=message)).cause

    assert cause("illegal access at 0x7f3a, row 17") == cause("illegal access at 0x11, row 4")
    assert cause("illegal access at 0x7f3a") != cause("misaligned access at 0x7f3a")
    assert cause("too long", Status.TIMEOUT) != cause("too long")


@given(st.floats(1e-6, 1e6), st.floats(0, 0.5))
def test_a_score_is_positive_finite_and_inside_its_interval_or_below(
    value: float, width: float
) -> None:
    speedup = make_speedup(value).model_copy(
        update={"low": value * (1 - width), "high": value * (1 + width)}
    )
    score = score_of(make_evaluation(speedups=(speedup,)))
    assert score is not None
    assert all(math.isfinite(x) and x > 0 for x in (score.value, score.low, score.high))
    assert score.value <= score.high
    assert Archive().add("a", Place(Complexity(0, 0, 0, 0)), score) is AddStatus.NEW
