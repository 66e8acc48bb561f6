"""Parents to mutate: some by hand, some as the compiler proposer emitted them (``emitted/``)."""

from __future__ import annotations

from pathlib import Path

RMS_NORM_TRITON = """\
import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def rms_norm_kernel(
    x_ptr, weight_ptr, out_ptr, rows, columns, XBLOCK: tl.constexpr, R0_BLOCK: tl.constexpr
):
    x_offset = tl.program_id(0) * XBLOCK
    row = x_offset + tl.arange(0, XBLOCK)[:, None]
    row_mask = row < rows
    r0_base = tl.arange(0, R0_BLOCK)[None, :]
    total = tl.full([XBLOCK, R0_BLOCK], 0, tl.float32)
    for r0_offset in range(0, columns, R0_BLOCK):
        column = r0_offset + r0_base
        mask = column < columns
        x = tl.load(
            x_ptr + (column + columns * row),
            row_mask & mask,
            other=0.0,
            eviction_policy="evict_last",
        )
        total = tl.where(row_mask & mask, total + x * x, total)
    mean = tl.sum(total, 1)[:, None] / columns
    scale = libdevice.rsqrt(mean + 1e-06)
    for r0_offset in range(0, columns, R0_BLOCK):
        column = r0_offset + r0_base
        mask = column < columns
        x = tl.load(x_ptr + (column + columns * row), row_mask & mask, other=0.0)
        weight = tl.load(weight_ptr + column, mask, other=0.0)
        tl.store(out_ptr + (column + columns * row), x * scale * weight, row_mask & mask)


def rms_norm(x, weight):
    out = torch.empty_like(x)
    rows, columns = x.shape
    rms_norm_kernel[(triton.cdiv(rows, 2),)](
        x, weight, out, rows, columns, XBLOCK=2, R0_BLOCK=64, num_warps=4, num_stages=1
    )
    return out
"""

SILU_TRITON = """\
import torch
import triton
import triton.language as tl


@triton.jit
def silu_kernel(x_ptr, out_ptr, n, XBLOCK: tl.constexpr):
    index = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)
    mask = index < n
    x = tl.load(x_ptr + index, mask)
    tl.store(out_ptr + index, x / (1.0 + tl.exp(-x)), mask)


def silu(x):
    out = torch.empty_like(x)
    n = x.numel()
    silu_kernel[(triton.cdiv(n, 128),)](x, out, n, XBLOCK=128, num_warps=4, num_stages=1)
    return out
"""

ROW_MAX_TRITON = """\
import torch
import triton
import triton.language as tl


@triton.jit
def nan_maximum(a, b):
    keep = a > b
    keep |= a != a
    return tl.where(keep, a, b)


@triton.jit
def row_max_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + column, mask=column < columns, other=float("-inf"))
    tl.store(out_ptr + row, tl.reduce(x, 0, nan_maximum))


def row_max(x):
    rows, columns = x.shape
    out = torch.empty(rows, dtype=x.dtype, device=x.device)
    row_max_kernel[(rows,)](x, out, columns, BLOCK=128, num_warps=4)
    return out
"""

UNMASKED_TRITON = """\
import torch
import triton
import triton.language as tl


@triton.jit
def double_kernel(x_ptr, out_ptr, XBLOCK: tl.constexpr):
    index = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:]
    inner = index % 64
    mask = inner < 128
    x = tl.load(x_ptr + index, None)
    y = tl.load(x_ptr + index, mask)
    tl.store(out_ptr + index, x + y, None)


def double(x):
    out = torch.empty_like(x)
    double_kernel[(triton.cdiv(4096, 256),)](x, out, XBLOCK=256, num_warps=4)
    return out
"""

RMS_NORM_CPP = '''\
import torch

SOURCE = r"""
#include <algorithm>
#include <cmath>
#include <cstdint>

extern "C" void rms_norm_kernel(const float* x, const float* weight, float* out, int64_t rows,
                                const int64_t columns) {
    #pragma omp parallel for
    for (int64_t row = 0; row < rows; ++row) {
        // the mean of squares of one row
        float total = 0.0f;
        for (int64_t column = 0; column < columns; ++column) {
            float value = x[row * columns + column];
            total += value * value;
        }
        const float scale = 1.0f / std::sqrt(total / columns + 1e-6f);
        #pragma GCC ivdep
        for (int64_t column = 0; column < columns; ++column) {
            out[row * columns + column] = x[row * columns + column] * scale * weight[column];
        }
    }
}
"""

SIGNATURES = {"rms_norm_kernel": ("const float*", "const float*", "float*", "int64_t", "int64_t")}


def rms_norm(x, weight):
    out = torch.empty_like(x)
    native.rms_norm_kernel(x, weight, out, x.shape[0], x.shape[1])
    return out
'''

