"""Rules for views, slices, joins, padding and the writes that functional graphs make of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from evolver.proposers.synth import ir
from evolver.proposers.synth.extents import Extent
from evolver.proposers.synth.lowering.context import Call, NotLowered, size_of
from evolver.proposers.synth.lowering.selections import take, wrapped
from evolver.proposers.synth.types import ElementType

Rule = Callable[[Call], int]
Rules = Callable[[Call], tuple[int, ...]]


def view(call: Call) -> int:
    """To the shape that the trace found."""
    return call.reshape(call.node("self"), call.type.shape)


def expand(call: Call) -> int:
    """Broadcast to the shape that the trace found."""
    return call.expand(call.node("self"), call.type.shape)


def permute(call: Call) -> int:
    """Axes in another order."""
    x = call.node("self")
    order = tuple(int(a) % call.rank(x) for a in call.raw("dims"))
    return call.add(ir.Permute(order), x)


def transpose(call: Call) -> int:
    """Two axes change places."""
    x = call.node("self")
    rank = call.rank(x)
    order = list(range(rank))
    a, b = call.axis("dim0", rank, -1), call.axis("dim1", rank, -2)
    if rank >= 2:
        order[a], order[b] = order[b], order[a]
    return call.add(ir.Permute(tuple(order)), x)


def start_of(call: Call, extent: Extent) -> Extent:
    """Where a slice begins: from the end where it is negative, never beyond it."""
    start = call.size("start", 0) if call.has("start") else Extent.of(0)
    constant, whole = start.constant, extent.constant
    if constant is not None and constant < 0:
        start = extent + start
        constant = start.constant
    if constant is not None and whole is not None:
        return Extent.of(min(max(constant, 0), whole))
    return start


def slice_(call: Call) -> int:
    """Part of an axis; how many elements it has, the trace tells."""
    x = call.node("self")
    axis = call.axis("dim", call.rank(x), 0)
    return cut(
        call, x, axis, start_of(call, call.shape(x)[axis]), call.type.shape[axis],
        call.whole("step", 1),
    )  # fmt: skip


def cut(call: Call, x: int, axis: int, start: Extent, length: Extent, step: int = 1) -> int:
    """A slice, unless it is the whole axis."""
    if start == Extent.of(0) and step == 1 and length == call.shape(x)[axis]:
        return x
    return call.add(ir.Slice(axis, start, length, step), x)


def select(call: Call) -> int:
    """One place of an axis, which vanishes; the place may be data."""
    x = call.node("self")
    axis = call.axis("dim", call.rank(x))
    extent = call.shape(x)[axis]
    if call.is_tensor("index"):
        return take(call, x, {axis: wrapped(call, call.node("index"), extent)})
    place = call.size("index")
    if place.constant is not None and place.constant < 0:
        place = extent + place
    return call.reshape(cut(call, x, axis, place, Extent.of(1)), call.type.shape)


def flip(call: Call) -> int:
    """Axes backwards."""
    x = call.node("self")
    for axis in call.axes("dims", call.rank(x)):
        extent = call.shape(x)[axis]
        x = call.add(ir.Slice(axis, extent - 1, extent, -1), x)
    return x


def concat(call: Call) -> int:
    """One after the other; what is empty and of one axis is left out, as torch does."""
    parts = [n for n in call.nodes("tensors") if call.shape(n) != (Extent.of(0),)]
    parts = [call.cast(n, call.type.dtype) for n in parts]
    if len(parts) == 1:
        return parts[0]
    return call.add(ir.Concat(call.axis("dim", call.type.rank, 0)), *parts)


def stack(call: Call) -> int:
    """One after the other along a new axis."""
    axis = call.axis("dim", call.type.rank, 0)
    shape = (*call.type.shape[:axis], Extent.of(1), *call.type.shape[axis + 1 :])
    parts = [call.reshape(call.cast(n, call.type.dtype), shape) for n in call.nodes("tensors")]
    return parts[0] if len(parts) == 1 else call.add(ir.Concat(axis), *parts)


def pad(call: Call) -> int:
    """More elements at either end of axes, or fewer where the amount is negative."""
    x = call.node("self")
    fill = call.constant(call.number("value", 0), call.type.dtype)
    amounts = [size_of(a) for a in call.raw("pad")]
    for i in range(len(amounts) // 2):
        axis = call.rank(x) - 1 - i
        x = padded(call, x, axis, amounts[2 * i], amounts[2 * i + 1], fill)
    return x


def padded(call: Call, x: int, axis: int, before: Extent, after: Extent, fill: int) -> int:
    """Pad or cut one axis."""
    cuts = [e for e in (before, after) if (e.constant or 0) < 0]
    if cuts:
        start = Extent() - before if before in cuts else Extent()
        length = call.shape(x)[axis] - start + (after if after in cuts else 0)
        x = cut(call, x, axis, start, length)
    before, after = (Extent() if e in cuts else e for e in (before, after))
    if before == after == Extent():
        return x
    return call.add(ir.Pad(axis, before, after), x, fill)


def split(call: Call) -> tuple[int, ...]:
    """Parts of the lengths that the trace found."""
    x = call.node("self")
    axis = call.axis("dim", call.rank(x), 0)
    parts, start = [], Extent()
    for found in call.types:
        assert found is not None
        parts.append(cut(call, x, axis, start, found.shape[axis]))
        start = start + found.shape[axis]
    return tuple(parts)


def unbind(call: Call) -> tuple[int, ...]:
    """One part for each place of an axis, which vanishes."""
    x = call.node("self")
    axis = call.axis("dim", call.rank(x), 0)
    one = Extent.of(1)
    parts = [cut(call, x, axis, Extent.of(i), one) for i in range(len(call.types))]
    return tuple(call.reshape(part, call.type.shape) for part in parts)


def slice_scatter(call: Call) -> int:
    """A copy with part of an axis replaced."""
    base, source = call.node("self"), call.node("src")
    axis = call.axis("dim", call.rank(base), 0)
    start = start_of(call, call.shape(base)[axis])
    step = call.whole("step", 1)
    source = call.cast(source, call.type_at(base).dtype)
    if step == 1 and call.shape(source) == call.shape(base):
        return source
    return call.add(ir.Update(axis, start, step), base, source)


def select_scatter(call: Call) -> int:
    """A copy with one place of an axis replaced."""
    base, source = call.node("self"), call.node("src")
    axis = call.axis("dim", call.rank(base))
    extent, place = call.shape(base)[axis], call.size("index")
    if place.constant is not None and place.constant < 0:
        place = extent + place
    shape = (*call.shape(base)[:axis], Extent.of(1), *call.shape(base)[axis + 1 :])
    source = call.cast(source, call.type_at(base).dtype)
    return call.add(ir.Update(axis, place), base, call.reshape(source, shape))


def repeat(call: Call) -> int:
    """The whole again and again along axes."""
    x = call.node("self")
    times = [size_of(t) for t in call.raw("repeats")]
    shape = (Extent.of(1),) * (len(times) - call.rank(x)) + call.shape(x)
    paired = tuple(e for t, s in zip(times, shape, strict=True) for e in (t, s))
    ones = tuple(e for s in shape for e in (Extent.of(1), s))
    found = call.expand(call.reshape(x, ones), paired)
    return call.reshape(found, call.type.shape)


def diagonal(call: Call) -> int:
    """The elements of two axes whose places are equal, or differ by the offset."""
    x, rank = call.node("self"), call.rank(call.node("self"))
    first, second = call.axis("dim1", rank, 0), call.axis("dim2", rank, 1)
    offset = call.whole("offset", 0)
    places = call.add(ir.Iota(call.type.shape[-1], ElementType.INT64))
    rows, columns = (call.with_number("add", places, max(o, 0)) for o in (-offset, offset))
    rest = [a for a in range(rank) if a not in (first, second)]
    table = call.add(ir.Permute((first, second, *rest)), x)
    found = call.add(ir.Take(), table, rows, columns)
    return call.add(ir.Permute((*range(1, rank - 1), 0)), found)


def unfold(call: Call) -> int:
    """Windows over an axis, which become a last axis."""
    x, rank = call.node("self"), call.rank(call.node("self"))
    axis, step = call.axis("dimension", rank), call.whole("step")
    starts = call.add(ir.Iota(call.type.shape[axis], ElementType.INT64))
    starts = call.reshape(
        call.with_number("mul", starts, step), (*call.shape(starts), Extent.of(1))
    )
    window = call.add(ir.Iota(call.type.shape[-1], ElementType.INT64))
    found = take(call, x, {axis: call.function("add", starts, window)})
    order = [a for a in range(rank + 1) if a != axis + 1]
    return call.add(ir.Permute((*order, axis + 1)), found)


def refuse(reason: str) -> Rule:
    """Not a row program, for this reason."""

    def rule(_call: Call) -> int:
        raise NotLowered(reason)

    return rule


_X = ("self",)
_DIM = ("self", "dim")

RULES: Mapping[str, tuple[Rule | Rules, tuple[str, ...]]] = {
    **{
        f"aten.{name}": (view, _X)
        for name in ("view", "_unsafe_view", "reshape", "_reshape_copy", "unsqueeze", "squeeze")
    },
    "aten.flatten": (view, _X),
    "aten.expand": (expand, _X),
    "aten.permute": (permute, ("self", "dims")),
    "aten.transpose": (transpose, ("self", "dim0", "dim1")),
    "aten.t": (transpose, _X),
    "aten.slice": (slice_, ("self", "dim", "start", "end", "step")),
    "aten.select": (select, ("self", "dim", "index")),
    "aten.flip": (flip, ("self", "dims")),
    "prims.rev": (flip, ("self", "dims")),
    "aten.cat": (concat, ("tensors", "dim")),
    "aten.stack": (stack, ("tensors", "dim")),
    "aten.constant_pad_nd": (pad, ("self", "pad", "value")),
    "aten.split": (split, ("self", "split_size", "dim")),
    "aten.split_with_sizes": (split, ("self", "split_sizes", "dim")),
    "aten.unbind": (unbind, _DIM),
    "aten.slice_scatter": (slice_scatter, ("self", "src", "dim", "start", "end", "step")),
    "aten.select_scatter": (select_scatter, ("self", "src", "dim", "index")),
    "aten.repeat": (repeat, ("self", "repeats")),
    "aten.as_strided": (refuse("strides of its own are no view of axes"), _X),
    "aten.view_as_complex": (refuse("complex numbers"), _X),
    "aten.diagonal": (diagonal, ("self", "offset", "dim1", "dim2")),
    "aten.unfold": (unfold, ("self", "dimension", "size", "step")),
    **{
        f"aten.{name}": (refuse("how many elements it gives is data"), _X)
        for name in ("nonzero", "masked_select", "bincount", "unique_consecutive", "_unique2")
    },
    **{
        f"aten.{name}": (refuse("complex numbers"), _X)
        for name in ("_fft_r2c", "_fft_c2c", "_fft_c2r")
    },
    "aten._local_scalar_dense": (refuse("a number read back from the device"), _X),
    "aten.rand": (refuse("random numbers"), ()),
    "aten.randn": (refuse("random numbers"), ()),
    "aten.randint": (refuse("random numbers"), ()),
}
"""By operator, overloads left out: the rule and its arguments' names in order."""
