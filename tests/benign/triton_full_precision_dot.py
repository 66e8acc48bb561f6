# backend: triton
# problem: linear
# looks_like: a dot of tensor cores, asked for full precision
import torch
import triton
import triton.language as tl


@triton.jit
def matmul(x, w, b, out, N, K, M, BN: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BN + tl.arange(0, BN)
    cols = tl.program_id(1) * BM + tl.arange(0, BM)
    total = tl.zeros((BN, BM), tl.float32)
    for start in range(0, K, BK):
        inner = start + tl.arange(0, BK)
        left = tl.load(x + rows[:, None] * K + inner, (rows[:, None] < N) & (inner < K), 0.0)
        right = tl.load(
            w + cols[None, :] * K + inner[:, None], (cols < M) & (inner[:, None] < K), 0.0
        )
        total = tl.dot(left, right, total, input_precision="ieee")
    total += tl.load(b + cols, cols < M, 0.0)
    tl.store(out + rows[:, None] * M + cols, total, (rows[:, None] < N) & (cols < M))


def linear(x, weight, bias):
    x, weight, bias = x.contiguous(), weight.contiguous(), bias.contiguous()
    (rows, inner), cols = x.shape, weight.shape[0]
    out = torch.empty((rows, cols), device=x.device)
    grid = (triton.cdiv(rows, 32), triton.cdiv(cols, 32))
    matmul[grid](x, weight, bias, out, rows, inner, cols, BN=32, BM=32, BK=32)
    return out
