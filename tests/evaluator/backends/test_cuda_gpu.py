"""CUDA candidates on a GPU: compiled by nvcc in the sandbox, timed by graph replay."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from evaluator import machine
from evaluator.backends.cuda import find_nvcc
from evaluator.candidate import BackendName
from evaluator.evaluation import Clock, Evaluation, Status, Verdict
from evaluator.supervisor import CompiledBaseline, LocalEvaluator
from tests import samples
from tests.builders import make_candidate, make_problem

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not machine.gpus(), reason="there is no GPU"),
    pytest.mark.skipif(find_nvcc() is None, reason="there is no nvcc"),
]


@pytest.fixture(scope="module")
def evaluator() -> Iterator[LocalEvaluator]:
    with LocalEvaluator(
        make_problem(), BackendName.CUDA, compiled=CompiledBaseline.NEVER
    ) as started:
        yield started


def screen(evaluator: LocalEvaluator, source: str) -> Evaluation:
    return evaluator.screen(make_candidate(source, backend=BackendName.CUDA))


def test_a_fused_kernel_is_timed_by_graph_replay_and_tells_its_registers(
    evaluator: LocalEvaluator,
) -> None:
    found = screen(evaluator, samples.RMS_NORM_CUDA)
    assert found.status is Status.OK, (found.message, found.log_tail)
    assert all(t.clock is Clock.GRAPH_REPLAY for t in found.timings)
    speedup = found.speedup()
    assert speedup is not None
    assert speedup.verdict is Verdict.FASTER
    (kernel,) = found.resources
    assert kernel.kernel == "rms_norm_kernel"
    assert kernel.registers > 0


def test_a_wrong_kernel_is_incorrect(evaluator: LocalEvaluator) -> None:
    found = screen(evaluator, samples.RMS_NORM_CUDA.replace("/ cols + eps", "/ cols * 1.01f"))
    assert found.status is Status.INCORRECT, (found.message, found.log_tail)


def test_a_launch_that_the_device_refuses_is_told_in_its_words(evaluator: LocalEvaluator) -> None:
    found = screen(evaluator, samples.RMS_NORM_CUDA.replace("<<<rows, 256,", "<<<rows, 2048,"))
    assert found.status is Status.RUNTIME_ERROR, (found.message, found.log_tail)
    assert "was not launched: invalid" in found.message


def test_a_tensor_on_the_host_is_refused_before_the_launch(evaluator: LocalEvaluator) -> None:
    found = screen(
        evaluator, samples.RMS_NORM_CUDA.replace("native.rms_norm(x,", "native.rms_norm(x.cpu(),")
    )
    assert found.status in (Status.RUNTIME_ERROR, Status.POLICY_VIOLATION), found.message
