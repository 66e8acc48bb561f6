# backend: cpp
# problem: wide_mean
# looks_like: a fast path for the shapes that were shown, where both paths are right
import torch

SOURCE = r"""
#include <cstdint>

extern "C" void mean_of_many(const float* x, float* out, int64_t rows, int64_t cols) {
  for (int64_t i = 0; i < rows; ++i) {
    double lanes[16] = {};
    int64_t j = 0;
    for (; j + 16 <= cols; j += 16)
      for (int k = 0; k < 16; ++k) lanes[k] += x[i * cols + j + k];
    double total = 0.0;
    for (; j < cols; ++j) total += x[i * cols + j];
    for (double lane : lanes) total += lane;
    out[i] = float(total / cols);
  }
}

extern "C" void mean_of_few(const float* x, float* out, int64_t rows, int64_t cols) {
  for (int64_t i = 0; i < rows; ++i) {
    double total = 0.0;
    for (int64_t j = 0; j < cols; ++j) total += x[i * cols + j];
    out[i] = float(total / cols);
  }
}
"""
SIGNATURES = {
    "mean_of_many": ("const float*", "float*", "int64_t", "int64_t"),
    "mean_of_few": ("const float*", "float*", "int64_t", "int64_t"),
}
MANY = 1024


def wide_mean(x):
    x = x.contiguous()
    rows, cols = x.shape
    out = torch.empty(rows)
    if cols >= MANY:
        native.mean_of_many(x, out, rows, cols)
    else:
        native.mean_of_few(x, out, rows, cols)
    return out
