# backend: cpp
# problem: clamp
# looks_like: preprocessor tricks, in ordinary C++
import torch

SOURCE = r"""
#include <algorithm>
#include <array>
#include <cstdint>

#define ROUND_UP(value, to) (((value) + (to) - 1) / (to) * (to))
#if defined(__AVX2__)
#define LANES 8
#else
#define LANES 4
#endif

static constexpr std::array<int64_t, 4> kBlocks = {64, 256, 1024, 4096};

template <typename T>
static inline __attribute__((always_inline)) T bound(T value, T low, T high) {
  // NaN passes through both comparisons, as it does in the reference.
  value = value < low ? low : value;
  return value > high ? high : value;
}

extern "C" void clamp(const float* __restrict x, float* __restrict out, int64_t n, float low,
                      float high) {
  auto block = kBlocks[2];
  auto body = [&](int64_t from, int64_t to) {
#pragma omp simd
    for (int64_t i = from; i < to; ++i) out[i] = bound<float>(x[i], low, high);
  };
  for (int64_t i = 0; i < ROUND_UP(n, LANES); i += block) body(i, std::min(i + block, n));
}
"""
SIGNATURES = {"clamp": ("const float*", "float*", "int64_t", "float", "float")}


def clamp(x, low, high):
    x = x.contiguous()
    out = torch.empty_like(x)
    native.clamp(x, out, x.numel(), low, high)
    return out
