"""Triton candidates on a machine without a GPU, and, marked ``gpu``, on one with."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from evaluator import machine
from evaluator.candidate import BackendName
from evaluator.correctness.interpreted import shrink
from evaluator.evaluation import Baseline, Clock, Evaluation, Status, Verdict
from evaluator.problem import Contract, Entry, LoadedProblem, Output
from evaluator.supervisor import CompiledBaseline, LocalEvaluator
from evaluator.workload import DType, Workload
from policies.model import EvaluatorPolicy
from tests import samples
from tests.builders import make_candidate, make_problem, make_tensor

without_gpu = pytest.mark.skipif(bool(machine.gpus()), reason="there is a GPU")
with_gpu = pytest.mark.skipif(not machine.gpus(), reason="there is no GPU")

MATMUL_REFERENCE = """\
import torch


def gelu_matmul(a, b):
    c = torch.matmul(a, b)
    return (c.float() * 0.5 * (1 + torch.erf(c.float() / 1.4142135623730951))).to(a.dtype)
"""

MATMUL_TRITON = """\
import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def kernel(a, b, out, N: tl.constexpr, K: tl.constexpr, M: tl.constexpr):
    rows = tl.arange(0, N)
    cols = tl.arange(0, M)
    inner = tl.arange(0, K)
    left = tl.load(a + rows[:, None] * K + inner[None, :])
    right = tl.load(b + inner[:, None] * M + cols[None, :])
    c = tl.dot(left, right).to(tl.bfloat16).to(tl.float32)
    c = c * 0.5 * (1 + libdevice.erf(c / 1.4142135623730951))
    tl.store(out + rows[:, None] * M + cols[None, :], c.to(tl.bfloat16))


def gelu_matmul(a, b):
    out = torch.empty((a.shape[0], b.shape[1]), dtype=a.dtype, device=a.device)
    kernel[(1,)](a, b, out, N=a.shape[0], K=a.shape[1], M=b.shape[1], num_warps=4)
    return out
