"""What only a GPU can show of the clocks: they agree on honest kernels and find others out."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from evaluator import machine
from evaluator.candidate import BackendName
from evaluator.evaluation import Clock, Evaluation, Status
from evaluator.problem import LoadedProblem
from evaluator.supervisor import CompiledBaseline, LocalEvaluator
from evaluator.timing.clocks import open_monitor
from evaluator.timing.gpu_limits import GPU_LIMITS
from evaluator.timing.samples import TimingSamples
from evaluator.workload import Workload
from policies.model import EvaluatorPolicy
from tests import samples
from tests.builders import make_candidate, make_problem, make_tensor

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not machine.gpus(), reason="needs an NVIDIA GPU"),
]

WORKER_TAMPERING = """
import gc
from worker.main import Worker

for found in gc.get_objects():
    if isinstance(found, Worker):
        honest = found._handlers["block"]

        def forged(request, honest=honest):
            frame = honest(request)
            frame.message["ns"] *= 0.7
            frame.message["until_idle_ns"] *= 0.7
            return frame

        found._handlers = {**found._handlers, "block": forged}
"""
SIDE_STREAM = (
    "import torch\n"
    "SIDE = torch.cuda.Stream()\n\n\n"
    "def rms_norm(x, residual, weight, eps):\n"
    "    out, total = torch.empty_like(x), torch.empty_like(x)\n"
    "    with torch.cuda.stream(SIDE):\n"
    "        for _ in range(8):\n"
    "            torch.add(x, residual, out=total)\n"
    "            scale = torch.rsqrt(total.pow(2).mean(dim=-1, keepdim=True) + eps)\n"
    "            torch.mul(total * scale, weight, out=out)\n"
    "    return out, total\n"
)


def large_rms_norm() -> LoadedProblem:
    """RMS norm over 32 MiB of inputs: bound by memory, colder than any cache."""
    arguments = {
        "x": make_tensor(1024, 4096),
        "residual": make_tensor(1024, 4096),
        "weight": make_tensor(4096),
        "eps": 1e-6,
    }
    return make_problem(workloads=(Workload(name="large", arguments=arguments),))


def lawless() -> EvaluatorPolicy:
    """Without the source policy: what the clocks find alone."""
    policy = EvaluatorPolicy.default()
    source = policy.source.model_copy(update={"enforced": False})
    census = policy.census.model_copy(update={"enabled": False})
    return policy.model_copy(update={"source": source, "census": census})


@pytest.fixture(scope="module")
def rounds() -> list[TimingSamples]:
    """Every round that the evaluators of this module timed."""
    return []


@pytest.fixture(scope="module")
def evaluator(rounds: list[TimingSamples]) -> Iterator[LocalEvaluator]:
    with LocalEvaluator(
        large_rms_norm(),
        BackendName.TRITON,
        policy=lawless(),
        compiled=CompiledBaseline.NEVER,
        samples=rounds.append,
    ) as started:
        yield started


def screen(evaluator: LocalEvaluator, source: str) -> Evaluation:
    return evaluator.screen(make_candidate(source, backend=BackendName.TRITON))


def test_the_driver_tells_the_clock_of_a_gpu() -> None:
    monitor = open_monitor("cuda")
    assert monitor is not None
    clock = monitor.clock_mhz()
    assert clock is not None
    assert 100 < clock < 4000


def test_an_honest_kernel_agrees_with_every_clock_and_stays_above_the_floor(
    evaluator: LocalEvaluator, rounds: list[TimingSamples]
) -> None:
    found = screen(evaluator, samples.RMS_NORM_TRITON)
    assert found.status is Status.OK, (found.message, found.log_tail)
    (timing,) = found.timings
    assert timing.slope_us == pytest.approx(timing.candidate_us, rel=0.05)
    assert found.aa_check is not None
    assert found.aa_check.passed
    assert found.aa_check.ratio == pytest.approx(1.0, abs=0.01)
    if machine.gpu_name("cuda") in GPU_LIMITS:
        assert timing.l2_bytes is not None
        assert timing.working_set_bytes is not None
        assert timing.working_set_bytes > 2 * timing.l2_bytes
        assert timing.roofline_fraction is not None
        assert 0.3 < timing.roofline_fraction <= 1.05
    own = [r for r in rounds if r.candidate_id == found.candidate_id]
    assert json.loads(own[-1].to_json())["per_call_ns"]["candidate"]


def test_a_worker_that_claims_seven_tenths_of_its_time_is_found_out(
    evaluator: LocalEvaluator,
) -> None:
    found = screen(evaluator, samples.RMS_NORM_TRITON + WORKER_TAMPERING)
    assert found.status is Status.CHEATING_SUSPECTED, found.message
    assert {f.rule for f in found.flags} & {"claims", "roofline"}


def test_work_on_a_stream_that_is_not_joined_does_not_pay(evaluator: LocalEvaluator) -> None:
    found = screen(evaluator, SIDE_STREAM)
    assert found.status is not Status.OK, found.message


def test_a_confirmation_shows_the_regime_that_does_not_rank_beside_the_one_that_does() -> None:
    policy = lawless()
    confirm = policy.timing.confirm.model_copy(update={"process_pairs": 2, "max_rounds": 30})
    timing = policy.timing.model_copy(update={"confirm": confirm, "short_call_pairs": 2})
    with LocalEvaluator(
        large_rms_norm(),
        BackendName.TRITON,
        policy=policy.model_copy(update={"timing": timing}),
        compiled=CompiledBaseline.NEVER,
    ) as evaluator:
        found = evaluator.confirm(
            make_candidate(samples.RMS_NORM_TRITON, backend=BackendName.TRITON)
        )
    assert found.status is Status.OK, (found.message, found.log_tail)
    assert [t.clock for t in found.timings] == [Clock.GRAPH_REPLAY]
    assert [t.clock for t in found.other_clock] == [Clock.STREAM_EVENTS]
    assert found.timings[0].process_spread_percent is not None
