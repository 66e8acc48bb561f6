"""Tensors in memory as a kernel sees them: names, strides, and the sizes that it is passed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from evolver.proposers.synth.emit.index import Index, Place
from evolver.proposers.synth.extents import Extent, product
from evolver.proposers.synth.types import ElementType, TensorType

ONE = Extent.of(1)


@dataclass(frozen=True)
class Tensor:
    """A pointer with strides; a stride that is an argument is a symbol of its own."""

    name: str
    type: TensorType
    strides: tuple[Extent, ...]
    parameter: str | None = None
    """The argument that it is; None for one that a kernel made."""

    @property
    def dtype(self) -> ElementType:
        """Its element type."""
        return self.type.dtype

    def offset(self, place: Place) -> Index:
        """How many elements from the pointer ``place`` lies."""
        result = Index()
        for index, stride in zip(place, self.strides, strict=True):
            result = result + index * stride
        return result

    @property
    def passed_strides(self) -> tuple[tuple[int, str], ...]:
        """The axes whose strides are arguments, with their names."""
        return tuple(
            (axis, next(iter(stride.symbols)))
            for axis, stride in enumerate(self.strides)
            if self.parameter is not None and stride.symbols and stride.constant is None
        )


class Memory:
    """All tensors of a program, and the names of its sizes."""

    def __init__(self, sizes: Mapping[str, str], spell: Callable[[str], str] = str) -> None:
        self._sizes = dict(sizes)
        self._spell = spell
        self._of_node: dict[int, Tensor] = {}
        self.arguments: dict[str, Tensor] = {}
        """By parameter."""

    def add_argument(self, parameter: str, tensor: Tensor) -> None:
        """Let kernels know an argument."""
        self.arguments[parameter] = tensor

    def add_node(self, number: int, tensor: Tensor) -> None:
        """Let kernels from here on read a node from memory."""
        self._of_node[number] = tensor

    def tensor(self, number: int) -> Tensor | None:
        """Where a node lies, if it is in memory."""
        return self._of_node.get(number)

    def size(self, extent: Extent) -> str:
        """An extent as an expression of sizes and strides that a kernel is passed."""
        terms = []
        for monomial, factor in reversed(extent.terms):
            names = [self._sizes.get(symbol, symbol) for symbol in monomial]
            if factor != 1 or not names:
                names.append(str(factor))
            terms.append(" * ".join(names))
        return " + ".join(terms).replace("+ -", "- ") or "0"


def contiguous(name: str, type_: TensorType) -> Tensor:
    """A tensor that a kernel makes: row-major."""
    strides = tuple(product(type_.shape[axis + 1 :]) for axis in range(type_.rank))
    return Tensor(name, type_, strides)


def argument(parameter: str, type_: TensorType, name: str) -> Tensor:
    """An argument of any strides but the last, which is made 1 before."""
    inner = type_.rank - 1
    strides = tuple(
        Extent.of(f"{parameter}_stride_{axis}") if axis < inner else ONE
        for axis in range(type_.rank)
    )
    return Tensor(name, type_, strides, parameter)
