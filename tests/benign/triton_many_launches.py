# backend: triton
# problem: row_softmax
# looks_like: a storm of launches, one for each block of rows
import torch
import triton
import triton.language as tl


@triton.jit
def softmax_rows(x, out, first, cols, BLOCK: tl.constexpr):
    row = first + tl.program_id(0)
    at = tl.arange(0, BLOCK)
    value = tl.load(x + row * cols + at, at < cols, -float("inf"))
    value = tl.exp(value - tl.max(value, 0))
    tl.store(out + row * cols + at, value / tl.sum(value, 0), at < cols)


def row_softmax(x):
    x = x.contiguous()
    out = torch.empty_like(x)
    rows, cols = x.shape
    for first in range(0, rows, 8):
        grid = (min(8, rows - first),)
        softmax_rows[grid](x, out, first, cols, BLOCK=triton.next_power_of_2(cols))
    return out
