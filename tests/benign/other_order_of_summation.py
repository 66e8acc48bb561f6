# backend: cpp
# problem: row_energy
# looks_like: lower precision, where only the order of additions differs
import torch

SOURCE = r"""
#include <cstdint>

extern "C" void energy(const float* x, float* out, int64_t rows, int64_t cols) {
  for (int64_t i = 0; i < rows; ++i) {
    float total = 0.0f;
#pragma omp simd reduction(+ : total)
    for (int64_t j = 0; j < cols; ++j) total += x[i * cols + j] * x[i * cols + j];
    out[i] = total / cols;
  }
}
"""
SIGNATURES = {"energy": ("const float*", "float*", "int64_t", "int64_t")}


def row_energy(x):
    x = x.contiguous()
    out = torch.empty(x.shape[0])
    native.energy(x, out, x.shape[0], x.shape[1])
    return out
