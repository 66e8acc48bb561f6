"""Complexity and score: what counts, and what does not."""

from __future__ import annotations

from evaluator.candidate import BackendName
from evaluator.evaluation import KernelResources, Status
from evolver.descriptors import complexity_of, score_of
from tests import samples
from tests.builders import make_candidate, make_evaluation


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
