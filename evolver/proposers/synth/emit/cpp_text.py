"""Elements in C++: types, literals, functions, conversions, and the helpers that they need.

Narrow floats travel as ``float`` and are rounded after each operation, where torch rounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from evolver.proposers.synth.emit.scopes import EmitError
from evolver.proposers.synth.types import ElementType

E = ElementType

POINTER: Mapping[ElementType, str] = {
    E.FLOAT64: "double",
    E.FLOAT32: "float",
    E.FLOAT16: "uint16_t",
    E.BFLOAT16: "uint16_t",
    E.INT64: "int64_t",
    E.INT32: "int32_t",
    E.INT16: "int16_t",
    E.INT8: "int8_t",
    E.UINT8: "uint8_t",
    E.BOOL: "bool",
}
"""What a tensor's elements are in memory; 8-bit floats cannot be bound."""

_ROUND = {E.BFLOAT16: "round_to_bfloat16", E.FLOAT16: "round_to_half"}
_LOAD = {E.BFLOAT16: "from_bfloat16", E.FLOAT16: "from_half"}
_STORE = {E.BFLOAT16: "to_bfloat16", E.FLOAT16: "to_half"}


def c_type(dtype: ElementType) -> str:
    """What a value is in registers and buffers."""
    if dtype not in POINTER:
        raise EmitError(f"C++ has no type for {dtype.value}")
    return POINTER[dtype.wide]


def rounded(text: str, dtype: ElementType) -> str:
    """A ``float`` rounded to a narrow type; other types are what they are."""
    return f"{_ROUND[dtype]}({text})" if dtype in _ROUND else text


def loaded(text: str, dtype: ElementType) -> str:
    """An element of memory as a value."""
    return f"{_LOAD[dtype]}({text})" if dtype in _LOAD else text


def stored(text: str, dtype: ElementType) -> str:
    """A value as an element of memory."""
    if dtype in _ROUND and text.startswith(f"{_ROUND[dtype]}(") and _spans(text):
        text = text[len(_ROUND[dtype]) + 1 : -1]
    return f"{_STORE[dtype]}({text})" if dtype in _STORE else text


def _spans(text: str) -> bool:
    """Whether the last parenthesis closes the first."""
    depth = 0
    for position, character in enumerate(text):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth == 0 and character == ")":
            return position == len(text) - 1
    return False


def literal(value: bool | int | float, dtype: ElementType) -> str:
    """A number of an element type."""
    if dtype is E.BOOL:
        return "true" if value else "false"
    if not dtype.is_floating:
        whole = int(value)
        if whole == -(2**63):
            return "INT64_MIN"
        return f"{whole}" if abs(whole) < 2**31 else f"INT64_C({whole})"
    suffix, c = ("", "double") if dtype is E.FLOAT64 else ("f", "float")
    number = float(value)
    if math.isnan(number):
        return f"std::numeric_limits<{c}>::quiet_NaN()"
    if math.isinf(number):
        sign = "-" if number < 0 else ""
        return f"{sign}std::numeric_limits<{c}>::infinity()"
    return f"{number!r}{suffix}"


def lowest(dtype: ElementType) -> str:
    """What a maximum begins with."""
    if dtype.is_floating:
        return literal(-math.inf, dtype)
    return f"std::numeric_limits<{c_type(dtype)}>::lowest()"


def highest(dtype: ElementType) -> str:
    """What a minimum begins with."""
    if dtype.is_floating:
        return literal(math.inf, dtype)
    return f"std::numeric_limits<{c_type(dtype)}>::max()"


_OPERATORS = {
    **{"add": "+", "sub": "-", "mul": "*", "div": "/", "and": "&", "or": "|", "xor": "^"},
    **{"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="},
}
_OF_FLOATS = {
    **{n: f"std::{n}" for n in ("exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt")},
    **{n: f"std::{n}" for n in ("exp", "sin", "cos", "tan", "sinh", "cosh", "tanh")},
    **{n: f"std::{n}" for n in ("asin", "acos", "atan", "erf", "erfc", "floor", "ceil", "trunc")},
    **{"round": "std::nearbyint", "atan2": "std::atan2", "fmod": "std::fmod"},
}
_HELPERS_OF_TWO = {
    **{"maximum": "maximum", "minimum": "minimum", "floor_div": "floor_divide"},
    **{"remainder": "modulo", "shift_left": "shift_left", "shift_right": "shift_right"},
}

