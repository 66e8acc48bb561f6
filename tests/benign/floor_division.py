# backend: cpp
# problem: row_energy
# looks_like: a comment of C++ in the midst of Python
import torch

SOURCE = r"""
#include <cstdint>

extern "C" void energy(const float* x, float* out, int64_t rows, int64_t cols, int64_t half) {
  for (int64_t i = 0; i < rows; ++i) {
    double first = 0.0, second = 0.0;
    for (int64_t j = 0; j < half; ++j) first += double(x[i * cols + j]) * x[i * cols + j];
    for (int64_t j = half; j < cols; ++j) second += double(x[i * cols + j]) * x[i * cols + j];
    out[i] = float((first + second) / cols);
  }
}
"""
SIGNATURES = {"energy": ("const float*", "float*", "int64_t", "int64_t", "int64_t")}


def row_energy(x):
    rows, cols = x.shape
    half = cols // 2  # the seam between the two sums
    x, out = x.contiguous(), torch.empty(rows)
    native.energy(x, out, rows, cols, half)
    return out
