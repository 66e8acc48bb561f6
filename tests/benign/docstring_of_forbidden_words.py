# backend: cpp
# problem: residual_add
# looks_like: code that runs text, in a docstring that only talks about it
"""Adds in place. No eval, no exec, no open(), no torch.cuda.Stream, no time.perf_counter.

    import os; os._exit(0)  # an example of what this module does not do; pass
"""

import torch

SOURCE = r"""
#include <cstdint>

// system("rm"), dlopen and asm("nop") stand here as words; std::thread too.
extern "C" void add(float* hidden, const float* residual, float scale, int64_t rows, int64_t cols,
                    int64_t hidden_step, int64_t residual_step) {
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < cols; ++j)
      hidden[i * hidden_step + j] += scale * residual[i * residual_step + j];
}
"""
SIGNATURES = {
    "add": ("float*", "const float*", "float", "int64_t", "int64_t", "int64_t", "int64_t")
}


def residual_add(hidden, residual, scale):
    """Write ``hidden + residual * scale`` over ``hidden``; pass it on."""
    rows, cols = hidden.shape
    native.add(
        hidden, residual, scale, rows, cols, hidden.stride(0), residual.stride(0)
    )
    return hidden
