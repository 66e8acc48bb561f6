"""Rules for functions of elements, casts and tensors made of numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from evolver.proposers.synth import ir
from evolver.proposers.synth.extents import Extent
from evolver.proposers.synth.lowering.context import Call, NotLowered
from evolver.proposers.synth.types import ElementType

Rule = Callable[[Call], int]


def unary(name: str) -> Rule:
    """A function of one tensor; whole numbers become floats where the trace says so."""

    def rule(call: Call) -> int:
        return call.function(name, call.cast(call.node("self"), call.type.dtype))

    return rule


def rounding(name: str) -> Rule:
    """Whole numbers stay what they are."""

    def rule(call: Call) -> int:
        x = call.node("self")
        return call.function(name, x) if call.type.dtype.is_floating else x

    return rule


def binary(name: str) -> Rule:
    """A function of two tensors or numbers, in the type that it gives.

    A number beside a narrow float is not rounded to it: torch computes in float32.
    """

    def rule(call: Call) -> int:
        dtype = call.type.dtype
        if _changes_nothing(call, name):
            return call.cast(call.node("self"), dtype)
        return call.cast(_in(call, name, dtype), dtype)

    return rule


def _changes_nothing(call: Call, name: str) -> bool:
    """Whether the other operand is a whole number that leaves whole numbers as they are."""
    if call.is_tensor("other") or not call.is_tensor("self") or call.type.dtype.is_floating:
        return False
    neutral = {"add": 0, "sub": 0, "mul": 1, "floor_div": 1, "trunc_div": 1}.get(name)
    return neutral is not None and call.number("other") == neutral


def _in(call: Call, name: str, dtype: ElementType) -> int:
    exact = all(call.is_tensor(n) and call.rank(call.node(n)) for n in ("self", "other"))
    inner = dtype if exact else dtype.wide
    left, right = call.operand("self", inner), call.operand("other", inner)
    return call.function(name, left, right)


def scaled(name: str) -> Rule:
    """``self`` and ``alpha`` times ``other``."""

    def rule(call: Call) -> int:
        alpha = call.number("alpha", 1)
        if alpha == 1:
            return binary(name)(call)
        dtype = call.type.dtype
        left, right = (call.operand(n, dtype.wide) for n in ("self", "other"))
        found = call.function(name, left, call.with_number("mul", right, alpha))
        return call.cast(found, dtype)

    return rule


def comparison(name: str) -> Rule:
    """A truth value of two operands in their common type."""

    def rule(call: Call) -> int:
        dtype = call.common_type("self", "other")
        return call.function(name, call.operand("self", dtype), call.operand("other", dtype))

    return rule


def logical(name: str) -> Rule:
    """Of truth values: whatever is not zero is true."""

    def rule(call: Call) -> int:
        names = [n for n in ("self", "other") if call.has(n)]
        return call.function(name, *(call.cast(call.node(n), ElementType.BOOL) for n in names))

    return rule


def divide(call: Call) -> int:
    """True division, or rounded as ``rounding_mode`` says."""
    mode = call.raw("rounding_mode")
    if mode is None:
        return binary("div")(call)
    return binary({"floor": "floor_div", "trunc": "trunc_div"}[str(mode)])(call)


def power(call: Call) -> int:
    """Small whole powers as products, halves as roots, all others as they are."""
    dtype = call.type.dtype
    exponent = None if call.is_tensor("exponent") else call.number("exponent")
    base = call.operand("self", dtype.wide)
    if exponent in (2, 3):
        square = call.function("mul", base, base)
        found = square if exponent == 2 else call.function("mul", square, base)
    elif exponent == 0.5 and dtype.is_floating:
        found = call.function("sqrt", base)
    else:
        found = call.function("pow", base, call.operand("exponent", dtype.wide))
    return call.cast(found, dtype)


def clamp(call: Call) -> int:
    """Between ``min`` and ``max``, where they are given."""
    dtype = call.type.dtype
    found = call.operand("self", dtype.wide)
    for name, function in (("min", "maximum"), ("max", "minimum")):
        if call.has(name):
            found = call.function(function, found, call.operand(name, dtype.wide))
    return call.cast(found, dtype)


def relu(call: Call) -> int:
    """The larger of the element and zero."""
    return call.with_number("maximum", call.node("self"), 0)


def gated(call: Call) -> int:
    """Half of an axis times the sigmoid of the other half."""
    x, half = call.wide(call.node("self")), call.type.shape
    axis = call.axis("dim", call.rank(x), -1)
    values, gates = (
        call.add(ir.Slice(axis, start, half[axis]), x) for start in (Extent(), half[axis])
    )
    found = call.function("mul", values, call.function("sigmoid", gates))
    return call.cast(found, call.type.dtype)


def square(call: Call) -> int:
    """The element times itself."""
    return call.function("mul", call.node("self"), call.node("self"))


def where(call: Call) -> int:
    """Select by truth values."""
    dtype = call.type.dtype
    condition = call.cast(call.node("condition"), ElementType.BOOL)
    options = [call.operand(name, dtype) for name in ("self", "other")]
    return call.add(ir.Select(), *call.broadcast(condition, *options))


def masked_fill(call: Call) -> int:
    """Select the value where the mask is true."""
    dtype = call.type.dtype
    mask, x, value = call.node("mask"), call.node("self"), call.operand("value", dtype)
    return call.add(ir.Select(), *call.broadcast(mask, value, x))


def convert(call: Call) -> int:
    """To another element type, if one is named."""
    return call.cast(call.node("self"), call.dtype() or call.type.dtype)


def same(call: Call) -> int:
    """Copies and detached tensors are the tensor."""
    return call.node("self")


def copy(call: Call) -> int:
    """What is copied, in the type and shape of what it is copied to."""
    target = call.type_at(call.node("self"))
    return call.expand(call.cast(call.node("src"), target.dtype), target.shape)


def full(default: int | float | None) -> Rule:
    """A tensor of one number, ``fill_value`` unless the operator has one of its own."""

    def rule(call: Call) -> int:
        value = default if default is not None else call.number("fill_value")
        return call.full(value, call.type)

    return rule


def full_of_tensor(call: Call) -> int:
    """A tensor filled with another one, which has no axes."""
    return call.expand(call.cast(call.node("value"), call.type.dtype), call.type.shape)


def arange(call: Call) -> int:
    """``start + step * i``; lengths are the trace's."""
    dtype = call.type.dtype
    start, step = call.number("start", 0), call.number("step", 1)
    whole = ElementType.INT64 if dtype.is_floating else dtype
    found = call.cast(call.add(ir.Iota(call.type.shape[0], whole)), dtype)
    if step != 1:
        found = call.with_number("mul", found, step)
    return found if start == 0 else call.with_number("add", found, start)