_Arguments = Sequence[str]


def _float_only(function: str, a: _Arguments, one: str) -> str | None:
    match function:
        case "rsqrt":
            return f"({one} / std::sqrt({a[0]}))"
        case "reciprocal":
            return f"({one} / {a[0]})"
        case "sigmoid":
            exp = "exp_of" if one.endswith("f") else "std::exp"
            return f"({one} / ({one} + {exp}(-{a[0]})))"
        case "exp" if one.endswith("f"):
            return f"exp_of({a[0]})"
        case "abs":
            return f"std::fabs({a[0]})"
        case "pow":
            return f"std::pow({a[0]}, {a[1]})"
        case "trunc_div":
            return f"std::trunc({a[0]} / {a[1]})"
        case "isinf":
            return f"std::isinf({a[0]})"
    return None


def _discrete_only(function: str, a: _Arguments, dtype: ElementType) -> str | None:
    wraps = function in ("add", "sub", "mul", "neg", "abs")
    if wraps and dtype in (E.INT64, E.INT32):
        return f"wrapped_{function}<{c_type(dtype)}>({', '.join(a)})"
    match function:
        case "not":
            return f"!{a[0]}" if dtype is E.BOOL else f"{c_type(dtype)}(~{a[0]})"
        case "abs":
            return f"{c_type(dtype)}({a[0]} < 0 ? -{a[0]} : {a[0]})"
        case "neg":
            return f"{c_type(dtype)}(-{a[0]})"
        case "pow":
            return f"power<{c_type(dtype)}>({a[0]}, {a[1]})"
        case "trunc_div":
            return f"{c_type(dtype)}({a[0]} / {a[1]})"
        case "fmod":
            return f"{c_type(dtype)}({a[0]} % {a[1]})"
        case "add" | "sub" | "mul" | "and" | "or" | "xor":
            return f"{c_type(dtype)}({a[0]} {_OPERATORS[function]} {a[1]})"
    return None


def applied(function: str, arguments: _Arguments, dtype: ElementType) -> str:
    """A function of ``pointwise.FUNCTIONS`` of values of one type, rounded as torch rounds."""
    one = literal(1.0, dtype) if dtype.is_floating else ""
    special = (
        _float_only(function, arguments, one)
        if dtype.is_floating
        else _discrete_only(function, arguments, dtype)
    )
    return special if special is not None else _common(function, arguments, dtype)


def _common(function: str, a: _Arguments, dtype: ElementType) -> str:
    if function in _HELPERS_OF_TWO:
        c = c_type(dtype)
        return f"{_HELPERS_OF_TWO[function]}<{c}>({a[0]}, {a[1]})"
    if function in _OPERATORS:
        return f"({a[0]} {_OPERATORS[function]} {a[1]})"
    match function:
        case "neg":
            return f"(-{a[0]})"
        case "sign":
            return f"{c_type(dtype)}(({a[0]} > 0) - ({a[0]} < 0))"
        case "isnan":
            return f"({a[0]} != {a[0]})"
    return f"{_OF_FLOATS[function]}({', '.join(a)})"


def converted(text: str, old: ElementType, new: ElementType) -> str:
    """A value of another element type, as torch converts."""
    if old is new:
        return text
    if new is E.BOOL:
        return f"({text} != 0)"
    if new.is_floating:
        if c_type(old) == c_type(new):
            narrows = new in _ROUND and not (old in _ROUND and old is new)
            return rounded(text, new) if narrows else text
        return rounded(f"{c_type(new)}({text})", new)
    if old.is_floating and new.itemsize_bytes < 4:
        return f"{c_type(new)}(int64_t({text}))"
    return f"{c_type(new)}({text})"


