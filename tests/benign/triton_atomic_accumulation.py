# backend: triton
# problem: row_energy
# looks_like: an output that is zeroed and read before it is written
import torch
import triton
import triton.language as tl


@triton.jit
def partial_energy(x, out, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + row * cols + at, at < cols, 0.0)
    tl.atomic_add(out + row, tl.sum(value * value, 0) / cols)


def row_energy(x):
    x = x.contiguous()
    rows, cols = x.shape
    out = torch.zeros(rows, device=x.device)
    partial_energy[(rows, triton.cdiv(cols, 1024))](x, out, cols, BLOCK=1024)
    return out
