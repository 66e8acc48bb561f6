# backend: cpp
# problem: linear
# looks_like: a cache of transformed weights, which lives no longer than the call
import torch

SOURCE = r"""
#include <cstdint>
#include <vector>

extern "C" void linear(const float* x, const float* w, const float* b, float* out, int64_t rows,
                       int64_t inner, int64_t cols) {
  std::vector<float> packed(inner * cols);
  for (int64_t j = 0; j < cols; ++j)
    for (int64_t k = 0; k < inner; ++k) packed[k * cols + j] = w[j * inner + k];
#pragma omp parallel for
  for (int64_t i = 0; i < rows; ++i) {
    float* row = out + i * cols;
    for (int64_t j = 0; j < cols; ++j) row[j] = b[j];
    for (int64_t k = 0; k < inner; ++k) {
      const float v = x[i * inner + k];
      for (int64_t j = 0; j < cols; ++j) row[j] += v * packed[k * cols + j];
    }
  }
}
"""
SIGNATURES = {
    "linear": ("const float*", "const float*", "const float*", "float*") + ("int64_t",) * 3
}


def linear(x, weight, bias):
    x, weight = x.contiguous(), weight.contiguous()
    out = torch.empty(x.shape[0], weight.shape[0])
    native.linear(x, weight, bias.contiguous(), out, x.shape[0], x.shape[1], weight.shape[0])
    return out
