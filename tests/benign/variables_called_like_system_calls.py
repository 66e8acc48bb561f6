# backend: cpp
# problem: rms_norm
# looks_like: system calls, by the names of local variables
import torch

SOURCE = r"""
#include <cmath>
#include <cstdint>

struct Row { const float* signal; int64_t system; };

extern "C" void norm(const float* x, const float* w, float* out, int64_t rows, int64_t cols,
                     int64_t step, float eps) {
  for (int64_t i = 0; i < rows; ++i) {
    const Row row{x + i * step, cols};
    const float* signal = row.signal;
    float clone = 0.0f;
    for (int64_t j = 0; j < row.system; ++j) clone += signal[j] * signal[j];
    const float kill = 1.0f / std::sqrt(clone / cols + eps);
    for (int64_t j = 0; j < cols; ++j) out[i * cols + j] = signal[j] * kill * w[j];
  }
}
"""
SIGNATURES = {
    "norm": ("const float*", "const float*", "float*", "int64_t", "int64_t", "int64_t", "float")
}


def rms_norm(x, weight, eps):
    rows, cols = x.shape
    out = torch.empty((rows, cols))
    native.norm(x, weight, out, rows, cols, x.stride(0), eps)
    return out
