"""Elements in Triton: types, literals, functions, conversions, and the helpers that they need.

Narrow floats are computed in float32 and rounded after each operation, where torch rounds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from evolver.proposers.synth.emit.scopes import EmitError
from evolver.proposers.synth.types import ElementType

E = ElementType

_NAMES: Mapping[ElementType, str] = {
    E.FLOAT64: "float64",
    E.FLOAT32: "float32",
    E.FLOAT16: "float16",
    E.BFLOAT16: "bfloat16",
    E.BOOL: "int1",
}
_OF_LANGUAGE = ("exp", "exp2", "log", "log2", "sqrt", "rsqrt", "sin", "cos", "erf", "floor", "ceil")
_OF_LIBDEVICE = {
    **{n: n for n in ("expm1", "log1p", "log10", "tan", "sinh", "cosh", "tanh", "erfc", "trunc")},
    **{"asin": "asin", "acos": "acos", "atan": "atan", "atan2": "atan2", "fmod": "fmod"},
    **{"pow": "pow", "round": "rint"},
}
_OPERATORS = {
    **{"add": "+", "sub": "-", "mul": "*", "div": "/", "and": "&", "or": "|", "xor": "^"},
    **{"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="},
}


def type_name(dtype: ElementType) -> str:
    """What a type is called in Triton."""
    if dtype.value.startswith("float8"):
        raise EmitError(f"{dtype.value}: Triton saturates where torch gives NaN")
    return f"tl.{_NAMES.get(dtype, dtype.value)}"


def loaded(text: str, dtype: ElementType) -> str:
    """An element of memory as it is computed with."""
    return f"{text}.to(tl.float32)" if dtype.wide is not dtype else text


def rounded(text: str, dtype: ElementType) -> str:
    """A float32 rounded to a narrow type; other types are what they are."""
    return f"{text}.to({type_name(dtype)}).to(tl.float32)" if dtype.wide is not dtype else text


def literal(value: bool | int | float, dtype: ElementType) -> str:
    """A number of an element type."""
    if dtype is E.BOOL:
        return f"tl.full((), {bool(value)}, tl.int1)"
    if not dtype.is_floating:
        return repr(int(value))
    number = float(value)
    text = repr(number) if math.isfinite(number) else f'float("{number}")'
    return f"tl.full((), {text}, tl.float64)" if dtype is E.FLOAT64 else text


def extreme(dtype: ElementType, *, largest: bool) -> str:
    """The largest or the least number of a type."""
    if dtype.is_floating:
        return literal(math.inf if largest else -math.inf, dtype)
    if dtype is E.UINT8:
        return "255" if largest else "0"
    bits = dtype.itemsize_bytes * 8 - 1
    return str(2**bits - 1 if largest else -(2**bits))


def converted(text: str, old: ElementType, new: ElementType) -> str:
    """A value of another element type, as torch converts."""
    if old is new:
        return text
    if new is E.BOOL:
        return f"({text} != 0)"
    if not new.is_floating:
        return f"{text}.to({type_name(new)})"
    wide = text if old.wide is new.wide else f"{text}.to({type_name(new.wide)})"
    return rounded(wide, new)


def applied(function: str, a: Sequence[str], dtype: ElementType) -> str:
    """A function of ``pointwise.FUNCTIONS`` of values of one type.

    Raises:
        EmitError: Triton has no such function of this type.
    """
    if dtype.is_floating and function in _OF_LIBDEVICE:
        return f"libdevice.{_OF_LIBDEVICE[function]}({', '.join(a)})"
    if dtype.is_floating and function in _OF_LANGUAGE:
        return f"tl.{function}({a[0]})"
    if function in _OPERATORS:
        return f"({a[0]} {_OPERATORS[function]} {a[1]})"
    found = _special(function, a, dtype)
    if found is None:
        raise EmitError(f"Triton has no {function} of {dtype.value}")
    return found


def _special(function: str, a: Sequence[str], dtype: ElementType) -> str | None:
    simple = {
        "neg": "(-{0})",
        "abs": "tl.abs({0})",
        "not": "(~{0})",
        "sign": "(({0} > 0).to({type}) - ({0} < 0).to({type}))",
        "isnan": "({0} != {0})",
        "isinf": '(tl.abs({0}) == float("inf"))',
        "sigmoid": "tl.sigmoid({0})",
        "reciprocal": "(1.0 / {0})",
        "fmod": "({0} % {1})",
    }
    if function in simple:
        return simple[function].format(*a, type=type_name(dtype.wide))
    match function:
        case "maximum" | "minimum":
            return _extreme_of_two(function, a, dtype)
        case "trunc_div":
            return (
                f"libdevice.trunc({a[0]} / {a[1]})"
                if dtype.is_floating
                else (f"({a[0]} // {a[1]})")
            )
        case "floor_div" | "remainder" if not dtype.is_floating:
            return _rounded_down(function, a)
        case "remainder":
            return f"float_remainder({a[0]}, {a[1]})"
    return None


def _extreme_of_two(function: str, a: Sequence[str], dtype: ElementType) -> str:
    if dtype is E.BOOL:
        return f"({a[0]} {'|' if function == 'maximum' else '&'} {a[1]})"
    nan = ", propagate_nan=tl.PropagateNan.ALL" if dtype.is_floating else ""
    return f"tl.{function}({a[0]}, {a[1]}{nan})"


def _rounded_down(function: str, a: Sequence[str]) -> str:
    """Division that rounds down; by a power of two it is a shift or a mask."""
    if a[1].isdigit() and (by := int(a[1])) > 0 and by & (by - 1) == 0:
        return (
            f"({a[0]} >> {by.bit_length() - 1})"
            if function == "floor_div"
            else (f"({a[0]} & {by - 1})")
        )
    return f"{'floor_divide' if function == 'floor_div' else 'floor_remainder'}({a[0]}, {a[1]})"


HELPERS: Mapping[str, str] = {
    "larger": """\
