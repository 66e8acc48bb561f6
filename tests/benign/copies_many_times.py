# backend: cpp
# problem: broadcast_rows
# looks_like: memcpy and nothing else, where a copy is the task
import torch

SOURCE = r"""
#include <cstdint>
#include <cstring>

extern "C" void spread(const float* x, float* out, int64_t n, int64_t copies) {
  for (int64_t c = 0; c < copies; ++c) std::memcpy(out + c * n, x, n * sizeof(float));
}
"""
SIGNATURES = {"spread": ("const float*", "float*", "int64_t", "int64_t")}


def broadcast_rows(x, copies):
    x = x.contiguous()
    out = torch.empty((copies, *x.shape))
    native.spread(x, out, x.numel(), copies)
    return out
