"""What a candidate is bound by, told from its evaluation."""

from __future__ import annotations

from typing import Any

import pytest

from evaluator.evaluation import CensusMethod, Clock, Evaluation, WorkloadCensus
from evaluator.workload import DType, Workload
from evolver.proposers.llm.bottleneck import Bottleneck, Bound, bound_of
from tests.builders import make_environment, make_evaluation, make_problem, make_tensor

H200 = "cuda:0 (NVIDIA H200)"


def workload_of(dtype: DType = DType.FLOAT32) -> Workload:
    return Workload(name="small", arguments={"x": make_tensor(8, 8, dtype=dtype), "eps": 1e-6})


def bound(
    *, us: float = 100.0, device: str = H200, dtype: DType = DType.FLOAT32, **facts: Any
) -> Bound:
    memory = facts.pop("memory_share", None)
    census = WorkloadCensus(
        workload="small", method=CensusMethod.PROFILER, **{"launches": 1, **facts}
    )
    whole: Evaluation = make_evaluation(
        problem=make_problem().problem,
        candidate_us=us,
        census=(census,),
        environment=make_environment(device=device),
    )
    timing = whole.timings[0].model_copy(
        update={"clock": Clock.GRAPH_REPLAY, "roofline_fraction": memory}
    )
    return bound_of(whole, timing, workload_of(dtype))


def test_memory_binds_what_comes_near_to_its_floor() -> None:
    assert bound(memory_share=0.8).bottleneck is Bottleneck.MEMORY


def test_launches_bind_what_makes_many_short_ones() -> None:
    found = bound(us=10.0, launches=5, memory_share=0.1)
    assert found.launch_share == pytest.approx(0.8)
    assert found.bottleneck is Bottleneck.LAUNCHES


def test_arithmetic_is_held_against_the_limit_of_its_type() -> None:
    """An H200 does 67 TFLOP/s in float32 and about a thousand in bfloat16."""
    flops = 40_000_000_000 // 10  # 4 GFLOP in 100 us are 40 TFLOP/s
    single = bound(reference_flops=flops, memory_share=0.2)
    assert single.gflops_per_s == pytest.approx(40_000)
    assert single.arithmetic_share == pytest.approx(0.6, abs=0.01)
    assert single.bottleneck is Bottleneck.ARITHMETIC
    half = bound(reference_flops=flops, memory_share=0.2, dtype=DType.BFLOAT16)
    assert half.arithmetic_share == pytest.approx(0.037, abs=0.002)
    assert half.bottleneck is Bottleneck.LATENCY


def test_nothing_is_said_where_too_little_is_known() -> None:
    unknown = bound(device="cuda:0 (NVIDIA Nowhere)", reference_flops=10**9, us=1000.0)
    assert unknown.arithmetic_share is None
    assert unknown.gflops_per_s == pytest.approx(1000)
    assert unknown.bottleneck is None