def constant(call: Call) -> int:
    """A tensor of few numbers that the reference writes out."""
    values = _flat(call.raw("values"))
    shape = call.type.shape
    if len(values) == 1:
        return call.full(values[0], call.type)
    if not values or len(values) > 16:
        raise NotLowered(f"a table of {len(values)} numbers")
    one = call.type.with_shape(1)
    parts = call.add(ir.Concat(0), *(call.full(v, one) for v in values))
    return call.reshape(parts, shape)


def _flat(value: object) -> list[bool | int | float]:
    if isinstance(value, list):
        return [v for item in value for v in _flat(item)]
    if not isinstance(value, bool | int | float):
        raise NotLowered("a table of something else than numbers")
    return [value]


def addition_of_product(call: Call) -> int:
    """``self + value * tensor1 * tensor2``, in float32 for narrow types."""
    dtype = call.type.dtype
    x, a, b = (call.operand(n, dtype.wide) for n in ("self", "tensor1", "tensor2"))
    scaled_product = call.with_number("mul", call.function("mul", a, b), call.number("value", 1))
    return call.cast(call.function("add", x, scaled_product), dtype)


_X, _XY = ("self",), ("self", "other")
_FLOATS = (
    *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "reciprocal"),
    *("sin", "cos", "tan", "sinh", "cosh", "tanh", "asin", "acos", "atan", "sigmoid"),
    *("erf", "erfc", "neg", "abs"),
)
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
_BINARY = {
    "mul": "mul",
    "floor_divide": "floor_div",
    "remainder": "remainder",
    "fmod": "fmod",
    "maximum": "maximum",
    "minimum": "minimum",
    "atan2": "atan2",
    "bitwise_and": "and",
    "bitwise_or": "or",
    "bitwise_xor": "xor",
    "__lshift__": "shift_left",
    "bitwise_left_shift": "shift_left",
    "__rshift__": "shift_right",
    "bitwise_right_shift": "shift_right",
}

