"""The least time that memory allows for a call: what must move, over how fast it can move.

Only bytes count that provably move: inputs whose every sampled element matters (and of those
no more than a 99 % bound on the share that does), and outputs that follow from the inputs.
Where reads depend on the data, elements are found that do not matter, and the argument counts
nothing. Of the rotation's bytes the L2 cache can keep so many as it holds from one visit to
the next; only the others must come from DRAM. So the floor is below what any correct kernel
can reach, and a time below it is a sign of work that was not done. It says nothing of
arithmetic: a call may be far above it and as fast as it can be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evaluator.client import Client
from evaluator.errors import WorkerLost
from evaluator.evaluation import Clock
from evaluator.session import RequestFailed
from evaluator.timing.gpu_limits import GpuLimits
from evaluator.worker.protocol import calls_per_replay
from evaluator.workload import Workload

_DOUBT = 0.01
_SAMPLES = 64
SEEDS = 4
"""Among which the samples are shared."""
_SECONDS_SHARE = 0.1
"""Of a call's deadline: what sampling may take."""
_LINE_BYTES = 64
_CYCLES_PER_US = 6000
_L1_BYTES = 128 << 10
"""No processor's core stores more than a line a cycle, nor loads more from beyond its first
cache; none has a larger one, or runs faster than 6 GHz."""


@dataclass(frozen=True)
class Traffic:
    """Bytes of one call that any correct implementation reads and writes, at least."""

    read_bytes: float = 0.0
    written_bytes: float = 0.0


def traffic_of(
    client: Client,
    workload: Workload,
    writes: Sequence[str],
    seeds: Sequence[int],
    *,
    call_seconds: float,
) -> Traffic:
    """Ask a worker that has loaded the reference which bytes matter; none where it fails."""
    try:
        found = client.observe_traffic(
            workload,
            writes,
            seeds=seeds,
            samples=_SAMPLES,
            sampling_seconds=call_seconds * _SECONDS_SHARE,
            seconds=call_seconds,
        )
    except (RequestFailed, WorkerLost):
        return Traffic()
    return Traffic(
        read_bytes=sum(least_read(*reading) for reading in found.readings.values()),
        written_bytes=found.written_bytes,
    )


def least_read(size_bytes: int, mattered: int, sampled: int) -> float:
    """Bytes of an argument that matter with 99 % confidence, if all sampled elements did.

    With a share p of elements that matter, n samples all do with probability p to the n.
    """
    if not sampled or mattered < sampled:
        return 0.0
    return float(size_bytes * _DOUBT ** (1 / sampled))


def floor_us(
    traffic: Traffic, limits: GpuLimits, *, buffers: int, clock: Clock, in_place: bool
) -> float:
    """Return the least microseconds of a call amid a rotation of ``buffers`` inputs.

    A replayed graph writes each of its calls' outputs to memory of its own; a stream's
    allocator may give one call's output memory to the next, so that nothing need leave the
    cache. Arguments that are written have the rotation's addresses.
    """
    traffic_dram = max(0.0, traffic.read_bytes - limits.l2_bytes / buffers)
    if in_place or clock is Clock.GRAPH_REPLAY:
        outputs = calls_per_replay(buffers, in_place=in_place)
        traffic_dram += max(0.0, traffic.written_bytes - limits.l2_bytes / outputs)
    through_l2 = max(traffic.read_bytes, traffic.written_bytes)
    return max(traffic_dram / limits.dram_bytes_per_us, through_l2 / limits.l2_bytes_per_us)


def core_floor_us(traffic: Traffic, *, cores: int) -> float:
    """Return the least microseconds of a call on ``cores`` of any processor, whatever is cached.

    Nothing comes near, so it says how fast is impossible, and not how fast one could be.
    """
    loaded = max(0.0, traffic.read_bytes - cores * _L1_BYTES)
    return max(loaded, traffic.written_bytes) / (_LINE_BYTES * _CYCLES_PER_US * cores)


@dataclass(frozen=True)
class Roofline:
    """The floors of a problem's workloads on one device."""

    limits: GpuLimits
    traffic: Mapping[str, Traffic]
    """By the workload's name."""
    in_place: bool

    def floor_us(self, workload: str, *, buffers: int, clock: Clock) -> float | None:
        """Return the floor of ``workload``; None where nothing is known to move."""
        known = self.traffic.get(workload, Traffic())
        if known == Traffic() or clock is Clock.WALL_PINNED:
            return None
        return floor_us(known, self.limits, buffers=buffers, clock=clock, in_place=self.in_place)


def below_floor(measured_us: float, floor_us: float | None, slack: float) -> str | None:
    """Say so where a time is impossible."""
    if floor_us is None or measured_us >= floor_us * (1 - slack):
        return None
    return (
        f"{measured_us:.2f} us a call is less than the {floor_us:.2f} us that memory needs to "
        "move what must be read and written"
    )
