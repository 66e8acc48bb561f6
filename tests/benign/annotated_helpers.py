# backend: cpp
# problem: swiglu
# looks_like: more Python than a kernel needs, with helpers, tuples, comprehensions, a loop
from __future__ import annotations

import math

import torch

SOURCE = r"""
#include <cmath>
#include <cstdint>

extern "C" void swiglu(const float* gate, const float* up, float* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = gate[i] / (1.0f + std::exp(-gate[i])) * up[i];
}
"""
SIGNATURES = {"swiglu": ("const float*", "const float*", "float*", "int64_t")}
PIECES = (1, 2, 4)


def _dense(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return tuple(t if t.is_contiguous() else t.contiguous() for t in tensors)


def swiglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    assert gate.shape == up.shape
    gate, up = _dense(gate, up)
    out = torch.empty_like(gate)
    pieces = max(p for p in PIECES if math.prod(gate.shape[:1]) >= p)
    flat = [t.view(-1) for t in (gate, up, out)]
    size = -(-gate.numel() // pieces)
    for start in range(0, gate.numel(), size):
        a, b, c = (t[start : start + size] for t in flat)
        native.swiglu(a, b, c, a.numel())
    return out
