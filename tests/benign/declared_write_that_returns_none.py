# backend: cpp
# problem: scatter_rows
# looks_like: a function without a result
import torch

SOURCE = r"""
#include <cstdint>

extern "C" void scatter(float* cache, const float* values, const int64_t* slots, float scale,
                        int64_t rows, int64_t cols, int64_t step) {
  for (int64_t i = 0; i < rows; ++i) {
    float* to = cache + slots[i] * step;
    const float* from = values + i * cols;
    for (int64_t j = 0; j < cols; ++j) to[j] = from[j] * scale;
  }
}
"""
SIGNATURES = {
    "scatter": ("float*", "const float*", "const int64_t*", "float", *["int64_t"] * 3)
}


def scatter_rows(cache, values, slots, scale):
    rows, cols = values.shape
    native.scatter(cache, values, slots, scale, rows, cols, cache.stride(0))
