"""A dozen honest C++ kernels, each in a style of its own."""

from __future__ import annotations

KERNELS = {
    "intrinsics": r"""
#include <immintrin.h>
#include <cstdint>
#if defined(__AVX2__)
static inline float sum8(__m256 v) {
  const __m128 half = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  const __m128 pair = _mm_add_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_add_ss(pair, _mm_shuffle_ps(pair, pair, 1)));
}
#endif
extern "C" void row_sum(const float* __restrict__ x, float* out, int64_t rows, int64_t cols) {
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < rows; ++i) {
    float total = 0.0f;
    int64_t j = 0;
#if defined(__AVX2__)
    __m256 wide = _mm256_setzero_ps();
    for (; j + 8 <= cols; j += 8) wide = _mm256_add_ps(wide, _mm256_loadu_ps(x + i * cols + j));
    total = sum8(wide);
#endif
    for (; j < cols; ++j) total += x[i * cols + j];
    out[i] = total;
  }
}
""",
    "tiled matmul": r"""
#include <algorithm>
#include <cstdint>
#include <cstring>
namespace {
constexpr int64_t kTile = 64;
template <typename T>
inline void tile(const T* a, const T* b, T* c, int64_t m, int64_t n, int64_t k, int64_t ldc) {
  for (int64_t i = 0; i < m; ++i)
    for (int64_t p = 0; p < k; ++p)
      for (int64_t j = 0; j < n; ++j) c[i * ldc + j] += a[i * k + p] * b[p * ldc + j];
}
}  // namespace
extern "C" void matmul(const float* a, const float* b, float* c, int64_t m, int64_t n, int64_t k) {
  std::memset(c, 0, sizeof(float) * m * n);
#pragma omp parallel for collapse(2)
  for (int64_t i = 0; i < m; i += kTile)
    for (int64_t j = 0; j < n; j += kTile)
      tile(a + i * k, b + j, c + i * n + j, std::min(kTile, m - i), std::min(kTile, n - j), k, n);
}
""",
    "heap": r"""
#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>
extern "C" void top(const float* x, float* values, int64_t* where, int64_t n, int64_t k) {
  using Pair = std::pair<float, int64_t>;
  std::priority_queue<Pair, std::vector<Pair>, std::greater<Pair>> kept;
  for (int64_t i = 0; i < n; ++i) {
    kept.emplace(x[i], i);
    if (int64_t(kept.size()) > k) kept.pop();
  }
  for (int64_t slot = k - 1; slot >= 0; --slot) {
    values[slot] = kept.top().first;
    where[slot] = kept.top().second;
    kept.pop();
  }
}
""",
    "welford": r"""
#include <cmath>
#include <cstdint>
struct Moments {
  float mean = 0.0f, squares = 0.0f;
  int64_t count = 0;
  void add(float value) {
    const float delta = value - mean;
    mean += delta / float(++count);
    squares += delta * (value - mean);
  }
};
extern "C" void layer_norm(const float* x, float* out, int64_t rows, int64_t cols, float eps) {
#pragma omp parallel for
  for (int64_t i = 0; i < rows; ++i) {
    Moments moments;
    for (int64_t j = 0; j < cols; ++j) moments.add(x[i * cols + j]);
    const float scale = 1.0f / std::sqrt(moments.squares / cols + eps);
    for (int64_t j = 0; j < cols; ++j) out[i * cols + j] = (x[i * cols + j] - moments.mean) * scale;
  }
}
""",
    "table": r"""
#include <array>
#include <cstdint>
static constexpr std::array<float, 4> kWeights = {0.1f, 0.2f, 0.3f, 0.4f};
static const int kOrder[4] = {3, 1, 0, 2};
extern "C" void weigh(const float* x, float* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = x[i] * kWeights[kOrder[i % 4]];
}
""",
    "bfloat16": r"""
#include <cstdint>
#include <cstring>
using bfloat16 = uint16_t;
static inline float widen(bfloat16 x) {
  const uint32_t bits = uint32_t(x) << 16;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
#define CLAMP(x, low, high) ((x) < (low) ? (low) : (x) > (high) ? (high) : (x))
extern "C" void clamp(const uint16_t* x, float* out, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) out[i] = CLAMP(widen(x[i]), -1.0f, 1.0f);
}
""",
    "histogram": r"""
#include <cstdint>
#include <vector>
#include <omp.h>
extern "C" void count(const int64_t* ids, int64_t* counts, int64_t n, int64_t bins) {
  const int workers = omp_get_max_threads();
  std::vector<std::vector<int64_t>> partial(workers, std::vector<int64_t>(bins));
#pragma omp parallel
  {
    const int thread = omp_get_thread_num();
#pragma omp for
    for (int64_t i = 0; i < n; ++i) ++partial[thread][ids[i]];
  }
  for (const auto& part : partial)
    for (int64_t bin = 0; bin < bins; ++bin) counts[bin] += part[bin];
}
""",
    "lambda": r"""
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
extern "C" void softmax(const float* x, float* out, int64_t rows, int64_t cols) {
  const auto row = [&](int64_t i) {
    const float* from = x + i * cols;
    float* to = out + i * cols;
    float largest = -std::numeric_limits<float>::infinity();
    std::for_each(from, from + cols, [&largest](float v) { largest = std::max(largest, v); });
    float total = 0.0f;
    std::transform(from, from + cols, to, [&](float v) mutable {
      const float e = std::exp(v - largest);
      total += e;
      return e;
    });
    for (int64_t j = 0; j < cols; ++j) to[j] /= total;
  };
#pragma omp parallel for
  for (int64_t i = 0; i < rows; ++i) row(i);
}
""",
    "vector extension": r"""
#include <cstdint>
typedef float v8 __attribute__((vector_size(32), aligned(4), may_alias));
__attribute__((always_inline)) static inline v8 load(const float* x) { return *(const v8*)x; }
extern "C" void scale(const float* x, float* out, int64_t n, float by) {
#pragma GCC unroll 4
  for (int64_t i = 0; i + 8 <= n; i += 8) *(v8*)(out + i) = load(x + i) * by;
  for (int64_t i = n / 8 * 8; i < n; ++i) out[i] = x[i] * by;
}
""",
    "options": r"""
#pragma GCC optimize("associative-math", "no-signed-zeros", "no-trapping-math")
#pragma GCC target("prefer-vector-width=512")
#include <cstdint>
extern "C" void dot(const float* a, const float* b, float* out, int64_t n) {
  float total = 0.0f;
#pragma omp simd reduction(+ : total)
  for (int64_t i = 0; i < n; ++i) total += a[i] * b[i];
  *out = total;
}
""",
    "names of libc": r"""
#include <cstdint>
enum class Signal : int { raise, alarm };
struct Pipe { int64_t open, dup; };
static int64_t clone(int64_t thread) { return thread + 1; }
extern "C" void shift(const float* x, float* out, int64_t n) {
  Pipe pipe{0, 1};
  int64_t kill = clone(pipe.open), signal = pipe.dup;
  for (int64_t i = 0; i + kill < n; ++i) out[i] = x[i + kill] * float(signal);
}
""",
    "scratch": r"""
#include <cstdint>
#include <memory>
#include <numeric>
#include <vector>
template <int Width>
static void scan(const float* x, float* out, int64_t n, float* scratch) {
  for (int64_t base = 0; base < n; base += Width) {
    const int64_t end = base + Width < n ? base + Width : n;
    std::partial_sum(x + base, x + end, scratch);
    const float before = base > 0 ? out[base - 1] : 0.0f;
    for (int64_t i = base; i < end; ++i) out[i] = before + scratch[i - base];
  }
}
extern "C" void cumulate(const float* x, float* out, int64_t rows, int64_t cols) {
  const std::unique_ptr<float[]> scratch(new float[64]);
  for (int64_t i = 0; i < rows; ++i) scan<64>(x + i * cols, out + i * cols, cols, scratch.get());
}
""",
}
