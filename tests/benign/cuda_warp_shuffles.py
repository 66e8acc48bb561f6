# backend: cuda
# problem: row_energy
# looks_like: intrinsics that only a kernel knows
# gpu: true
import torch

SOURCE = r"""
#include <cstdint>
#include <cuda_runtime.h>

__global__ void energy_kernel(const float* x, float* out, int64_t cols) {
  __shared__ float totals[32];
  float total = 0.0f;
  for (int64_t j = threadIdx.x; j < cols; j += blockDim.x) {
    const float v = x[blockIdx.x * cols + j];
    total += v * v;
  }
  for (int step = 16; step; step >>= 1) total += __shfl_down_sync(0xffffffffu, total, step);
  if (threadIdx.x % 32 == 0) totals[threadIdx.x / 32] = total;
  __syncthreads();
  if (threadIdx.x == 0) {
    float all = 0.0f;
    for (int w = 0; w < int(blockDim.x) / 32; ++w) all += totals[w];
    out[blockIdx.x] = all / cols;
  }
}

extern "C" void energy(const float* x, float* out, int64_t rows, int64_t cols, void* stream) {
  energy_kernel<<<rows, 256, 0, (cudaStream_t)stream>>>(x, out, cols);
}
"""
SIGNATURES = {"energy": ("const float*", "float*", "int64_t", "int64_t", "void*")}


def row_energy(x):
    x = x.contiguous()
    out = torch.empty(x.shape[0], device=x.device)
    native.energy(x, out, x.shape[0], x.shape[1])
    return out
