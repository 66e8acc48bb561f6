# backend: cuda
# problem: swiglu
# looks_like: a stream handled in C++, which is the one it was given
# gpu: true
import torch

SOURCE = r"""
#include <cstdint>
#include <cuda_runtime.h>

__global__ void swiglu_kernel(const float* gate, const float* up, float* out, int64_t n) {
  const int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  if (i < n) out[i] = gate[i] / (1.0f + expf(-gate[i])) * up[i];
}

extern "C" void swiglu(const float* gate, const float* up, float* out, int64_t n, void* stream) {
  swiglu_kernel<<<(n + 255) / 256, 256, 0, (cudaStream_t)stream>>>(gate, up, out, n);
}
"""
SIGNATURES = {"swiglu": ("const float*", "const float*", "float*", "int64_t", "void*")}


def swiglu(gate, up):
    gate, up = gate.contiguous(), up.contiguous()
    out = torch.empty_like(gate)
    native.swiglu(gate, up, out, gate.numel())
    return out
