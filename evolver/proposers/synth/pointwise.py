"""The scalar functions of ``Pointwise``: which element types each takes, and what it gives.

Semantics are torch's for operands of one type: 16-bit and 8-bit floats are computed in float32
and rounded, integers wrap, ``maximum`` and ``minimum`` give NaN where an operand is NaN,
``remainder`` has the divisor's sign, comparisons give truth values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from evolver.proposers.synth.types import ElementType

Kind = Callable[[ElementType], bool]


def _any(_: ElementType) -> bool:
    return True


def _number(dtype: ElementType) -> bool:
    return dtype is not ElementType.BOOL


def _float(dtype: ElementType) -> bool:
    return dtype.is_floating


def _discrete(dtype: ElementType) -> bool:
    return not dtype.is_floating


@dataclass(frozen=True)
class Function:
    """How many operands, of which element type; the result has the same or is a truth value."""

    arity: int
    takes: Kind
    gives_bool: bool = False


_OF_FLOATS = (
    *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "reciprocal"),
    *("sin", "cos", "tan", "sinh", "cosh", "tanh", "asin", "acos", "atan", "sigmoid"),
    *("erf", "erfc", "floor", "ceil", "trunc", "round"),
)
_OF_TWO_NUMBERS = ("add", "sub", "mul", "floor_div", "trunc_div", "remainder", "fmod", "pow")

FUNCTIONS: dict[str, Function] = {
    **dict.fromkeys(_OF_FLOATS, Function(1, _float)),
    **dict.fromkeys(("neg", "abs", "sign"), Function(1, _number)),
    "not": Function(1, _discrete),
    **dict.fromkeys(("isnan", "isinf"), Function(1, _float, gives_bool=True)),
    **dict.fromkeys(_OF_TWO_NUMBERS, Function(2, _number)),
    **dict.fromkeys(("div", "atan2"), Function(2, _float)),
    **dict.fromkeys(("maximum", "minimum"), Function(2, _any)),
    **dict.fromkeys(("and", "or", "xor"), Function(2, _discrete)),
    **dict.fromkeys(("shift_left", "shift_right"), Function(2, lambda t: t.is_integer)),
    **dict.fromkeys(("eq", "ne", "lt", "le", "gt", "ge"), Function(2, _any, gives_bool=True)),
}
"""By name. ``round`` goes to even; ``shift_right`` keeps the sign; ``trunc_div`` and ``fmod``
round the quotient towards zero, ``floor_div`` and ``remainder`` down."""
