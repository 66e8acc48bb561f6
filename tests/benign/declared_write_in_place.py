# backend: cpp
# problem: residual_add
# looks_like: a forbidden change of the input, which the contract asks for
import torch

SOURCE = r"""
#include <cmath>
#include <cstdint>

extern "C" void add(float* hidden, const float* residual, float scale, int64_t rows, int64_t cols,
                    int64_t hidden_step, int64_t residual_step) {
#pragma omp parallel for if (rows * cols > 65536)
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < cols; ++j)
      hidden[i * hidden_step + j] =
          std::fma(scale, residual[i * residual_step + j], hidden[i * hidden_step + j]);
}
"""
SIGNATURES = {
    "add": ("float*", "const float*", "float", "int64_t", "int64_t", "int64_t", "int64_t")
}


def residual_add(hidden, residual, scale):
    rows, cols = hidden.shape
    native.add(hidden, residual, scale, rows, cols, hidden.stride(0), residual.stride(0))
    return hidden
