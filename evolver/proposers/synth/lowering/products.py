"""Rules for matrix products and convolutions, the borders of row programs.

A depthwise convolution with a small window is no border: it is a sum of shifted products.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from itertools import product

from evolver.proposers.synth import ir
from evolver.proposers.synth.extents import Extent
from evolver.proposers.synth.lowering.context import Call, NotLowered
from evolver.proposers.synth.lowering.movements import cut, padded

Rule = Callable[[Call], int]

MOST_TAPS = 32
"""Of a window that is unrolled."""


def matmul(call: Call) -> int:
    """``self @ mat2``."""
    return call.add(ir.Matmul(), call.node("self"), call.node("mat2"))


def matmul_of_vector(call: Call) -> int:
    """A matrix times a vector, or the sum of two vectors' products."""
    dtype = call.type.dtype
    a, b = (call.wide(call.node(n)) for n in ("self", "mat2"))
    found = call.function("mul", a, b)
    axis = call.rank(found) - 1
    return call.cast(call.add(ir.Reduce("sum", (axis,)), found), dtype)


def added_matmul(call: Call) -> int:
    """``beta * bias + alpha * (self @ mat2)``."""
    dtype = call.type.dtype
    found = call.wide(matmul(call))
    bias = call.wide(call.node("bias"))
    for name in ("alpha", "beta"):
        factor = call.number(name, 1)
        if factor != 1 and name == "alpha":
            found = call.with_number("mul", found, factor)
        elif factor != 1:
            bias = call.with_number("mul", bias, factor)
    return call.cast(call.function("add", found, bias), dtype)


def convolution(call: Call) -> int:
    """By the library, or unrolled where each channel has a small window of its own."""
    x, weight = call.node("input"), call.node("weight")
    if call.flag("transposed"):
        raise NotLowered("a transposed convolution")
    stride, padding, dilation = (
        tuple(int(v) for v in call.raw(name)) for name in ("stride", "padding", "dilation")
    )
    op = ir.Convolution(stride, padding, dilation, call.whole("groups"))
    found = _unrolled(call, op, x, weight) if _is_small(call, op, x, weight) else None
    if found is None:
        found = call.add(op, x, weight)
    if not call.has("bias"):
        return found
    ones = (Extent.of(1),) * len(stride)
    bias = call.node("bias")
    return call.function("add", found, call.reshape(bias, (*call.shape(bias), *ones)))


def _is_small(call: Call, op: ir.Convolution, x: int, weight: int) -> bool:
    channels, filters, per_group, *window = call.shape(x)[1:2] + call.shape(weight)
    taps = call.count(weight, range(2, 2 + len(window))).constant
    depthwise = channels == filters == Extent.of(op.groups) and per_group == Extent.of(1)
    return depthwise and taps is not None and taps <= MOST_TAPS


def _unrolled(call: Call, op: ir.Convolution, x: int, weight: int) -> int:
    """The sum over the window of shifted inputs times the window's weights, in float32."""
    dtype, result = call.type_at(x).dtype, call.type.shape
    weights, one = call.shape(weight), Extent.of(1)
    x = call.wide(x)
    zero = call.constant(0, dtype.wide)
    for i, amount in enumerate(op.padding):
        x = padded(call, x, i + 2, Extent.of(amount), Extent.of(amount), zero)
    terms = []
    for tap in product(*(range(w.constant or 0) for w in weights[2:])):
        shifted, scale = x, call.wide(weight)
        for i, place in enumerate(tap):
            start = Extent.of(place * op.dilation[i])
            shifted = cut(call, shifted, i + 2, start, result[i + 2], op.stride[i])
            scale = cut(call, scale, i + 2, Extent.of(place), one)
        scale = call.reshape(scale, (weights[0], *(one for _ in tap)))
        terms.append(call.function("mul", shifted, scale))
    return call.cast(reduce(lambda a, b: call.function("add", a, b), terms), dtype)


_CONVOLUTION = ("input", "weight", "bias", "stride", "padding", "dilation", "transposed")

RULES: Mapping[str, tuple[Rule, tuple[str, ...]]] = {
    "aten.mm": (matmul, ("self", "mat2")),
    "aten.bmm": (matmul, ("self", "mat2")),
    "aten.mv": (matmul_of_vector, ("self", "mat2")),
    "aten.dot": (matmul_of_vector, ("self", "mat2")),
    "aten.addmm": (added_matmul, ("bias", "self", "mat2")),
    "aten.baddbmm": (added_matmul, ("bias", "self", "mat2")),
    "aten.convolution": (convolution, (*_CONVOLUTION, "output_padding", "groups")),
}
"""By operator, overloads left out: the rule and its arguments' names in order."""
