# backend: triton
# problem: rms_norm
# looks_like: a decoy, by a kernel's name that belongs to the library
import torch
import triton
import triton.language as tl


@triton.jit
def vectorized_elementwise_kernel(x, w, out, cols, step, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    value = tl.load(x + row * step + at, at < cols, 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(value * value, 0) / cols + eps)
    tl.store(out + row * cols + at, value * scale * tl.load(w + at, at < cols, 0.0), at < cols)


def rms_norm(x, weight, eps):
    rows, cols = x.shape
    out = torch.empty((rows, cols), device=x.device)
    vectorized_elementwise_kernel[(rows,)](
        x, weight, out, cols, x.stride(0), eps, BLOCK=triton.next_power_of_2(cols)
    )
    return out