HELPERS: Mapping[str, str] = {
    "from_bfloat16": """\
inline float from_bfloat16(uint16_t x) {
    const uint32_t bits = uint32_t(x) << 16;
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}
""",
    "to_bfloat16": """\
// Rounded to nearest even, as torch does.
inline uint16_t to_bfloat16(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    return value != value ? uint16_t(0x7fc0) : uint16_t(rounded);
}
""",
    "round_to_bfloat16": """\
inline float round_to_bfloat16(float x) { return from_bfloat16(to_bfloat16(x)); }
""",
    "from_half": """\
inline float from_half(uint16_t x) {
    _Float16 value;
    std::memcpy(&value, &x, sizeof value);
    return float(value);
}
""",
    "to_half": """\
inline uint16_t to_half(float x) {
    const _Float16 value = _Float16(x);
    uint16_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}
""",
    "round_to_half": "inline float round_to_half(float x) { return float(_Float16(x)); }\n",
    "exp_of": """\
// exp(x) = 2^n * exp(r) with r at most log(2) / 2, by Cephes' polynomial (S. Moshier), to about an
// ulp: unlike std::exp it is computed for a whole vector at once.
inline float exp_of(float x) {
    const float bounded = x < -104.0f ? -104.0f : x > 89.0f ? 89.0f : x;
    const float n = std::nearbyint(bounded * 1.44269504f);
    const float r = bounded - n * 0.693359375f + n * 2.12194440e-4f;
    float sum = 1.9875691500e-4f;
    sum = sum * r + 1.3981999507e-3f;
    sum = sum * r + 8.3334519073e-3f;
    sum = sum * r + 4.1665795894e-2f;
    sum = sum * r + 1.6666665459e-1f;
    sum = sum * r + 5.0000001201e-1f;
    sum = sum * r * r + r + 1.0f;
    const int32_t whole = int32_t(n), half = whole / 2;
    const int32_t bits[2] = {(half + 127) << 23, (whole - half + 127) << 23};
    float low, high;
    std::memcpy(&low, &bits[0], sizeof low);
    std::memcpy(&high, &bits[1], sizeof high);
    return sum * low * high;
}
""",
    "maximum": """\
// NaN on either side wins, as in torch.
template <typename T>
inline T maximum(T a, T b) {
    return (a > b || a != a) ? a : b;
}
""",
    "minimum": """\
// NaN on either side wins, as in torch.
template <typename T>
inline T minimum(T a, T b) {
    return (a < b || a != a) ? a : b;
}
""",
    "wrapped_add": """\
// Integers wrap in torch; in C++ only unsigned ones may.
template <typename T>
inline T wrapped_add(T a, T b) {
    return T(std::make_unsigned_t<T>(a) + std::make_unsigned_t<T>(b));
}
""",
    "wrapped_sub": """\
template <typename T>
inline T wrapped_sub(T a, T b) {
    return T(std::make_unsigned_t<T>(a) - std::make_unsigned_t<T>(b));
}
""",
    "wrapped_mul": """\
template <typename T>
inline T wrapped_mul(T a, T b) {
    return T(std::make_unsigned_t<T>(a) * std::make_unsigned_t<T>(b));
}
""",
    "wrapped_neg": """\
template <typename T>
inline T wrapped_neg(T a) {
    return T(-std::make_unsigned_t<T>(a));
}
""",
    "wrapped_abs": """\
template <typename T>
inline T wrapped_abs(T a) {
    return a < 0 ? T(-std::make_unsigned_t<T>(a)) : a;
}
""",
    "power": """\
template <typename T>
inline T power(T base, T exponent) {
    if (exponent < 0) return base == 1 ? 1 : base == T(-1) ? (exponent % 2 ? -1 : 1) : 0;
    uint64_t result = 1, factor = uint64_t(base);
    for (; exponent; exponent /= 2, factor *= factor)
        if (exponent % 2) result *= factor;
    return T(result);
}
""",
    "modulo": """\
// The remainder has the divisor's sign.
template <typename T>
inline T modulo(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
        const T rest = std::fmod(a, b);
        return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
    } else {
        const T rest = T(b == T(-1) ? 0 : a % b);
        return rest != 0 && (rest < 0) != (b < 0) ? T(rest + b) : rest;
    }
}
""",
    "floor_divide": """\
// The quotient rounded down.
template <typename T>
inline T floor_divide(T a, T b) {
    if constexpr (std::is_floating_point_v<T>) {
        if (b == 0) return a / b;
        const T rest = std::fmod(a, b);
        T quotient = (a - rest) / b;
        if (rest != 0 && (b < 0) != (rest < 0)) quotient -= 1;
        if (quotient == 0) return std::copysign(T(0), a / b);
        const T down = std::floor(quotient);
        return quotient - down > T(0.5) ? down + 1 : down;
    } else {
        const T quotient = T(a / b);
        return a % b != 0 && (a < 0) != (b < 0) ? T(quotient - 1) : quotient;
    }
}
""",
    "shift_left": """\
template <typename T>
inline T shift_left(T a, T b) {
    return b < 0 || b >= T(8 * sizeof(T)) ? T(0) : T(uint64_t(a) << b);
}
""",
    "shift_right": """\
template <typename T>
inline T shift_right(T a, T b) {
    return T(b < 0 || b >= T(8 * sizeof(T)) ? (a < 0 ? -1 : 0) : a >> b);
}
""",
    "log_add_exp": """\
// log(exp(a) + exp(b)), without overflow.
template <typename T>
inline T log_add_exp(T a, T b) {
    const T top = maximum(a, b);
    if (std::isinf(top) || top != top) return top;
    return top + std::log(std::exp(a - top) + std::exp(b - top));
}
""",
    "max_of_row": """\
#pragma omp declare reduction(max_of_row : float, double, int64_t, int32_t, int16_t, int8_t, \\
    uint8_t : omp_out = maximum(omp_out, omp_in)) initializer(omp_priv = omp_orig)
""",
    "min_of_row": """\
#pragma omp declare reduction(min_of_row : float, double, int64_t, int32_t, int16_t, int8_t, \\
    uint8_t : omp_out = minimum(omp_out, omp_in)) initializer(omp_priv = omp_orig)
""",
    "ranks_before": """\
// In descending order NaN comes first, in ascending order last.
template <typename T>
inline bool ranks_before(T a, T b, bool descending) {
    const bool a_is_nan = a != a, b_is_nan = b != b;
    if (a_is_nan || b_is_nan) return descending ? a_is_nan && !b_is_nan : !a_is_nan && b_is_nan;
    return descending ? a > b : a < b;
}
""",
    "top_k": """\
// The positions of the k best of a row, the best first; of equal values the first one is better.
template <typename T>
inline void top_k(const T* values, int64_t count, int64_t k, bool largest, int64_t* positions) {
    int64_t found = 0;
    for (int64_t i = 0; i < count; ++i) {
        if (found == k && !ranks_before(values[i], values[positions[k - 1]], largest)) continue;
        int64_t slot = found < k ? found++ : k - 1;
        for (; slot > 0 && ranks_before(values[i], values[positions[slot - 1]], largest); --slot)
            positions[slot] = positions[slot - 1];
        positions[slot] = i;
    }
}
""",
    "sort_positions": """\
// The positions that sort a row; equal values keep their order. Only the first k are needed.
template <typename T>
inline void sort_positions(const T* values, int64_t count, int64_t k, bool descending,
                           int64_t* order, int64_t* positions) {
    for (int64_t i = 0; i < count; ++i) order[i] = i;
    std::partial_sort(order, order + k, order + count, [&](int64_t a, int64_t b) {
        if (ranks_before(values[a], values[b], descending)) return true;
        return !ranks_before(values[b], values[a], descending) && a < b;
    });
    std::copy(order, order + k, positions);
}
""",
}
"""By name, in the order in which a module writes those that it uses."""

_NEEDS = {
    "round_to_bfloat16": ("from_bfloat16", "to_bfloat16"),
    "max_of_row": ("maximum",),
    "min_of_row": ("minimum",),
    "log_add_exp": ("maximum",),
    "top_k": ("ranks_before",),
    "sort_positions": ("ranks_before",),
}


def helpers_of(body: str) -> str:
    """The helpers that ``body`` names, and those that they name, in order."""
    used = {name for name in HELPERS if _names(body, name)}
    used |= {needed for name in used for needed in _NEEDS.get(name, ())}
    return "\n".join(HELPERS[name] for name in HELPERS if name in used)


def _names(body: str, name: str) -> bool:
    ends: Callable[[str], bool] = lambda after: after[:1] in ("(", "<", " ")  # noqa: E731
    return any(ends(rest) for rest in body.split(name)[1:])
