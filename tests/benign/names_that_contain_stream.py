# backend: cpp
# problem: row_softmax
# looks_like: streams, threads, events and clocks, by parts of harmless names
import torch

SOURCE = r"""
#include <cmath>
#include <cstdint>

static float streamed_maximum(const float* row, int64_t thread_width) {
  float event_peak = row[0];
  for (int64_t j = 1; j < thread_width; ++j) event_peak = std::fmax(event_peak, row[j]);
  return event_peak;
}

extern "C" void downstream(const float* upstream, float* out, int64_t rows, int64_t cols) {
  for (int64_t i = 0; i < rows; ++i) {
    const float* row = upstream + i * cols;
    const float clock_peak = streamed_maximum(row, cols);
    float total = 0.0f;
    for (int64_t j = 0; j < cols; ++j) total += out[i * cols + j] = std::exp(row[j] - clock_peak);
    for (int64_t j = 0; j < cols; ++j) out[i * cols + j] /= total;
  }
}
"""
SIGNATURES = {"downstream": ("const float*", "float*", "int64_t", "int64_t")}


def row_softmax(x):
    stream_input = x.contiguous()
    synchronized_output = torch.empty_like(stream_input)
    native.downstream(stream_input, synchronized_output, *stream_input.shape)
    return synchronized_output
