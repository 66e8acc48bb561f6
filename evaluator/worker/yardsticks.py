"""How others time a kernel: ``triton.testing`` as its users call it, and one event pair.

For the benchmark that sets our own clock beside them; no verdict rests on these.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_WARM_UP_CALLS = 3


def yardsticks_us(call: Callable[[], Any]) -> dict[str, float]:
    """Time ``call`` in microseconds under ``do_bench``, ``do_bench_cudagraph`` and ``one_shot``."""
    from triton.testing import do_bench, do_bench_cudagraph

    for _ in range(_WARM_UP_CALLS):
        call()
    start = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    end = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    torch.cuda.synchronize()
    start.record()
    call()
    end.record()
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):  # type: ignore[no-untyped-call]
        captured = do_bench_cudagraph(call)
    return {
        "one_shot": start.elapsed_time(end) * 1e3,
        "do_bench": do_bench(call) * 1e3,
        "do_bench_cudagraph": captured * 1e3,
    }
