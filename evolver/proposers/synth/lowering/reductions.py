"""Rules for reductions and scans: means, variances and norms are compositions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from evolver.proposers.synth import ir
from evolver.proposers.synth.arithmetic import ReduceKind
from evolver.proposers.synth.extents import Extent
from evolver.proposers.synth.lowering.context import Call, NotLowered
from evolver.proposers.synth.types import ElementType

Rule = Callable[[Call], int]
Rules = Callable[[Call], tuple[int, ...]]


def reduced(call: Call, kind: ReduceKind, x: int) -> int:
    """Reduce ``x`` along the call's ``dim``, and keep axes of one where ``keepdim`` says so."""
    axes = call.axes("dim", call.rank(x))
    if not axes:
        return x
    return call.kept(call.add(ir.Reduce(kind, axes), x), axes, keep=call.flag("keepdim"))


def total(kind: ReduceKind) -> Rule:
    """Sum or product, in the type that it gives."""

    def rule(call: Call) -> int:
        return reduced(call, kind, call.cast(call.node("self"), call.type.dtype))

    return rule


def extreme(kind: ReduceKind) -> Rule:
    """The largest or smallest value."""

    def rule(call: Call) -> int:
        return reduced(call, kind, call.node("self"))

    return rule


def with_position(value: ReduceKind, position: ReduceKind) -> Rules:
    """The largest or smallest value along one axis and where it is."""

    def rule(call: Call) -> tuple[int, ...]:
        x = call.node("self")
        return reduced(call, value, x), reduced(call, position, x)

    return rule


def position(kind: ReduceKind) -> Rule:
    """Where the largest or smallest value is; over all axes without ``dim``."""

    def rule(call: Call) -> int:
        x = call.node("self")
        if call.has("dim"):
            return reduced(call, kind, x)
        flat = call.reshape(x, (call.type_at(x).numel,))
        return call.reshape(call.add(ir.Reduce(kind, (0,)), flat), call.type.shape)

    return rule


def truth(kind: Literal["any", "all"]) -> Rule:
    """Whether any or all elements are not zero."""

    def rule(call: Call) -> int:
        found = reduced(call, kind, call.cast(call.node("self"), ElementType.BOOL))
        return call.cast(found, call.type.dtype)

    return rule


def mean(call: Call) -> int:
    """The sum over the count, computed wide and rounded once."""
    dtype = call.type.dtype
    x = call.cast(call.node("self"), dtype.wide)
    count = call.count(x, call.axes("dim", call.rank(x)))
    return call.cast(call.with_number("div", reduced(call, "sum", x), count), dtype)


def variance_and_mean(call: Call) -> tuple[int, int]:
    """In two passes: the mean, then the mean of squared differences."""
    dtype = call.type.dtype
    x = call.cast(call.node("self"), dtype.wide)
    axes = call.axes("dim", call.rank(x))
    count = call.count(x, axes)
    correction = call.number("correction", 1)
    if isinstance(correction, Extent) or correction != int(correction):
        raise NotLowered(f"a correction of {correction}")
    summed = call.add(ir.Reduce("sum", axes), x)
    middle = call.with_number("div", call.kept(summed, axes, keep=True), count)
    difference = call.function("sub", x, middle)
    squares = reduced(call, "sum", call.function("mul", difference, difference))
    variance = call.with_number("div", squares, count - int(correction))
    average = reduced_shape(call, middle)
    return call.cast(variance, dtype), call.cast(average, dtype)


def reduced_shape(call: Call, kept: int) -> int:
    """A reduction with axes of one, in the shape that the call gives."""
    return call.reshape(kept, call.type.shape)


def variance(call: Call) -> int:
    """The variance alone."""
    return variance_and_mean(call)[0]


def deviation(call: Call) -> int:
    """The root of the variance."""
    return call.function("sqrt", variance(call))


def vector_norm(call: Call) -> int:
    """Of order one, two or infinity."""
    order, dtype = call.number("ord", 2), call.type.dtype
    x = call.function("abs", call.cast(call.node("self"), dtype.wide))
    if order == float("inf"):
        return call.cast(reduced(call, "max", x), dtype)
    if order == 1:
        return call.cast(reduced(call, "sum", x), dtype)
    if order != 2:
        raise NotLowered(f"a norm of order {order}")
    squares = reduced(call, "sum", call.function("mul", x, x))
    return call.cast(call.function("sqrt", squares), dtype)


def scan(kind: Literal["sum", "prod", "logsumexp"]) -> Rule:
    """Along one axis, in the type that it gives, computed wide."""

    def rule(call: Call) -> int:
        dtype = call.type.dtype
        x = call.cast(call.node("self"), dtype.wide)
        if call.rank(x) == 0:
            return call.cast(x, dtype)
        found = call.add(ir.Scan(kind, call.axis("dim", call.rank(x))), x)
        return call.cast(found, dtype)

    return rule


_DIM = ("self", "dim", "keepdim")

RULES: Mapping[str, tuple[Rule | Rules, tuple[str, ...]]] = {
    "aten.sum": (total("sum"), _DIM),
    "aten.prod": (total("prod"), _DIM),
    "aten.amax": (extreme("max"), _DIM),
    "aten.amin": (extreme("min"), _DIM),
    "aten.argmax": (position("argmax"), _DIM),
    "aten.argmin": (position("argmin"), _DIM),
    "aten.any": (truth("any"), _DIM),
    "aten.all": (truth("all"), _DIM),
    "aten.mean": (mean, _DIM),
    "aten.var": (variance, ("self", "dim")),
    "aten.std": (deviation, ("self", "dim")),
    "aten.var_mean": (variance_and_mean, ("self", "dim")),
    "aten.linalg_vector_norm": (vector_norm, ("self", "ord", "dim", "keepdim")),
    "aten.cumsum": (scan("sum"), ("self", "dim")),
    "aten.cumprod": (scan("prod"), ("self", "dim")),
    "aten.logcumsumexp": (scan("logsumexp"), ("self", "dim")),
}
"""By operator, overloads left out: the rule and its arguments' names in order."""


def overloaded(target: str) -> tuple[Rule | Rules, tuple[str, ...]] | None:
    """The rule where the overload decides between one result and two."""
    found: dict[str, Rule | Rules] = {
        "aten.max.default": extreme("max"),
        "aten.min.default": extreme("min"),
        "aten.max.dim": with_position("max", "argmax"),
        "aten.min.dim": with_position("min", "argmin"),
    }
    rule = found.get(target)
    return None if rule is None else (rule, _DIM)