SCALE_CPP = '''\
import torch

SOURCE = r"""#include <cstdint>
extern "C" void scale_kernel(const float* x, float* out, int64_t rows, int64_t columns)
{
    #pragma omp parallel num_threads(2)
    {
        #pragma omp for schedule(static)
        for(int64_t x0=0; x0<static_cast<int64_t>(rows); x0+=static_cast<int64_t>(1L))
        {
            for(int64_t x1=static_cast<int64_t>(0L); x1<columns; x1+=static_cast<int64_t>(1L))
            {
                auto tmp0 = x[static_cast<int64_t>(x1 + columns*x0)];
                auto tmp1 = static_cast<float>(2.0);
                out[static_cast<int64_t>(x1 + columns*x0)] = float(tmp0 * tmp1);
            }
        }
    }
}
"""
SIGNATURES = {"scale_kernel": ("const float*", "float*", "int64_t", "int64_t")}


def scale(x):
    out = torch.empty_like(x)
    native.scale_kernel(x, out, x.shape[0], x.shape[1])
    return out
'''

GATED_TRITON = """\
import torch
import triton
import triton.language as tl


@triton.jit
def silu_kernel(x_ptr, middle_ptr, n, XBLOCK: tl.constexpr):
    index = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)
    mask = index < n
    x = tl.load(x_ptr + index, mask)
    tl.store(middle_ptr + index, x / (1.0 + tl.exp(-x)), mask)


@triton.jit
def scale_kernel(middle_ptr, gate_ptr, out_ptr, n, XBLOCK: tl.constexpr):
    index = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)
    mask = index < n
    x = tl.load(middle_ptr + index, mask)
    gate = tl.load(gate_ptr + index, mask)
    tl.store(out_ptr + index, x * gate, mask)


def gated(x, gate):
    middle = torch.empty_like(x)
    n = x.numel()
    silu_kernel[(triton.cdiv(n, 128),)](x, middle, n, XBLOCK=128, num_warps=4, num_stages=1)
    out = torch.empty_like(x)
    scale_kernel[(triton.cdiv(n, 128),)](middle, gate, out, n, XBLOCK=128, num_warps=8)
    return out
"""

_EMITTED = Path(__file__).with_name("emitted")


def emitted(name: str) -> str:
    """What the compiler proposer wrote; Triton's interpreter has no libdevice, so none is used."""
    source = (_EMITTED / f"{name}.txt").read_text()
    return source.replace("libdevice.rsqrt", "tl.rsqrt").replace("libdevice.exp", "tl.exp")


EMITTED_TRITON = {
    "rms_norm": emitted("triton_rms_norm"),
    "rms_norm, a kernel per operator": emitted("triton_rms_norm_split"),
    "rms_norm, by shape": emitted("triton_rms_norm_by_shape"),
    "softmax": emitted("triton_softmax"),
    "softmax, online": emitted("triton_softmax_online"),
    "route": emitted("triton_router"),
    "rotary": emitted("triton_rotary"),
    "gated": GATED_TRITON,
}
"""By the entry function's name, up to a comma."""
EMITTED_CPP = {
    name: emitted(f"cpp_{file}")
    for name, file in (
        ("rms_norm", "rms_norm"),
        ("softmax", "softmax"),
        ("rms_norm, a loop per operator", "rms_norm_per_operator"),
        ("softmax, a loop per operator", "softmax_per_operator"),
        ("route", "router"),
        ("rotary", "rotary"),
    )
}

TRITON_PARENTS = {
    "rms_norm": RMS_NORM_TRITON,
    "silu": SILU_TRITON,
    "row_max": ROW_MAX_TRITON,
    "double": UNMASKED_TRITON,
}
CPP_PARENTS = {"rms_norm": RMS_NORM_CPP, "scale": SCALE_CPP}
