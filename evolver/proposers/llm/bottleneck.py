"""What bounds a candidate on one workload, from its evaluation alone; pure.

Memory's share is its floor over the time; arithmetic's is what the reference's products need
(other arithmetic is not counted) at the device's limit for the data's type, over the time;
launches' is their number at what one costs. Where none of them explains the time, it is latency:
waits for memory, too little in flight, or instructions that nobody counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

from evaluator.evaluation import CensusMethod, Evaluation, WorkloadCensus, WorkloadTiming
from evaluator.timing.gpu_limits import GPU_LIMITS
from evaluator.workload import DType, Workload
from policies.model import EvaluatorPolicy

EXPLAINS = 0.5
"""A share of the time from which it is called bound."""
_HALVES = {DType.FLOAT16, DType.BFLOAT16}


class Bottleneck(StrEnum):
    """The class, in the words that a prompt uses."""

    MEMORY = "memory bandwidth"
    ARITHMETIC = "arithmetic"
    LAUNCHES = "launches"
    LATENCY = "latency (neither bandwidth, arithmetic nor launches explain the time)"


@dataclass(frozen=True)
class Bound:
    """How near a candidate comes to each limit; None where a limit is not known here."""

    memory_share: float | None = None
    arithmetic_share: float | None = None
    gflops_per_s: float | None = None
    """Achieved, of the reference's products; None where it has none."""
    launch_share: float | None = None

    @property
    def bottleneck(self) -> Bottleneck | None:
        """What explains the time; None where too little is known to say."""
        shares = {
            Bottleneck.MEMORY: self.memory_share,
            Bottleneck.ARITHMETIC: self.arithmetic_share,
            Bottleneck.LAUNCHES: self.launch_share,
        }
        known = {kind: share for kind, share in shares.items() if share is not None}
        if known and max(known.values()) >= EXPLAINS:
            return max(known, key=lambda kind: known[kind])
        return None if self.memory_share is None else Bottleneck.LATENCY


def bound_of(evaluation: Evaluation, timing: WorkloadTiming, workload: Workload) -> Bound:
    """Return how a timed candidate stands to the limits on ``workload``."""
    census = next((c for c in evaluation.census if c.workload == workload.name), None)
    flops = census.reference_flops if census else 0
    limit = _flops_per_us(evaluation.environment.device, workload)
    return Bound(
        memory_share=timing.roofline_fraction,
        arithmetic_share=flops / limit / timing.candidate_us if flops and limit else None,
        gflops_per_s=flops / timing.candidate_us / 1e3 if flops else None,
        launch_share=_launch_share(census, timing),
    )


def _flops_per_us(device: str, workload: Workload) -> float | None:
    limits = next((v for name, v in GPU_LIMITS.items() if f"({name})" in device), None)
    if limits is None:
        return None
    return limits.half_flops_per_us if _is_half(workload) else limits.float32_flops_per_us


def _is_half(workload: Workload) -> bool:
    """Whether all that is rounded comes in half precision, as tensor cores take it."""
    types: Iterable[DType] = (t.dtype for t in workload.tensors.values())
    rounded = {t for t in types if t.is_floating}
    return bool(rounded) and rounded <= _HALVES


def _launch_share(census: WorkloadCensus | None, timing: WorkloadTiming) -> float | None:
    counted = (CensusMethod.PROFILER, CensusMethod.DISPATCH)
    if census is None or census.method not in counted:
        return None  # ops on a CPU are no launches
    return min(1.0, census.launches * _launch_us()[timing.clock.value] / timing.candidate_us)


@cache
def _launch_us() -> dict[str, float]:
    return EvaluatorPolicy.default().triviality.launch_us