@triton.jit
def larger(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
""",
    "smaller": """\
@triton.jit
def smaller(a, b):
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)
""",
    "multiplied": """\
@triton.jit
def multiplied(a, b):
    return a * b
""",
    "floor_divide": """\
@triton.jit
def floor_divide(a, b):
    quotient = a // b
    return tl.where((a % b != 0) & ((a < 0) != (b < 0)), quotient - 1, quotient)
""",
    "floor_remainder": """\
@triton.jit
def floor_remainder(a, b):
    rest = a % b
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)
""",
    "float_remainder": """\
@triton.jit
def float_remainder(a, b):
    rest = libdevice.fmod(a, b)
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)
""",
    "log_add_exp": """\
@triton.jit
def log_add_exp(a, b):
    top = tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
    sum_of_both = top + tl.log(tl.exp(a - top) + tl.exp(b - top))
    return tl.where((tl.abs(top) == float("inf")) | (top != top), top, sum_of_both)
""",
    "sortable": """\
@triton.jit
def sortable(x):
    # Integers that order as the floats do: NaN above all, both zeros equal.
    bits = (x + 0.0).to(tl.int32, bitcast=True)
    return tl.where(x != x, 0x7FFFFFFF, tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits))
""",
    "ranked": """\
@triton.jit
def ranked(value, position):
    # Value and position in one integer: the largest is the best, and of equals the first.
    return (value.to(tl.int64) << 32) | tl.cast(0x7FFFFFFF - position, tl.int64)
""",
    "position_of": """\
@triton.jit
def position_of(key):
    return 0x7FFFFFFF - (key & 0xFFFFFFFF)
""",
}
"""By name, in the order in which a module writes those that it uses."""


def helpers_of(body: str) -> list[str]:
    """The helpers that ``body`` names."""
    return [code for name, code in HELPERS.items() if re.search(rf"\b{name}\b", body)]
