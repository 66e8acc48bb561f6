"""Small C++ helpers that a cleaned kernel may need; a module gets only those it uses."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Helper:
    """A helper and the names that call for it."""

    code: str
    names: tuple[str, ...]


_BFLOAT16 = """\
// The upper half of a float. A struct would be tidier, but loops over it do not vectorise.
using bfloat16 = uint16_t;
inline float to_float(bfloat16 x) {
    const uint32_t bits = uint32_t(x) << 16;
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}
"""

_TO_BFLOAT16 = """\
// Rounded to nearest even, as torch does.
inline bfloat16 to_bfloat16(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    return value != value ? bfloat16(0x7fc0) : bfloat16(rounded);
}
"""

_HALF = "using half = _Float16;\n"

_MAX_NAN = """\
// A NaN on either side wins, as in torch.
template <typename T>
inline T max_propagate_nan(T a, T b) {
    return (b > a || b != b) ? b : a;
}
"""

_MIN_NAN = """\
// A NaN on either side wins, as in torch.
template <typename T>
inline T min_propagate_nan(T a, T b) {
    return (b < a || b != b) ? b : a;
}
"""

_REDUCTION = """\
#pragma omp declare reduction({0}_nan : float, double, int64_t, int32_t : \\
    omp_out = {0}_propagate_nan(omp_out, omp_in)) initializer(omp_priv = omp_orig)
"""

_INDEX_VALUE = """\
// A value and where it was found; the first of equal values stays, a NaN wins.
template <typename T>
struct IndexValue {
    int64_t index;
    T value;
};
"""

_ARG = """\
template <typename T>
inline IndexValue<T> arg{0}_combine(IndexValue<T> best, T value, int64_t index) {{
    const bool is_first_nan = value != value && best.value == best.value;
    return value {1} best.value || is_first_nan ? IndexValue<T>{{index, value}} : best;
}}
"""

_ATOMIC_ADD = """\
template <typename T>
inline void atomic_add(T* place, T value) {
    #pragma omp atomic
    *place += value;
}
"""

_FLOOR_DIVIDE = """\
inline int64_t floor_divide(int64_t a, int64_t b) {
    const int64_t quotient = a / b;
    return quotient * b != a && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}
"""

_FAST_EXP = """\
// exp within 2 ulp, without a branch, so that loops over it vectorise. Overflows to
// infinity, underflows through the subnormal numbers to zero, keeps NaN.
inline float fast_exp(float x) {
    const float low = x < -104.0f ? -104.0f : x;
    const float bounded = low > 89.0f ? 89.0f : low;
    const float n = std::nearbyint(bounded * 1.44269504f);
    const float r = (bounded - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    const float mantissa = p * r * r + r + 1.0f;
    // 2^n in two factors, since n may lie outside the exponents of normal numbers.
    const int32_t whole = int32_t(n);
    const int32_t half_way = whole >> 1;
    const int32_t first = (half_way + 127) << 23;
    const int32_t second = (whole - half_way + 127) << 23;
    float scale1, scale2;
    std::memcpy(&scale1, &first, sizeof scale1);
    std::memcpy(&scale2, &second, sizeof scale2);
    return mantissa * scale1 * scale2;
}
inline double fast_exp(double x) { return std::exp(x); }
"""

_FAST_TANH = """\
// tanh within 3 ulp, without a branch: a polynomial near zero, else by exp.
inline float fast_tanh(float x) {
    const float size = std::fabs(x);
    const float square = x * x;
    float p = -5.70498872745e-3f;
    p = p * square + 2.06390887954e-2f;
    p = p * square - 5.37397155531e-2f;
    p = p * square + 1.33314422036e-1f;
    p = p * square - 3.33332819422e-1f;
    const float near = p * square * x + x;
    const float far = 1.0f - 2.0f / (fast_exp(2.0f * size) + 1.0f);
    return size < 0.625f ? near : std::copysign(far, x);
}
inline double fast_tanh(double x) { return std::tanh(x); }
"""

_TOP_K = """\
// Whether a ranks before b: a NaN counts as the largest, as in torch.
inline bool ranks_before(float a, float b) { return a > b || (a != a && b == b); }

// The K largest of x[0..n), largest first, and where they stand; n is at least K.
template <int K>
inline void top_k(const float* x, int64_t n, float* best, int64_t* where) {
    const auto insert = [&](int64_t i, int last) {
        int slot = last;
        for (; slot > 0 && ranks_before(x[i], best[slot - 1]); --slot) {
            best[slot] = best[slot - 1];
            where[slot] = where[slot - 1];
        }
        best[slot] = x[i];
        where[slot] = i;
    };
    for (int i = 0; i < K; ++i) {
        insert(i, i);
    }
    for (int64_t start = K; start < n; start += 16) {
        const int64_t stop = start + 16 < n ? start + 16 : n;
        const float worst = best[K - 1];
        int candidates = 0;
        #pragma omp simd reduction(+:candidates)
        for (int64_t i = start; i < stop; ++i) {
            candidates += !(x[i] <= worst);
        }
        for (int64_t i = start; candidates > 0 && i < stop; ++i) {
            if (ranks_before(x[i], best[K - 1])) {
                insert(i, K - 1);
            }
        }
    }
}
"""

HELPERS: tuple[Helper, ...] = (
    Helper(_BFLOAT16, ("bfloat16",)),
    Helper(_TO_BFLOAT16, ("to_bfloat16",)),
    Helper(_HALF, ("half",)),
    Helper(_MAX_NAN, ("max_propagate_nan", "max_nan")),
    Helper(_MIN_NAN, ("min_propagate_nan", "min_nan")),
    Helper(_REDUCTION.replace("{0}", "max"), ("max_nan",)),
    Helper(_REDUCTION.replace("{0}", "min"), ("min_nan",)),
    Helper(_INDEX_VALUE, ("IndexValue",)),
    Helper(_ARG.format("max", ">"), ("argmax_combine",)),
    Helper(_ARG.format("min", "<"), ("argmin_combine",)),
    Helper(_ATOMIC_ADD, ("atomic_add",)),
    Helper(_FLOOR_DIVIDE, ("floor_divide",)),
    Helper(_FAST_EXP, ("fast_exp", "fast_tanh")),
    Helper(_FAST_TANH, ("fast_tanh",)),
    Helper(_TOP_K, ("top_k",)),
)
"""In the order in which they must stand."""

_HEADERS = (
    ("algorithm", r"std::(?:max|min|fill|sort|nth_element)\b(?!_)"),
    ("cmath", r"std::(?!memcpy|max\b|min\b|numeric|make_unique)\w+\("),
    ("cstdint", r"u?int\d+_t"),
    ("cstring", r"std::memcpy"),
    ("limits", r"std::numeric_limits"),
    ("memory", r"std::make_unique"),
)


def with_prelude(functions: str) -> str:
    """``functions`` with the headers and helpers that they use in front."""
    used = set(re.findall(r"\w+", functions))
    helpers = [h.code for h in HELPERS if used & set(h.names)]
    body = "\n".join([*helpers, functions])
    headers = [f"#include <{name}>" for name, pattern in _HEADERS if re.search(pattern, body)]
    return "\n".join(headers) + "\n\n" + body
