"""Sources of three small problems and of honest candidates for them.

``rms_norm``: a function with two outputs, one rounded twice. ``router``: a method with
state, values and indices. ``rotary``: a function that writes two arguments in place and
returns them.
"""

from __future__ import annotations

RMS_NORM_REFERENCE = """\
import torch


def rms_norm(x, residual, weight, eps):
    x = x + residual
    residual = x
    variance = x.to(torch.float32).pow(2).mean(dim=-1, keepdim=True)
    x = (x.to(torch.float32) * torch.rsqrt(variance + eps)).to(residual.dtype)
    return x * weight, residual
"""

RMS_NORM_CPP = '''\
import torch

SOURCE = r"""
#include <cmath>
#include <cstdint>

extern "C" void fused(const float* x, const float* r, const float* w, float* out, float* sum,
                      int64_t rows, int64_t cols, float eps) {
#pragma omp parallel for if (rows * cols > 32768)
  for (int64_t i = 0; i < rows; ++i) {
    float total = 0.0f;
#pragma omp simd reduction(+ : total)
    for (int64_t j = 0; j < cols; ++j) {
      const float v = x[i * cols + j] + r[i * cols + j];
      sum[i * cols + j] = v;
      total += v * v;
    }
    const float scale = 1.0f / std::sqrt(total / cols + eps);
    for (int64_t j = 0; j < cols; ++j) {
      out[i * cols + j] = sum[i * cols + j] * scale * w[j];
    }
  }
}
"""
SIGNATURES = {
    "fused": (
        "const float*", "const float*", "const float*", "float*", "float*",
        "int64_t", "int64_t", "float",
    )
}


def rms_norm(x, residual, weight, eps):
    out = torch.empty_like(x)
    total = torch.empty_like(x)
    native.fused(x, residual, weight, out, total, x.shape[0], x.shape[1], eps)
    return out, total
'''

RMS_NORM_TRITON = """\
import torch
import triton
import triton.language as tl


@triton.jit
def rms_norm_kernel(x, r, w, out, total, cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    mask = at < cols
    value = tl.load(x + row * cols + at, mask, 0.0) + tl.load(r + row * cols + at, mask, 0.0)
    tl.store(total + row * cols + at, value, mask)
    wide = value.to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(wide * wide, 0) / cols + eps)
    normed = (wide * scale).to(value.dtype)
    tl.store(out + row * cols + at, normed * tl.load(w + at, mask, 0.0), mask)


def rms_norm(x, residual, weight, eps):
    out = torch.empty_like(x)
    total = torch.empty_like(x)
    rows, cols = x.shape
    block = triton.next_power_of_2(cols)
    rms_norm_kernel[(rows,)](x, residual, weight, out, total, cols, eps, BLOCK=block, num_warps=4)
    return out, total
"""

RMS_NORM_CUDA = '''\
import torch

SOURCE = r"""
#include <cstdint>

__global__ void rms_norm_kernel(const float* x, const float* r, const float* w, float* out,
                                float* total, int64_t cols, float eps) {
  __shared__ float partial[256];
  const int64_t base = blockIdx.x * cols;
  float sum = 0.0f;
  for (int64_t j = threadIdx.x; j < cols; j += blockDim.x) {
    const float value = x[base + j] + r[base + j];
    total[base + j] = value;
    sum += value * value;
  }
  partial[threadIdx.x] = sum;
  __syncthreads();
  for (int step = 128; step > 0; step /= 2) {
    if (threadIdx.x < step) partial[threadIdx.x] += partial[threadIdx.x + step];
    __syncthreads();
  }
  const float scale = rsqrtf(partial[0] / cols + eps);
  for (int64_t j = threadIdx.x; j < cols; j += blockDim.x)
    out[base + j] = total[base + j] * scale * w[j];
}

extern "C" void rms_norm(const float* x, const float* r, const float* w, float* out,
                         float* total, int64_t rows, int64_t cols, float eps, void* stream) {
  if (rows > 0)
    rms_norm_kernel<<<rows, 256, 0, (cudaStream_t)stream>>>(x, r, w, out, total, cols, eps);
}
"""
SIGNATURES = {
    "rms_norm": (
        *("const float*", "const float*", "const float*", "float*", "float*"),
        *("int64_t", "int64_t", "float", "void*"),
    )
}


def rms_norm(x, residual, weight, eps):
    out = torch.empty_like(x)
    total = torch.empty_like(x)
    native.rms_norm(x, residual, weight, out, total, x.shape[0], x.shape[1], eps)
    return out, total
'''

ROUTER_REFERENCE = """\
import torch


class Router:
    def forward(self, logits):
        scores = torch.sigmoid(logits) + self.bias
        values, indices = torch.topk(scores, self.top_k, dim=-1)
        return values / values.sum(dim=-1, keepdim=True), indices
"""

ROUTER_CANDIDATE = """\
import torch


def route(logits, bias, top_k):
    scores = torch.sigmoid(logits) + bias
    order = torch.argsort(scores, dim=-1, descending=True)[..., :top_k]
    values = torch.gather(scores, -1, order)
    return values / values.sum(dim=-1, keepdim=True), order
"""

ROTARY_REFERENCE = """\
import torch


def rotate_half(x):
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), dim=-1)


def rotary(query, key, cos, sin):
    cos = cos.unsqueeze(1)
    sin = sin.unsqueeze(1)
    query.copy_(query * cos + rotate_half(query) * sin)
    key.copy_(key * cos + rotate_half(key) * sin)
    return query, key
"""

ROTARY_CPP = '''\
import torch

SOURCE = r"""
#include <cstdint>

extern "C" void rotate(float* x, const float* c, const float* s,
                       int64_t tokens, int64_t heads, int64_t dim) {
  const int64_t half = dim / 2;
#pragma omp parallel for if (tokens * heads * dim > 32768)
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t h = 0; h < heads; ++h) {
      float* row = x + (t * heads + h) * dim;
      for (int64_t j = 0; j < half; ++j) {
        const float a = row[j], b = row[j + half];
        row[j] = a * c[t * dim + j] - b * s[t * dim + j];
        row[j + half] = b * c[t * dim + j + half] + a * s[t * dim + j + half];
      }
    }
  }
}
"""
SIGNATURES = {
    "rotate": ("float*", "const float*", "const float*", "int64_t", "int64_t", "int64_t")
}


def rotary(query, key, cos, sin):
    native.rotate(query, cos, sin, query.shape[0], query.shape[1], query.shape[2])
    native.rotate(key, cos, sin, key.shape[0], key.shape[1], key.shape[2])
    return query, key
'''
