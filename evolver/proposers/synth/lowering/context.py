"""What lowering rules work with: the program that grows, arguments by name, common steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evolver.proposers.synth import ir
from evolver.proposers.synth.aten import AtenNode, AtenType
from evolver.proposers.synth.extents import Extent, product
from evolver.proposers.synth.lowering.promotion import Weight, of_number, promoted
from evolver.proposers.synth.types import ElementType, Shape, TensorType

Number = bool | int | float
Value = int | tuple[int | None, ...] | None
"""A node, several, or one that could not be lowered."""


class NotLowered(Exception):
    """An operator that has no place in a row program; the message says why."""


class Call:
    """One ATen node with its arguments read, and the program that it adds to."""

    def __init__(
        self, node: AtenNode, names: Sequence[str], builder: ir.Builder, values: Mapping[str, Value]
    ) -> None:
        self.builder = builder
        self._node = node
        self._values = values
        self._given = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
        self.types = tuple(None if t is None else type_of(t) for t in node.types)

    @property
    def type(self) -> TensorType:
        """What the trace says that it gives."""
        found = self.types[0] if self.types else None
        if found is None:
            raise NotLowered("it gives no tensor")
        return found

    def has(self, name: str) -> bool:
        """Whether an argument is given and not null."""
        return self._given.get(name) is not None

    def raw(self, name: str, default: Any = None) -> Any:
        """An argument as it came."""
        return self._given.get(name, default)

    def node(self, name: str) -> int:
        """A tensor argument."""
        return self.as_node(self._given.get(name))

    def as_node(self, raw: Any) -> int:
        """The node that an argument names."""
        value = self._values[raw["node"]] if isinstance(raw, dict) and "node" in raw else None
        if not isinstance(value, int):
            raise NotLowered("an argument is no tensor")
        return value

    def nodes(self, name: str) -> list[int]:
        """A list of tensors."""
        return [self.as_node(raw) for raw in self._given.get(name, ())]

    def flag(self, name: str, default: bool = False) -> bool:
        """A truth value."""
        return bool(self._given.get(name, default))

    def size(self, name: str, default: int | None = None) -> Extent:
        """A size or a position."""
        return size_of(self._given.get(name, default))

    def whole(self, name: str, default: int | None = None) -> int:
        """A number that is known while compiling."""
        constant = self.size(name, default).constant
        if constant is None:
            raise NotLowered(f"its {name} varies with the sizes")
        return constant

    def axis(self, name: str, rank: int, default: int | None = None) -> int:
        """An axis, counted from the front."""
        found = self.whole(name, default)
        return found + rank if found < 0 else found

    def axes(self, name: str, rank: int) -> tuple[int, ...]:
        """Axes, counted from the front; all of them where none are given."""
        raw = self._given.get(name)
        listed = [raw] if isinstance(raw, int) else list(raw or range(rank))
        return tuple(sorted(a + rank if a < 0 else a for a in listed))

    def dtype(self, name: str = "dtype") -> ElementType | None:
        """An element type, None where none is given."""
        raw = self._given.get(name)
        return element_type(str(raw["dtype"])) if isinstance(raw, dict) else None

    def number(self, name: str, default: Number | None = None) -> Number | Extent:
        """A number, or a size that stands for one."""
        raw = self._given.get(name, default)
        if isinstance(raw, dict) and "size" in raw:
            return Extent.of(str(raw["size"]))
        if not isinstance(raw, bool | int | float):
            raise NotLowered(f"its {name} is no number")
        return raw

    def is_tensor(self, name: str) -> bool:
        """Whether an argument is a tensor rather than a number."""
        raw = self._given.get(name)
        return isinstance(raw, dict) and "node" in raw

    # Steps that many rules take.

    def add(self, op: ir.Op, *operands: int) -> int:
        """Add a node."""
        return self.builder.add(op, *operands)

    def type_at(self, number: int) -> TensorType:
        """The type of a node."""
        return self.builder.type(number)

    def shape(self, number: int) -> Shape:
        """The shape of a node."""
        return self.type_at(number).shape

    def rank(self, number: int) -> int:
        """The number of axes of a node."""
        return self.type_at(number).rank

    def cast(self, number: int, dtype: ElementType) -> int:
        """Convert, where it is another type."""
        if self.type_at(number).dtype is dtype:
            return number
        if dtype is ElementType.BOOL:
            zero = self.full(0, self.type_at(number))
            return self.add(ir.Pointwise("ne"), number, zero)
        return self.add(ir.Cast(dtype), number)

    def constant(self, value: Number | Extent, dtype: ElementType) -> int:
        """A number without axes, in the form that its type has."""
        if not isinstance(value, Extent):
            convert = float if dtype.is_floating else int if dtype.is_integer else bool
            try:
                value = convert(value)
            except (OverflowError, ValueError) as error:
                raise NotLowered(f"{value} is no {dtype.value}") from error
        elif value.constant is not None:
            return self.constant(value.constant, dtype)
        return self.add(ir.Constant(value, dtype))

    def full(self, value: Number | Extent, type_: TensorType) -> int:
        """A tensor of one number."""
        return self.expand(self.constant(value, type_.dtype), type_.shape)

    def expand(self, number: int, shape: Shape) -> int:
        """Broadcast, where it has another shape."""
        return number if self.shape(number) == shape else self.add(ir.Expand(shape), number)

    def reshape(self, number: int, shape: Shape) -> int:
        """Reshape, where it has another shape."""
        return number if self.shape(number) == shape else self.add(ir.Reshape(shape), number)

    def broadcast(self, *numbers: int) -> tuple[int, ...]:
        """Bring nodes to their common shape."""
        rank = max(self.rank(n) for n in numbers)
        shape = [Extent.of(1)] * rank
        for number in numbers:
            for i, extent in enumerate(self.shape(number), rank - self.rank(number)):
                shape[i] = extent if shape[i] == Extent.of(1) else shape[i]
        return tuple(self.expand(n, tuple(shape)) for n in numbers)

    def function(self, name: str, *numbers: int) -> int:
        """A pointwise function of nodes of one type, broadcast."""
        return self.add(ir.Pointwise(name), *self.broadcast(*numbers))

    def with_number(self, name: str, number: int, value: Number | Extent) -> int:
        """A pointwise function of a node and a number of its type."""
        return self.function(name, number, self.constant(value, self.type_at(number).dtype))

    def wide(self, number: int) -> int:
        """The node in the type that kernels compute in."""
        return self.cast(number, self.type_at(number).dtype.wide)

    def count(self, number: int, axes: Sequence[int]) -> Extent:
        """The number of elements along ``axes``."""
        return product(self.shape(number)[a] for a in axes)

    def kept(self, number: int, axes: Sequence[int], *, keep: bool) -> int:
        """The result of a reduction, with axes of one where they are to be kept."""
        if not keep:
            return number
        shape = list(self.shape(number))
        for axis in axes:
            shape.insert(axis, Extent.of(1))
        return self.reshape(number, tuple(shape))

    def operand(self, name: str, dtype: ElementType) -> int:
        """A tensor or a number as a node of ``dtype``."""
        if self.is_tensor(name):
            return self.cast(self.node(name), dtype)
        return self.constant(self.number(name), dtype)

    def common_type(self, *names: str) -> ElementType:
        """The type that torch computes in with these arguments."""
        return promoted([self._weighed(name) for name in names])

    def _weighed(self, name: str) -> tuple[ElementType, Weight]:
        if not self.is_tensor(name):
            value = self.number(name)
            return of_number(0 if isinstance(value, Extent) else value), Weight.NUMBER
        found = self.type_at(self.node(name))
        return found.dtype, Weight.TENSOR if found.rank else Weight.SCALAR


def type_of(raw: AtenType) -> TensorType:
    """The type that the trace recorded.

    Raises:
        ExtentError: an extent is no polynomial.
        NotLowered: no program computes with this element type.
    """
    return TensorType(tuple(Extent.of(e) for e in raw.shape), element_type(raw.dtype))


def element_type(name: str) -> ElementType:
    """The element type that torch calls ``name``."""
    try:
        return ElementType(name)
    except ValueError as error:
        raise NotLowered(f"elements of type {name[:40]}") from error


def size_of(raw: Any) -> Extent:
    """A size that a graph holds: a number, or ``{"size": text}``."""
    if isinstance(raw, dict) and "size" in raw:
        return Extent.of(str(raw["size"]))
    if isinstance(raw, int):
        return Extent.of(int(raw))
    raise NotLowered("a size is missing")
