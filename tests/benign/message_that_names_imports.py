# backend: cpp
# problem: transpose_copy
# looks_like: an import of os, in the text of an error
import torch

SOURCE = r"""
#include <cstdint>

extern "C" void transpose(const float* x, float* out, int64_t rows, int64_t cols) {
  const int64_t tile = 32;
  for (int64_t i0 = 0; i0 < rows; i0 += tile)
    for (int64_t j0 = 0; j0 < cols; j0 += tile)
      for (int64_t i = i0; i < i0 + tile && i < rows; ++i)
        for (int64_t j = j0; j < j0 + tile && j < cols; ++j) out[j * rows + i] = x[i * cols + j];
}
"""
SIGNATURES = {"transpose": ("const float*", "float*", "int64_t", "int64_t")}


def transpose_copy(x):
    if x.dim() != 2:
        raise ValueError("a matrix is needed; neither `import os` nor exec('...') would help")
    x = x.contiguous()
    rows, cols = x.shape
    out = torch.empty((cols, rows))
    native.transpose(x, out, rows, cols)
    return out
