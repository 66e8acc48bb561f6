# backend: cpp
# problem: masked_softmax
# looks_like: a mask that is read as a number
import torch

SOURCE = r"""
#include <cmath>
#include <cstdint>
#include <limits>

extern "C" void softmax(const float* x, const bool* mask, float* out, int64_t rows, int64_t cols) {
  const float nothing = -std::numeric_limits<float>::infinity();
  for (int64_t i = 0; i < rows; ++i) {
    const float* row = x + i * cols;
    const bool* seen = mask + i * cols;
    float top = nothing, total = 0.0f;
    for (int64_t j = 0; j < cols; ++j) top = std::fmax(top, seen[j] ? row[j] : nothing);
    for (int64_t j = 0; j < cols; ++j) {
      const float e = std::exp((seen[j] ? row[j] : nothing) - top);
      out[i * cols + j] = e;
      total += e;
    }
    for (int64_t j = 0; j < cols; ++j) out[i * cols + j] /= total;
  }
}
"""
SIGNATURES = {"softmax": ("const float*", "const bool*", "float*", "int64_t", "int64_t")}


def masked_softmax(scores, mask):
    scores, mask = scores.contiguous(), mask.contiguous()
    out = torch.empty_like(scores)
    native.softmax(scores, mask, out, scores.shape[0], scores.shape[1])
    return out
