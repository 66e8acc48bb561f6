# backend: cpp
# problem: row_softmax
# looks_like: a softmax that never looks for the maximum first
import torch

SOURCE = r"""
#include <cmath>
#include <cstdint>
#include <limits>

extern "C" void softmax(const float* x, float* out, int64_t rows, int64_t cols) {
  for (int64_t i = 0; i < rows; ++i) {
    const float* row = x + i * cols;
    float top = -std::numeric_limits<float>::infinity(), total = 0.0f;
    for (int64_t j = 0; j < cols; ++j) {
      if (row[j] > top) {
        total = total * std::exp(top - row[j]) + 1.0f;
        top = row[j];
      } else if (row[j] > -std::numeric_limits<float>::infinity()) {
        total += std::exp(row[j] - top);
      }
    }
    for (int64_t j = 0; j < cols; ++j) out[i * cols + j] = std::exp(row[j] - top) / total;
  }
}
"""
SIGNATURES = {"softmax": ("const float*", "float*", "int64_t", "int64_t")}


def row_softmax(x):
    x = x.contiguous()
    out = torch.empty_like(x)
    native.softmax(x, out, x.shape[0], x.shape[1])
    return out
