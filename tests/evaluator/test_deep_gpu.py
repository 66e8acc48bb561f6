"""The deep check on a GPU: compute-sanitizer in the sandbox sees what outputs do not show."""

from __future__ import annotations

import pytest

from evaluator import machine
from evaluator.backends.cuda import find_nvcc
from evaluator.candidate import BackendName
from evaluator.evaluation import Evaluation, Status
from evaluator.memory_checkers import find_compute_sanitizer
from evaluator.supervisor import CompiledBaseline, LocalEvaluator
from tests import samples
from tests.builders import make_candidate, make_evaluation, make_problem

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not machine.gpus(), reason="there is no GPU"),
    pytest.mark.skipif(find_compute_sanitizer() is None, reason="there is no compute-sanitizer"),
]
needs_nvcc = pytest.mark.skipif(find_nvcc() is None, reason="there is no nvcc")


def deeply(source: str, backend: BackendName) -> Evaluation:
    candidate = make_candidate(source, backend=backend)
    with LocalEvaluator(make_problem(), backend, compiled=CompiledBaseline.NEVER) as evaluator:
        checked = evaluator.check_deeply(candidate, make_evaluation(candidate))
    if any("not supported" in check.message for check in checked.deep):
        pytest.skip(checked.deep[0].message)
    assert [c.tool for c in checked.deep] == [
        "compute-sanitizer memcheck",
        "compute-sanitizer racecheck",
    ]
    return checked


@pytest.mark.parametrize(
    ("source", "backend"),
    [
        (samples.RMS_NORM_TRITON, BackendName.TRITON),
        pytest.param(samples.RMS_NORM_CUDA, BackendName.CUDA, marks=needs_nvcc),
    ],
)
def test_an_honest_kernel_is_found_clean(source: str, backend: BackendName) -> None:
    checked = deeply(source, backend)
    assert all(c.ran and not c.findings for c in checked.deep), checked.deep
    assert checked.status is Status.OK


def test_a_triton_kernel_that_writes_one_element_too_far_is_found() -> None:
    store = "    tl.store(total + row * cols + at, value, mask)\n"
    assert store in samples.RMS_NORM_TRITON
    wild = store + "    tl.store(total + tl.num_programs(0) * cols, 0.0)\n"
    checked = deeply(samples.RMS_NORM_TRITON.replace(store, wild), BackendName.TRITON)
    assert checked.status is Status.INCORRECT, checked.deep
    (finding, *_) = checked.deep[0].findings
    assert finding.kind.startswith("Invalid __global__ write of size 4"), finding
    assert finding.kernel == "rms_norm_kernel"
    assert (finding.place or "").startswith("candidate.py:"), finding


@needs_nvcc
def test_a_cuda_kernel_whose_threads_race_in_shared_memory_is_found() -> None:
    barrier = "  partial[threadIdx.x] = sum;\n  __syncthreads();\n"
    assert barrier in samples.RMS_NORM_CUDA
    racing = samples.RMS_NORM_CUDA.replace(barrier, "  partial[threadIdx.x] = sum;\n")
    checked = deeply(racing, BackendName.CUDA)
    assert checked.status is Status.INCORRECT, checked.deep
    (finding, *_) = checked.deep[1].findings
    assert "Race reported" in finding.kind
    assert finding.kernel == "rms_norm_kernel"
    assert (finding.place or "").startswith("source.cu:"), finding
