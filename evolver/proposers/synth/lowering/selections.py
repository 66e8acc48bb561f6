"""Rules for top-k, sorting, gathers, scatters and look-ups."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from evolver.proposers.synth import ir
from evolver.proposers.synth.extents import Extent
from evolver.proposers.synth.lowering.context import Call, NotLowered
from evolver.proposers.synth.selection import INDEX_TYPES, Combine
from evolver.proposers.synth.types import ElementType, Shape

Rule = Callable[[Call], int]
Rules = Callable[[Call], tuple[int, ...]]


def top_k(call: Call) -> tuple[int, int]:
    """The values are a gather at the positions."""
    x = call.node("self")
    axis = call.axis("dim", call.rank(x), -1)
    op = ir.TopK(call.whole("k"), axis, call.flag("largest", True), call.flag("sorted", True))
    found = call.add(op, x)
    return call.add(ir.Gather(axis), x, found), found


def kth_value(call: Call) -> tuple[int, int]:
    """The last of the ``k`` smallest."""
    x, k = call.node("self"), call.whole("k")
    axis = call.axis("dim", call.rank(x), -1)
    found = call.add(ir.TopK(k, axis, largest=False), x)
    last = call.add(ir.Slice(axis, Extent.of(k - 1), Extent.of(1)), found)
    shape = call.type.shape
    return call.reshape(call.add(ir.Gather(axis), x, last), shape), call.reshape(last, shape)


def search_sorted(call: Call) -> int:
    """How many of a sorted list lie before each element."""
    x, edges = call.node("self"), call.node("sorted_sequence")
    if call.rank(edges) != 1 or call.has("sorter"):
        raise NotLowered("a list for each row, or one that is not sorted")
    right = call.flag("right") or call.raw("side") == "right"
    one, dtype = Extent.of(1), call.type.dtype
    if call.type_at(x).dtype is not call.type_at(edges).dtype:
        raise NotLowered("a list of another type than what is looked up")
    name = "le" if right else "lt"
    before = call.function(name, edges, call.reshape(x, (*call.shape(x), one)))
    return call.add(ir.Reduce("sum", (call.rank(before) - 1,)), call.cast(before, dtype))


def sort(call: Call) -> tuple[int, int]:
    """The values are a gather at the positions."""
    x = call.node("self")
    axis = call.axis("dim", call.rank(x), -1)
    found = call.add(ir.ArgSort(axis, call.flag("descending")), x)
    return call.add(ir.Gather(axis), x, found), found


def gather(call: Call) -> int:
    """Other axes of what is gathered from are cut to the index's, as torch does."""
    x, index = call.node("self"), call.node("index")
    axis = call.axis("dim", call.rank(x))
    return call.add(ir.Gather(axis), _cut(call, x, call.shape(index), axis), index)


def scatter(combine: Combine) -> Rule:
    """A tensor or a number goes to the index's places."""

    def rule(call: Call) -> int:
        base, index = call.node("self"), call.node("index")
        axis, dtype = call.axis("dim", call.rank(base)), call.type_at(base).dtype
        chosen: Combine = _COMBINES[str(call.raw("reduce"))] if call.has("reduce") else combine
        if not call.flag("include_self", True):
            raise NotLowered("a reduction without what was there before")
        if call.is_tensor("src") or call.is_tensor("value"):
            name = "src" if call.is_tensor("src") else "value"
            source = call.expand(call.cast(call.node(name), dtype), call.shape(index))
        else:
            raw = "value" if call.has("value") else "src"
            source = call.full(call.number(raw), call.type_at(index).with_dtype(dtype))
        source = _cut(call, source, call.shape(index), None)
        return call.add(ir.Scatter(axis, chosen), base, index, source)

    return rule


_COMBINES: Mapping[str, Combine] = {
    "add": "sum",
    "sum": "sum",
    "multiply": "prod",
    "prod": "prod",
    "amax": "max",
    "amin": "min",
}


def _cut(call: Call, number: int, shape: Shape, but: int | None) -> int:
    """``number`` without what lies beyond ``shape``, the axis ``but`` left out."""
    for axis, extent in enumerate(shape):
        if axis != but and call.shape(number)[axis] != extent:
            number = call.add(ir.Slice(axis, Extent.of(0), extent), number)
    return number


def index_select(call: Call) -> int:
    """Whole slices at the positions of a one-dimensional index."""
    x, index = call.node("self"), call.node("index")
    axis = call.axis("dim", call.rank(x))
    return take(call, x, {axis: wrapped(call, index, call.shape(x)[axis])})


def embedding(call: Call) -> int:
    """Rows of the weight."""
    return call.add(ir.Take(), call.node("weight"), call.node("indices"))


def index(call: Call) -> int:
    """``x[i, :, j]``: indices are broadcast, and count from the end where they are negative."""
    x = call.node("self")
    return take(call, x, _indices(call, x))


