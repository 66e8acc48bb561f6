# backend: cpp
# problem: swiglu
# looks_like: the reference itself, which is no faster and no cheat
import torch

SOURCE = r"""
#include <cstdint>

extern "C" void multiply(const float* a, const float* b, float* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = a[i] * b[i];
}
"""
SIGNATURES = {"multiply": ("const float*", "const float*", "float*", "int64_t")}


def swiglu(gate, up):
    gated = (gate * torch.sigmoid(gate)).contiguous()
    out = torch.empty_like(gated)
    native.multiply(gated, up.contiguous(), out, out.numel())
    return out
