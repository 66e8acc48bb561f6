"""The C++ helpers themselves, compiled and compared with torch."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest
import torch

from evaluator.backends.cpp import CppBackend
from evaluator.worker.native import compile_and_bind
from evolver.proposers.compiler.emitter.cpp_prelude import with_prelude

pytestmark = pytest.mark.real

FUNCTIONS = """
extern "C" void exponentials(const float* x, float* out, int64_t n) {
    #pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
        out[i] = fast_exp(x[i]);
    }
}
extern "C" void tangents(const float* x, float* out, int64_t n) {
    #pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
        out[i] = fast_tanh(x[i]);
    }
}
extern "C" void rounded(const float* x, bfloat16* out, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
        out[i] = to_bfloat16(x[i]);
    }
}
extern "C" void largest(const float* x, float* out, int64_t n) {
    float largest = -std::numeric_limits<float>::infinity();
    #pragma omp simd reduction(max_nan:largest)
    for (int64_t i = 0; i < n; ++i) {
        largest = max_propagate_nan(largest, x[i]);
    }
    out[0] = largest;
}
extern "C" void top(const float* x, float* values, int64_t* indices, int64_t rows, int64_t n) {
    for (int64_t row = 0; row < rows; ++row) {
        top_k<5>(x + row * n, n, values + row * 5, indices + row * 5);
    }
}
extern "C" void divided(const int64_t* a, const int64_t* b, int64_t* out, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
        out[i] = floor_divide(a[i], b[i]);
    }
}
"""

SIGNATURES = {
    "exponentials": ("const float*", "float*", "int64_t"),
    "tangents": ("const float*", "float*", "int64_t"),
    "rounded": ("const float*", "uint16_t*", "int64_t"),
    "largest": ("const float*", "float*", "int64_t"),
    "top": ("const float*", "float*", "int64_t*", "int64_t", "int64_t"),
    "divided": ("const int64_t*", "const int64_t*", "int64_t*", "int64_t"),
}
EXTREMES = torch.tensor([torch.nan, torch.inf, -torch.inf, 0.0, -0.0, 200.0, -200.0, 88.7, 88.8])


@pytest.fixture(scope="module")
def native() -> Any:
    source, build = with_prelude(FUNCTIONS), asdict(CppBackend().build)
    library, _ = compile_and_bind(source, SIGNATURES, build, timeout_seconds=60)
    return library


def ulps(actual: torch.Tensor, exact: torch.Tensor) -> float:
    """Largest error in units in the last place of float32."""
    rounded = exact.float()
    unit = torch.nextafter(rounded.abs(), torch.tensor(torch.inf)) - rounded.abs()
    return float(((actual.double() - exact).abs() / unit.double()).max())


def test_exp_is_within_two_ulps_over_its_range(native: Any) -> None:
    x = torch.linspace(-103.9, 88.7, 400_001)
    out = torch.empty_like(x)
    native.exponentials(x, out, x.numel())
    assert ulps(out, x.double().exp()) <= 2.0


def test_exp_of_extremes_is_libms(native: Any) -> None:
    out = torch.empty_like(EXTREMES)
    native.exponentials(EXTREMES, out, EXTREMES.numel())
    torch.testing.assert_close(out, EXTREMES.exp(), equal_nan=True)


def test_tanh_is_within_three_ulps_and_odd(native: Any) -> None:
    x = torch.cat([torch.linspace(-12, 12, 400_001), torch.tensor([1e-20, -1e-20, 1e-3])])
    out = torch.empty_like(x)
    native.tangents(x, out, x.numel())
    assert ulps(out, x.double().tanh()) <= 3.0
    native.tangents(EXTREMES, out, EXTREMES.numel())
    torch.testing.assert_close(out[: EXTREMES.numel()], EXTREMES.tanh(), equal_nan=True)


def test_bfloat16_rounds_as_torch_does(native: Any) -> None:
    ties = torch.tensor([1.00390625, 1.01171875, 3.4e38, 1e-40, -1e-45])
    x = torch.cat([torch.randn(10_000), ties, EXTREMES])
    out = torch.empty(x.numel(), dtype=torch.bfloat16)
    native.rounded(x, out, x.numel())
    torch.testing.assert_close(out, x.bfloat16(), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("place", [0, 17, 99])
def test_a_nan_wins_a_maximum_wherever_it_stands(native: Any, place: int) -> None:
    x, out = torch.randn(100), torch.empty(1)
    native.largest(x, out, 100)
    assert out.item() == x.max().item()
    x[place] = torch.nan
    native.largest(x, out, 100)
    assert out.isnan().item()


@pytest.mark.parametrize("length", [5, 6, 21, 64, 257])
def test_top_k_selects_torchs_values_at_distinct_places(native: Any, length: int) -> None:
    random = torch.randn(20, length)
    ties = torch.randint(0, 3, (20, length)).float()
    infinite = torch.full((2, length), -torch.inf)
    with_nan = torch.randn(3, length)
    with_nan[0, 0] = with_nan[1, -1] = with_nan[2, length // 2] = torch.nan
    x = torch.cat([random, ties, infinite, with_nan])
    values, indices = torch.empty(len(x), 5), torch.empty(len(x), 5, dtype=torch.int64)
    native.top(x, values, indices, len(x), length)
    torch.testing.assert_close(values, x.topk(5).values, rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(x.gather(1, indices), values, rtol=0, atol=0, equal_nan=True)
    assert all(len(set(row)) == 5 for row in indices.tolist())


def test_floor_division_rounds_down_for_all_signs(native: Any) -> None:
    a = torch.arange(-9, 10).repeat_interleave(4)
    b = torch.tensor([-4, -1, 3, 5]).repeat(19)
    out = torch.empty_like(a)
    native.divided(a, b, out, a.numel())
    assert torch.equal(out, torch.div(a, b, rounding_mode="floor"))