RULES: Mapping[str, tuple[Rule, tuple[str, ...]]] = {
    **{f"aten.{name}": (unary(name), _X) for name in _FLOATS},
    **{f"aten.{name}": (rounding(name), _X) for name in ("floor", "ceil", "trunc", "round")},
    **{f"aten.{name}": (unary("sign"), _X) for name in ("sign", "sgn")},
    **{f"aten.{name}": (binary(function), _XY) for name, function in _BINARY.items()},
    **{f"aten.{name}": (comparison(name), _XY) for name in _COMPARISONS},
    **{f"aten.logical_{name}": (logical(name), _XY) for name in ("and", "or", "xor", "not")},
    "aten.isnan": (lambda call: call.function("isnan", call.node("self")), _X),
    "aten.isinf": (lambda call: call.function("isinf", call.node("self")), _X),
    "aten.bitwise_not": (unary("not"), _X),
    "aten.add": (scaled("add"), _XY),
    "aten.sub": (scaled("sub"), _XY),
    "aten.div": (divide, _XY),
    "aten.pow": (power, ("self", "exponent")),
    "aten.clamp": (clamp, ("self", "min", "max")),
    "aten.clamp_min": (clamp, ("self", "min")),
    "aten.clamp_max": (clamp, ("self", "max")),
    "aten.relu": (relu, _X),
    "aten.glu": (gated, ("self", "dim")),
    "aten.square": (square, _X),
    "aten.where": (where, ("condition", "self", "other")),
    "aten.masked_fill": (masked_fill, ("self", "mask", "value")),
    "aten.addcmul": (addition_of_product, ("self", "tensor1", "tensor2")),
    "prims.convert_element_type": (convert, ("self", "dtype")),
    "aten._to_copy": (convert, _X),
    "aten.to": (convert, _X),
    "aten.clone": (same, _X),
    "aten.alias": (same, _X),
    "aten.detach": (same, _X),
    "aten.contiguous": (same, _X),
    "aten.lift_fresh_copy": (same, _X),
    "aten.copy": (copy, ("self", "src")),
    "aten.full": (full(None), ("size", "fill_value")),
    "aten.full_like": (full(None), ("self", "fill_value")),
    "aten.new_full": (full(None), ("self", "size", "fill_value")),
    "aten.scalar_tensor": (full(None), ("fill_value",)),
    "aten.fill": (full(None), ("self", "fill_value")),
    **{f"aten.{name}": (full(0), _X) for name in ("zeros", "zeros_like", "new_zeros")},
    **{f"aten.{name}": (full(1), _X) for name in ("ones", "ones_like", "new_ones")},
    # Nobody may read what was never written; any value will do.
    **{f"aten.{name}": (full(0), _X) for name in ("empty", "empty_like", "new_empty")},
    "aten.empty_permuted": (full(0), _X),
    "aten.arange": (arange, ("start", "end", "step")),
    "prims.iota": (arange, ("length",)),
    "constant": (constant, ("values",)),
}
"""By operator, overloads left out: the rule and its arguments' names in order."""


def overloaded(target: str) -> tuple[Rule, tuple[str, ...]] | None:
    """The rule where the overload decides on the order of arguments."""
    if target in ("aten.arange.default",):
        return arange, ("end",)
    if target == "aten.fill.Tensor":
        return full_of_tensor, ("self", "value")
    if target == "aten.rsub.Scalar":
        return _reversed_subtraction, ("other", "self", "alpha")
    return None


def _reversed_subtraction(call: Call) -> int:
    if call.number("alpha", 1) != 1:
        raise NotLowered("an alpha")
    return binary("sub")(call)
