"""From per-block log ratios to a speedup with an interval: pure numpy.

A sample is the log of baseline time over candidate time within one round, so that what
both share (clock, heat, neighbours) cancels. A workload's estimate is the median over
rounds, averaged over process pairs; a problem's is the weighted mean over workloads, that
is, the weighted geometric mean of the ratios. Intervals come from a bootstrap that draws
process pairs first and rounds within them, the same pairs for all workloads. With few pairs
the spread between processes is hardly known, so a prior for it enters every draw.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from evaluator.evaluation import Baseline, Speedup, Verdict
from policies.gates import interval_verdict, problem_verdict

Floats = npt.NDArray[np.float64]

_DRAWS = 2000
_ONE_SIDED = 0.01


@dataclass(frozen=True)
class Samples:
    """Log ratios of one workload against one baseline: one array of rounds per process pair."""

    workload: str
    weight: float
    pairs: tuple[Floats, ...]
    call_noise: float = 0.0
    """What calls as short as these differ by from one process to the next, beside the judge's
    noise: a standard deviation of the log ratio."""

    @property
    def rounds(self) -> int:
        """Rounds over all process pairs."""
        return sum(len(p) for p in self.pairs)


@dataclass(frozen=True)
class Judge:
    """The numbers that turn samples into verdicts."""

    confidence: float
    threshold: float
    process_noise: float
    """Standard deviation of the log ratio from one process pair to the next, as a prior."""


def workload_speedup(samples: Samples, baseline: Baseline, judge: Judge) -> Speedup:
    """Return the speedup of one workload.

    Raises:
        ValueError: there are no rounds.
    """
    return problem_speedup([samples], baseline, judge)


def problem_speedup(samples: Sequence[Samples], baseline: Baseline, judge: Judge) -> Speedup:
    """Return the speedup over all workloads; ``faster`` only where no workload is ``slower``.

    Raises:
        ValueError: a workload has no rounds, or the workloads differ in process pairs.
    """
    counts = {len(s.pairs) for s in samples}
    if len(counts) != 1 or any(len(p) == 0 for s in samples for p in s.pairs):
        raise ValueError("every workload needs rounds from the same process pairs")
    draws = bootstrap(samples, judge.process_noise)
    value = math.exp(_point(samples))
    tail = (1 - judge.confidence) / 2
    low, high, lower_99 = (
        math.exp(float(np.quantile(draws, q))) for q in (tail, 1 - tail, _ONE_SIDED)
    )
    word = interval_verdict(low=low, high=high, lower_99=lower_99, threshold=judge.threshold)
    if len(samples) > 1:
        own = [workload_speedup(s, baseline, judge).verdict for s in samples]
        word = problem_verdict(word, any_slower=Verdict.SLOWER in own)
    return Speedup(
        baseline=baseline,
        value=value,
        low=min(low, value),
        high=max(high, value),
        confidence=judge.confidence,
        lower_99=lower_99,
        blocks=sum(s.rounds for s in samples),
        verdict=Verdict(word),
    )


def half_width(ratios: Floats, confidence: float) -> float:
    """Return half the interval's width of the median of ``ratios``, as a share."""
    draws = _median_draws(ratios, np.random.default_rng(0))
    tail = (1 - confidence) / 2
    low, high = np.quantile(draws, (tail, 1 - tail))
    return float(np.expm1((high - low) / 2))


def bootstrap(samples: Sequence[Samples], process_noise: float) -> Floats:
    """Return draws of the problem's log speedup. Shape (draws,).

    The generator is seeded, so that the same samples give the same interval.
    """
    rng = np.random.default_rng(0)
    pair_count = len(samples[0].pairs)
    chosen = rng.integers(0, pair_count, (_DRAWS, pair_count))
    weights = _weights(samples)
    total = np.zeros(_DRAWS)
    for weight, one in zip(weights, samples, strict=True):
        medians = np.stack([_median_draws(p, rng) for p in one.pairs], axis=1)
        centre = np.mean([np.median(p) for p in one.pairs])
        means = np.take_along_axis(medians, chosen, axis=1).mean(axis=1)
        total += weight * (centre + (means - centre) * _inflation(pair_count))
    noises = [math.hypot(process_noise, one.call_noise) for one in samples]
    noise = float(np.dot(weights, noises))  # a process that is slow is so on all workloads
    return total + rng.normal(0.0, noise / math.sqrt(pair_count), _DRAWS)


def _inflation(pair_count: int) -> float:
    """Resampling n values shrinks their spread by the root of (n - 1) / n; undo it."""
    return math.sqrt(pair_count / (pair_count - 1)) if pair_count > 1 else 1.0


def _median_draws(ratios: Floats, rng: np.random.Generator) -> Floats:
    """Medians of resampled rounds. Shape (draws,)."""
    chosen = rng.integers(0, len(ratios), (_DRAWS, len(ratios)))
    medians: Any = np.median(ratios[chosen], axis=1)
    return np.asarray(medians, dtype=np.float64)


def _point(samples: Sequence[Samples]) -> float:
    """The weighted mean over workloads of the mean over pairs of the median over rounds."""
    centres = [float(np.mean([np.median(p) for p in s.pairs])) for s in samples]
    return float(np.dot(_weights(samples), centres))


def _weights(samples: Sequence[Samples]) -> Floats:
    weights = np.array([s.weight for s in samples], dtype=np.float64)
    return np.asarray(weights / weights.sum(), dtype=np.float64)
