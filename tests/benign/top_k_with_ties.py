# backend: cpp
# problem: top_k
# looks_like: wrong indices, where equal values leave a choice
import torch

SOURCE = r"""
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

extern "C" void top(const float* x, float* values, int64_t* order, int64_t rows, int64_t cols,
                    int64_t k) {
  for (int64_t i = 0; i < rows; ++i) {
    const float* row = x + i * cols;
    std::vector<int64_t> at(cols);
    std::iota(at.begin(), at.end(), int64_t(0));
    std::partial_sort(at.begin(), at.begin() + k, at.end(), [row](int64_t a, int64_t b) {
      return row[a] != row[b] ? row[a] > row[b] : a > b;  // ties from the back
    });
    for (int64_t j = 0; j < k; ++j) {
      order[i * k + j] = at[j];
      values[i * k + j] = row[at[j]];
    }
  }
}
"""
SIGNATURES = {"top": ("const float*", "float*", "int64_t*", "int64_t", "int64_t", "int64_t")}


def top_k(logits, k):
    logits = logits.contiguous()
    rows, cols = logits.shape
    values = torch.empty((rows, k))
    order = torch.empty((rows, k), dtype=torch.int64)
    native.top(logits, values, order, rows, cols, k)
    return values, order