def _indices(call: Call, x: int) -> dict[int, int]:
    raw: Sequence[Any] = call.raw("indices", ())
    found: dict[int, int] = {}
    for axis, each in enumerate(raw):
        if each is not None:
            number = call.as_node(each)
            if call.type_at(number).dtype not in INDEX_TYPES:
                raise NotLowered("how many elements an index by truth values gives is data")
            found[axis] = wrapped(call, number, call.shape(x)[axis])
    numbers = call.broadcast(*found.values())
    return dict(zip(found, numbers, strict=True))


def take(call: Call, x: int, indices: Mapping[int, int]) -> int:
    """Look up ``indices`` by axis; their axes stand where torch puts them."""
    axes = list(indices)
    rest = [a for a in range(call.rank(x)) if a not in indices]
    table = _permuted(call, x, [*axes, *rest])
    found = call.add(ir.Take(), table, *indices.values())
    adjacent = axes == list(range(axes[0], axes[0] + len(axes)))
    before = axes[0] if adjacent else 0
    count = call.rank(next(iter(indices.values())))
    order = [
        *range(count, count + before),
        *range(count),
        *range(count + before, call.rank(found)),
    ]
    return _permuted(call, found, order)


def index_put(call: Call) -> int:
    """A tensor or number goes to the places of the indices."""
    base, values = call.node("self"), call.node("values")
    indices = _indices(call, base)
    axes, rest = list(indices), [a for a in range(call.rank(base)) if a not in indices]
    adjacent = axes == list(range(axes[0], axes[0] + len(axes)))
    if (axes[0] if adjacent else 0) and rest:
        raise NotLowered("an index that leaves out leading axes")
    order = [*axes, *rest]
    table = _permuted(call, base, order)
    numbers = tuple(indices.values())
    shape = (*call.shape(numbers[0]), *call.shape(table)[len(axes) :])
    source = call.expand(call.cast(values, call.type_at(base).dtype), shape)
    combine: Combine = "sum" if call.flag("accumulate") else "store"
    found = call.add(ir.Put(combine), table, source, *numbers)
    return _permuted(call, found, [order.index(a) for a in range(len(order))])


def _permuted(call: Call, number: int, order: Sequence[int]) -> int:
    if list(order) == list(range(len(order))):
        return number
    return call.add(ir.Permute(tuple(order)), number)


def wrapped(call: Call, number: int, extent: Extent) -> int:
    """An index from the front: one that may be negative counts from the end."""
    if is_never_negative(call.builder, number):
        return number
    kept = call.type_at(number)
    negative = call.with_number("lt", number, 0)
    shifted = call.function("add", number, call.full(extent, kept))
    return call.add(ir.Select(), negative, shifted, number)


def is_never_negative(builder: ir.Builder, number: int) -> bool:
    """Whether an index is known to be zero or more, by how it came about."""
    node = builder.node(number)
    match node.op:
        case ir.Iota() | ir.TopK() | ir.ArgSort():
            return True
        case ir.Reduce(kind):
            return kind.startswith("arg")
        case ir.Constant(value):
            return isinstance(value, Extent) or value >= 0
        case ir.Pointwise("add" | "mul" | "floor_div" | "remainder"):
            return all(is_never_negative(builder, o) for o in node.operands)
        case ir.Cast() if builder.type(node.operands[0]).dtype is ElementType.BOOL:
            return True
        case ir.Select():
            return all(is_never_negative(builder, o) for o in node.operands[1:])
        case ir.Cast() | ir.Expand() | ir.Reshape() | ir.Permute() | ir.Slice() | ir.Gather():
            return is_never_negative(builder, node.operands[0])
    return False


RULES: Mapping[str, tuple[Rule | Rules, tuple[str, ...]]] = {
    "aten.topk": (top_k, ("self", "k", "dim", "largest", "sorted")),
    "aten.kthvalue": (kth_value, ("self", "k", "dim")),
    "aten.searchsorted": (search_sorted, ("sorted_sequence", "self")),
    "aten.bucketize": (search_sorted, ("self", "sorted_sequence")),
    "aten.sort": (sort, ("self", "dim", "descending")),
    "aten.gather": (gather, ("self", "dim", "index")),
    "aten.scatter": (scatter("store"), ("self", "dim", "index", "src")),
    "aten.scatter_add": (scatter("sum"), ("self", "dim", "index", "src")),
    "aten.scatter_reduce": (scatter("store"), ("self", "dim", "index", "src", "reduce")),
    "aten.index_select": (index_select, ("self", "dim", "index")),
    "aten.embedding": (embedding, ("weight", "indices")),
    "aten.index": (index, ("self", "indices")),
    "aten._unsafe_index": (index, ("self", "indices")),
    "aten.index_put": (index_put, ("self", "indices", "values", "accumulate")),
    "aten._unsafe_index_put": (index_put, ("self", "indices", "values", "accumulate")),
}
"""By operator, overloads left out: the rule and its arguments' names in order."""


def overloaded(target: str) -> tuple[Rule | Rules, tuple[str, ...]] | None:
    """The rule where the overload decides on the order of arguments."""
    if target == "aten.sort.stable":
        return sort, ("self", "stable", "dim", "descending")
    if target in ("aten.scatter.value", "aten.scatter.value_reduce"):
        return scatter("store"), ("self", "dim", "index", "value")
    return None