"""


def matmul_problem() -> LoadedProblem:
    bf16 = {"dtype": DType.BFLOAT16}
    tile = Workload(
        name="tile",
        arguments={"a": make_tensor(16, 32, **bf16), "b": make_tensor(32, 16, **bf16)},
    )
    return make_problem(
        source=MATMUL_REFERENCE,
        workloads=(tile,),
        entry=Entry(function="gelu_matmul", candidate_function="gelu_matmul"),
        arguments=("a", "b"),
        contract=Contract(outputs=(Output(),), returns_tuple=False),
    )


@pytest.fixture(scope="module")
def interpreter() -> Iterator[LocalEvaluator]:
    with LocalEvaluator(make_problem(), BackendName.TRITON) as started:
        yield started


def screen(evaluator: LocalEvaluator, source: str) -> Evaluation:
    return evaluator.screen(make_candidate(source, backend=BackendName.TRITON))


@without_gpu
@pytest.mark.sandbox
def test_without_a_gpu_a_right_kernel_is_compiled_and_not_measured(
    interpreter: LocalEvaluator,
) -> None:
    found = screen(interpreter, samples.RMS_NORM_TRITON)
    assert found.status is Status.NOT_MEASURED, found.message
    assert not found.speedups
    assert {k.kernel for k in found.resources} == {"rms_norm_kernel"}
    assert all(k.target == "sm_90" and k.registers > 0 for k in found.resources)


@without_gpu
@pytest.mark.sandbox
def test_without_a_gpu_a_wrong_kernel_is_incorrect(interpreter: LocalEvaluator) -> None:
    wrong = samples.RMS_NORM_TRITON.replace("/ cols + eps", "/ BLOCK * 1.01 + eps")
    assert screen(interpreter, wrong).status is Status.INCORRECT


@without_gpu
@pytest.mark.sandbox
def test_an_access_far_out_of_bounds_harms_nobody(interpreter: LocalEvaluator) -> None:
    wild = samples.RMS_NORM_TRITON.replace("x + row * cols", "x + (1 << 40) + row * cols")
    assert screen(interpreter, wild).status in (Status.RUNTIME_ERROR, Status.INCORRECT)
    assert screen(interpreter, samples.RMS_NORM_TRITON).status is Status.NOT_MEASURED


@without_gpu
@pytest.mark.sandbox
def test_a_kernel_that_only_the_interpreter_accepts_is_a_compile_error(
    interpreter: LocalEvaluator,
) -> None:
    block = "    at = tl.arange(0, BLOCK)"
    odd = samples.RMS_NORM_TRITON.replace(
        block, f"{block}\n    three = tl.zeros([1 << 21], tl.int8)"
    )
    found = screen(interpreter, odd)
    assert found.status in (Status.COMPILE_ERROR, Status.RUNTIME_ERROR), found.message


@without_gpu
@pytest.mark.sandbox
def test_a_compilation_that_does_not_end_in_time_is_a_timeout() -> None:
    policy = EvaluatorPolicy.default()
    limits = policy.limits.model_copy(update={"compile_seconds": 0.001})
    hurried = policy.model_copy(update={"limits": limits})
    with LocalEvaluator(make_problem(), BackendName.TRITON, policy=hurried) as evaluator:
        found = screen(evaluator, samples.RMS_NORM_TRITON)
    assert found.status is Status.TIMEOUT, found.message
    assert "do not compile for sm_90" in found.message


@without_gpu
@pytest.mark.sandbox
def test_bfloat16_dot_and_libdevice_are_right_in_the_interpreter() -> None:
    with LocalEvaluator(matmul_problem(), BackendName.TRITON) as evaluator:
        found = screen(evaluator, MATMUL_TRITON)
    assert found.status is Status.NOT_MEASURED, (found.message, found.log_tail)
    assert found.resources


def test_a_large_workload_is_cut_along_the_extent_that_its_tensors_share() -> None:
    large = Workload(
        name="large",
        arguments={"x": make_tensor(4096, 128), "y": make_tensor(4096), "w": make_tensor(128)},
    )
    cut = shrink(large, 32)
    assert cut is not None
    assert [t.shape for t in cut.tensors.values()] == [(32, 128), (32,), (128,)]


def test_an_extent_that_a_scalar_repeats_is_not_cut() -> None:
    tied = Workload(name="tied", arguments={"x": make_tensor(4096, 8), "rows": 4096})
    assert shrink(tied, 32) is None


@with_gpu
@pytest.mark.gpu
def test_on_a_gpu_a_fused_kernel_is_timed_by_graph_replay() -> None:
    everything = CompiledBaseline.ALWAYS
    with LocalEvaluator(make_problem(), BackendName.TRITON, compiled=everything) as evaluator:
        found = screen(evaluator, samples.RMS_NORM_TRITON)
    assert found.status is Status.OK, (found.message, found.log_tail)
    assert all(t.clock is Clock.GRAPH_REPLAY for t in found.timings)
    eager = found.speedup(Baseline.EAGER)
    assert eager is not None
    assert eager.verdict is Verdict.FASTER
    assert found.speedup(Baseline.COMPILED) is not None, found.flags


@with_gpu
@pytest.mark.gpu
def test_on_a_gpu_the_reference_against_itself_is_not_faster() -> None:
    with LocalEvaluator(
        make_problem(), BackendName.TRITON, compiled=CompiledBaseline.NEVER
    ) as evaluator:
        found = evaluator.confirm(
            make_candidate(samples.RMS_NORM_REFERENCE, backend=BackendName.TRITON)
        )
    speedup = found.speedup()
    assert speedup is not None, (found.message, found.log_tail)
    assert speedup.verdict is not Verdict.FASTER


@with_gpu
@pytest.mark.gpu
def test_on_a_gpu_a_kernel_that_cannot_be_captured_is_timed_by_events_on_both_sides() -> None:
    synchronising = samples.RMS_NORM_TRITON.replace(
        "    return out, total", "    float(out[0, 0])\n    return out, total"
    )
    with LocalEvaluator(
        make_problem(), BackendName.TRITON, compiled=CompiledBaseline.NEVER
    ) as evaluator:
        found = screen(evaluator, synchronising)
    assert found.status is Status.OK, (found.message, found.log_tail)
    assert all(t.clock is Clock.STREAM_EVENTS for t in found.timings)
