# backend: triton
# problem: wide_mean
# looks_like: results kept aside, in scratch memory of the one call
import torch
import triton
import triton.language as tl


@triton.jit
def sum_pieces(x, scratch, cols, pieces, BLOCK: tl.constexpr):
    row, piece = tl.program_id(0), tl.program_id(1)
    at = piece * BLOCK + tl.arange(0, BLOCK)
    total = tl.sum(tl.load(x + row * cols + at, at < cols, 0.0), 0)
    tl.store(scratch + row * pieces + piece, total)


@triton.jit
def finish(scratch, out, cols, pieces, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    total = tl.sum(tl.load(scratch + row * pieces + at, at < pieces, 0.0), 0)
    tl.store(out + row, total / cols)


def wide_mean(x):
    x = x.contiguous()
    rows, cols = x.shape
    pieces = triton.cdiv(cols, 4096)
    scratch = torch.empty((rows, pieces), device=x.device)
    out = torch.empty(rows, device=x.device)
    sum_pieces[(rows, pieces)](x, scratch, cols, pieces, BLOCK=4096)
    finish[(rows,)](scratch, out, cols, pieces, BLOCK=triton.next_power_of_2(pieces))
    return out
