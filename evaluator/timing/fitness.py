"""Is the machine fit to measure on? The reference against itself, before a series begins.

The reference is loaded in a fresh worker as if it were a candidate and timed against the
reference with the machinery that times candidates. The truth is 1: an interval that excludes
it by more than the policy's limit says that this machine, now, makes differences of its own.
A first process pair that fails is joined by more, since short calls may differ from process to
process on a machine that is in order; then both have to fail alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from evaluator.client import Client
from evaluator.correctness.intake import load_reference
from evaluator.correctness.reference import reference_call
from evaluator.evaluation import AaCheck, Baseline, Clock
from evaluator.problem import LoadedProblem
from evaluator.timing.clocks import Monitor
from evaluator.timing.pairs import Baselines, PairResult, measure_pair
from evaluator.timing.statistics import workload_speedup
from evaluator.timing.summary import judge_for, samples_of
from evaluator.workload import Workload
from policies.model import EvaluatorPolicy, SelfComparison


@dataclass(frozen=True)
class SelfMeasurement:
    """The check for the record, and the process pairs that it rests on."""

    check: AaCheck
    pairs: tuple[PairResult, ...]


def compare_with_itself(
    start: Callable[[], Client],
    alone: Callable[[], AbstractContextManager[None]],
    loaded: LoadedProblem,
    baselines: Baselines,
    workload: Workload,
    *,
    clock: Clock,
    policy: EvaluatorPolicy,
    settings: SelfComparison,
    monitor: Monitor | None,
) -> SelfMeasurement:
    """Time the reference against itself until it passes or the process pairs are used up.

    Args:
        start: returns a worker that has seen no candidate.
        alone: gives the device to us while blocks are timed.
        loaded: the problem.
        baselines: what candidates are timed against.
        workload: the one that is timed.
        clock: by which candidates are timed.
        policy: for everything that timing a candidate takes.
        settings: the budget and the limit.
        monitor: of the device, where there is one.

    Raises:
        MachineBusy: it could not even be timed.
        RequestFailed, WorkerLost, ReferenceFailed: a worker failed.
    """
    pairs: list[PairResult] = []
    while True:
        client = start()
        with client.session:
            load_reference(client, loaded.reference_source, reference_call(loaded.problem), policy)
            with alone():
                pairs.append(
                    measure_pair(
                        client,
                        baselines,
                        [workload],
                        clock=clock,
                        budget=settings.budget,
                        policy=policy,
                        monitor=monitor,
                    )
                )
        check = judge_self(workload, pairs, policy, settings)
        if check.passed or len(pairs) >= settings.budget.process_pairs:
            return SelfMeasurement(check, tuple(pairs))


def judge_self(
    workload: Workload,
    pairs: Sequence[PairResult],
    policy: EvaluatorPolicy,
    settings: SelfComparison,
) -> AaCheck:
    """Return what the pairs say, and whether they let the machine pass."""
    samples = samples_of(workload, 0, pairs, Baseline.EAGER, policy.verdict)
    found = workload_speedup(samples, Baseline.EAGER, judge_for(pairs, policy.verdict))
    clock = pairs[-1].measurements[0].clock
    limit = settings.limit[clock.value]
    return AaCheck(
        workload=workload.name,
        clock=clock,
        ratio=found.value,
        low=found.low,
        high=found.high,
        confidence=found.confidence,
        process_pairs=len(pairs),
        limit=limit,
        passed=found.low <= 1 + limit and found.high >= 1 / (1 + limit),
    )


def unfit_message(check: AaCheck) -> str:
    """Say with the numbers why nothing can be measured now."""
    return (
        f"the machine is unfit: on workload {check.workload} the reference came out "
        f"{check.ratio:.4f}x as fast as itself [{check.low:.4f}, {check.high:.4f}], further from 1 "
        f"than {check.limit:.1%} allows; measure again when the machine is quiet"
    )
