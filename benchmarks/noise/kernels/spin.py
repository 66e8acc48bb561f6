"""A copy that first spends ``iterations`` rounds of arithmetic on each element."""

import torch
import triton
import triton.language as tl


@triton.jit
def _spin(x_ptr, out_ptr, count, iterations, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < count
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    y = x
    for _ in range(iterations):
        y = y * 0.999 + 0.001
    tl.store(out_ptr + offsets, tl.where(y > 1e30, y, x), mask=mask)


def spin(x: torch.Tensor, iterations: int, extra: int) -> torch.Tensor:
    """Return a copy of a contiguous vector; ``extra`` is work that a candidate leaves out."""
    out = torch.empty_like(x)
    count = x.numel()
    if count:
        _spin[(triton.cdiv(count, 1024),)](x, out, count, iterations + extra, BLOCK=1024)
    return out
