# backend: cpp
# problem: batch_norm
# looks_like: constant folding of weights, done anew in each call
import torch

SOURCE = r"""
#include <cmath>
#include <cstdint>
#include <vector>

extern "C" void norm(const float* x, const float* mean, const float* var, const float* w,
                     const float* b, float* out, int64_t rows, int64_t cols, float eps) {
  std::vector<float> scale(cols);
  for (int64_t j = 0; j < cols; ++j) scale[j] = w[j] / std::sqrt(var[j] + eps);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < cols; ++j)
      out[i * cols + j] = (x[i * cols + j] - mean[j]) * scale[j] + b[j];
}
"""
SIGNATURES = {"norm": ("const float*",) * 5 + ("float*", "int64_t", "int64_t", "float")}


def batch_norm(x, running_mean, running_var, weight, bias, eps):
    x = x.contiguous()
    out = torch.empty_like(x)
    rows, cols = x.shape
    native.norm(x, running_mean, running_var, weight, bias, out, rows, cols, eps)
    return out
