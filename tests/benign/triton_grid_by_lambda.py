# backend: triton
# problem: swiglu
# looks_like: code in a lambda, which is how grids are written
import torch
import triton
import triton.language as tl


@triton.jit
def silu(x):
    return x * tl.sigmoid(x)


@triton.jit
def swiglu_kernel(gate, up, out, cols, gate_step, up_step, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    left = tl.load(gate + row * gate_step + at, at < cols, 0.0)
    right = tl.load(up + row * up_step + at, at < cols, 0.0)
    tl.store(out + row * cols + at, silu(left) * right, at < cols)


def swiglu(gate, up):
    rows, cols = gate.shape
    out = torch.empty((rows, cols), device=gate.device)
    grid = lambda meta: (rows, triton.cdiv(cols, meta["BLOCK"]))  # noqa: E731
    swiglu_kernel[grid](gate, up, out, cols, gate.stride(0), up.stride(0), BLOCK=256)
    return out
