"""From the measurements of all process pairs to the record's timings and speedups: pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from evaluator.evaluation import Baseline, Speedup, WorkloadTiming
from evaluator.timing.measure import Measurement
from evaluator.timing.pairs import PairResult
from evaluator.timing.roofline import Roofline
from evaluator.timing.statistics import Judge, Samples, problem_speedup, workload_speedup
from evaluator.workload import Workload
from policies.model import VerdictPolicy


def summarise(
    workloads: Sequence[Workload],
    pairs: Sequence[PairResult],
    policy: VerdictPolicy,
    roofline: Roofline | None = None,
) -> tuple[tuple[WorkloadTiming, ...], tuple[Speedup, ...]]:
    """Return one timing per workload and one speedup per baseline.

    A baseline counts with the pairs that measured it on every workload. Held-out workloads
    are judged like the others.

    Args:
        workloads: in the order of each pair's measurements.
        pairs: at least one.
        policy: threshold, confidence, process noise.
        roofline: the floors of the workloads, where they are known.
    """
    judge = judge_for(pairs, policy)
    having = {b: [p for p in pairs if _has(p, b)] for b in Baseline}
    shared = [b for b, measured in having.items() if measured]
    samples = {
        baseline: [
            samples_of(w, i, having[baseline], baseline, policy) for i, w in enumerate(workloads)
        ]
        for baseline in shared
    }
    timings = tuple(
        _timing(
            workload,
            [p.measurements[i] for p in pairs],
            tuple(workload_speedup(samples[b][i], b, judge) for b in shared),
            roofline,
        )
        for i, workload in enumerate(workloads)
    )
    return timings, tuple(problem_speedup(samples[b], b, judge) for b in shared)


def judge_for(pairs: Sequence[PairResult], policy: VerdictPolicy) -> Judge:
    """Return what judges these pairs: the noisiest clock among them sets the prior."""
    noise = max(policy.process_noise[m.clock.value] for p in pairs for m in p.measurements)
    return Judge(policy.confidence, policy.faster_threshold, noise)


def _has(pair: PairResult, baseline: Baseline) -> bool:
    return all(baseline in m.log_ratios for m in pair.measurements)


def samples_of(
    workload: Workload,
    position: int,
    pairs: Sequence[PairResult],
    baseline: Baseline,
    policy: VerdictPolicy,
) -> Samples:
    """The log ratios of the workload at ``position`` of each pair's measurements."""
    measured = [p.measurements[position] for p in pairs]
    ratios = tuple(m.log_ratios[baseline] for m in measured)
    noise = max(
        policy.process_noise_ns[m.clock.value] / 1e3 / min(m.candidate_us, m.baselines_us[baseline])
        for m in measured
    )
    return Samples(workload.name, workload.weight, ratios, call_noise=noise)


def _timing(
    workload: Workload,
    measured: Sequence[Measurement],
    speedups: tuple[Speedup, ...],
    roofline: Roofline | None,
) -> WorkloadTiming:
    candidate_us = float(np.median([m.candidate_us for m in measured]))
    buffers, clock = measured[-1].buffers, measured[0].clock
    floor_us = None
    if roofline is not None:
        floor_us = roofline.floor_us(workload.name, buffers=buffers, clock=clock)
    return WorkloadTiming(
        workload=workload.name,
        clock=clock,
        candidate_us=candidate_us,
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
        working_set_bytes=buffers * workload.total_bytes,
        l2_bytes=roofline.limits.l2_bytes if roofline is not None else None,
        slope_us=float(np.median([m.slope_us for m in measured])),
        floor_us=floor_us,
        roofline_fraction=floor_us / candidate_us if floor_us is not None else None,
        process_spread_percent=_process_spread_percent(measured),
        dropped=_mean_shares([m.dropped for m in measured]),
        held_back=tuple(sorted(frozenset().union(*(m.held_back for m in measured)))),
    )


def _process_spread_percent(measured: Sequence[Measurement]) -> float | None:
    """The standard deviation of the ratio to eager from one process pair to the next."""
    medians = [float(np.median(m.log_ratios[Baseline.EAGER])) for m in measured]
    return 100 * float(np.std(medians, ddof=1)) if len(medians) > 1 else None


def _mean_shares(shares: Sequence[Mapping[str, float]]) -> dict[str, float]:
    causes = sorted({cause for one in shares for cause in one})
    return {c: sum(one.get(c, 0.0) for one in shares) / len(shares) for c in causes}
