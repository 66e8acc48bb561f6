"""From the measurements of all process pairs to the record's timings and speedups: pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from evaluator.evaluation import Baseline, Speedup, WorkloadTiming
from evaluator.pairs import PairResult
from evaluator.statistics import Judge, Samples, problem_speedup, workload_speedup
from evaluator.timing import Measurement
from evaluator.workload import Workload
from policies.model import VerdictPolicy


def summarise(
    workloads: Sequence[Workload],
    pairs: Sequence[PairResult],
    buffers: Sequence[int],
    policy: VerdictPolicy,
) -> tuple[tuple[WorkloadTiming, ...], tuple[Speedup, ...]]:
    """Return one timing per workload and one speedup per baseline.

    A baseline counts with the pairs that measured it on every workload. Held-out workloads
    are judged like the others.

    Args:
        workloads: in the order of each pair's measurements.
        pairs: at least one.
        buffers: the rotation's size per workload.
        policy: threshold, confidence, process noise.
    """
    noise = max(policy.process_noise[m.clock.value] for p in pairs for m in p.measurements)
    judge = Judge(policy.confidence, policy.faster_threshold, noise)
    having = {b: [p for p in pairs if _has(p, b)] for b in Baseline}
    shared = [b for b, measured in having.items() if measured]
    samples = {
        baseline: [_samples(w, i, having[baseline], baseline) for i, w in enumerate(workloads)]
        for baseline in shared
    }
    timings = tuple(
        _timing(
            workload,
            [p.measurements[i] for p in pairs],
            tuple(workload_speedup(samples[b][i], b, judge) for b in shared),
            buffers[i],
        )
        for i, workload in enumerate(workloads)
    )
    return timings, tuple(problem_speedup(samples[b], b, judge) for b in shared)


def _has(pair: PairResult, baseline: Baseline) -> bool:
    return all(baseline in m.log_ratios for m in pair.measurements)


def _samples(
    workload: Workload, position: int, pairs: Sequence[PairResult], baseline: Baseline
) -> Samples:
    ratios = tuple(p.measurements[position].log_ratios[baseline] for p in pairs)
    return Samples(workload.name, workload.weight, ratios)


def _timing(
    workload: Workload,
    measured: Sequence[Measurement],
    speedups: tuple[Speedup, ...],
    buffers: int,
) -> WorkloadTiming:
    return WorkloadTiming(
        workload=workload.name,
        clock=measured[0].clock,
        candidate_us=float(np.median([m.candidate_us for m in measured])),
        baselines_us={
            baseline: float(
                np.median(
                    [m.baselines_us[baseline] for m in measured if baseline in m.baselines_us]
                )
            )
            for baseline in (s.baseline for s in speedups)
        },
        speedups=speedups,
        calls_per_block=measured[-1].calls_per_block,
        buffers=buffers,
    )
