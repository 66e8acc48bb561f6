"""How others time a kernel: ``triton.testing`` as its users call it, event pairs, a host clock.

For benchmarks that set our own clock beside them; no verdict rests on these.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

_WARM_UP_CALLS = 3
_TRIALS = 100
_FLUSHED_ELEMENTS = 32 << 20
"""Of int64, as KernelBench writes between trials to empty the L2 cache."""


def yardsticks_us(
    call: Callable[[], Any], device: str, clocks: Sequence[str] = ()
) -> dict[str, float]:
    """Time ``call`` in microseconds, by the name of the clock; by ``clocks`` alone where named.

    On a GPU ``one_shot`` (one event pair), ``do_bench_cudagraph``, ``do_bench`` and
    ``cuda_event_100`` (KernelBench's mean of 100 trials); elsewhere ``wall_100``.
    """
    for _ in range(_WARM_UP_CALLS):
        call()
    known = {"wall_100": _mean_of_wall_us}
    if device.startswith("cuda"):
        torch.cuda.synchronize()
        known = {
            "one_shot": _event_us,
            "do_bench_cudagraph": _captured_us,
            "do_bench": _do_bench_us,
            "cuda_event_100": _mean_of_events_us,
        }
    return {name: clock(call) for name, clock in known.items() if not clocks or name in clocks}


def _do_bench_us(call: Callable[[], Any]) -> float:
    from triton.testing import do_bench

    return float(do_bench(call)) * 1e3


def _captured_us(call: Callable[[], Any]) -> float:
    from triton.testing import do_bench_cudagraph

    with torch.cuda.stream(torch.cuda.Stream()):  # type: ignore[no-untyped-call]
        return float(do_bench_cudagraph(call)) * 1e3


def _mean_of_wall_us(call: Callable[[], Any]) -> float:
    began = time.perf_counter()
    for _ in range(_TRIALS):
        call()
    return (time.perf_counter() - began) / _TRIALS * 1e6


def _mean_of_events_us(call: Callable[[], Any]) -> float:
    """KernelBench's ``cuda_event`` (src/kernelbench/timing.py): cold L2, the first discarded."""
    flushed = torch.empty(_FLUSHED_ELEMENTS, dtype=torch.int64, device="cuda")
    times_us = []
    for _ in range(_TRIALS + 1):
        torch.cuda.synchronize()
        flushed.fill_(42)
        times_us.append(_event_us(call))
    return sum(times_us[1:]) / _TRIALS


def _event_us(call: Callable[[], Any]) -> float:
    start = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    end = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    start.record()
    call()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) * 1e3
