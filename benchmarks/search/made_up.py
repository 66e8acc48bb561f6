"""Evaluations that nobody measured, for searches whose judge must cost nothing or never vary."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from evaluator.candidate import BackendName
from evaluator.evaluation import (
    Baseline,
    Clock,
    Environment,
    Evaluation,
    Speedup,
    Status,
    Verdict,
    WorkloadCorrectness,
    WorkloadTiming,
)
from evaluator.problem import Regime

_ENVIRONMENT = Environment(
    machine="made up", device="none", cpu_count=1, threads=1, python="3", torch="2", sandbox="none"
)


def made_up_evaluation(
    candidate_id: str,
    speedup: float | None,
    *,
    problem_id: str,
    backend: BackendName,
    workloads: Sequence[str],
    message: str = "made up",
    confirmed: bool = False,
) -> Evaluation:
    """Return an evaluation with this speedup on every workload; None is incorrect."""
    passed = speedup is not None
    told = _speedup(speedup) if speedup is not None else None
    return Evaluation(
        candidate_id=candidate_id,
        problem_id=problem_id,
        backend=backend,
        status=Status.OK if passed else Status.INCORRECT,
        message=message,
        finished_at=datetime.now(UTC),
        seconds=1.0,
        environment=_ENVIRONMENT,
        regime=Regime.DEVICE,
        correctness=tuple(_correctness(name, passed=passed) for name in workloads),
        timings=tuple(_timing(name, told) for name in workloads) if told else (),
        speedups=(told,) if told else (),
        confirmed=confirmed and passed,
    )


def _speedup(value: float) -> Speedup:
    return Speedup(
        baseline=Baseline.EAGER,
        value=value,
        low=value * 0.99,
        high=value * 1.01,
        confidence=0.95,
        lower_99=value * 0.991,
        blocks=40,
        verdict=Verdict.FASTER if value > 1.02 else Verdict.SLOWER,
    )


def _correctness(workload: str, *, passed: bool) -> WorkloadCorrectness:
    reason = None if passed else "it differs"
    return WorkloadCorrectness(workload=workload, passed=passed, trials=2, reason=reason)


def _timing(workload: str, speedup: Speedup) -> WorkloadTiming:
    return WorkloadTiming(
        workload=workload,
        clock=Clock.GRAPH_REPLAY,
        candidate_us=100.0,
        baselines_us={Baseline.EAGER: 100.0 * speedup.value},
        speedups=(speedup,),
        calls_per_block=10,
        buffers=3,
    )
