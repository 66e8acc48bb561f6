"""Operations that compute: constants, functions of elements, reductions, scans, products.

``Matmul`` and ``Convolution`` are the borders of row programs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from evolver.proposers.synth.extents import Extent
from evolver.proposers.synth.op import Op, axes_exist, expect, same
from evolver.proposers.synth.pointwise import FUNCTIONS
from evolver.proposers.synth.types import ElementType, IrError, TensorType


@dataclass(frozen=True)
class Input(Op):
    """A tensor argument, of any strides, as it is before the program writes anything."""

    parameter: str
    type: TensorType

    def result(self, *operands: TensorType) -> TensorType:
        """Its type."""
        expect(operands, 0, self)
        return self.type

    def __str__(self) -> str:
        return f"input {self.parameter}"


@dataclass(frozen=True)
class Constant(Op):
    """A number without axes; an extent is the number that the axis has at run time."""

    value: bool | int | float | Extent
    dtype: ElementType

    def result(self, *operands: TensorType) -> TensorType:
        """A scalar."""
        expect(operands, 0, self)
        return TensorType((), self.dtype)

    def __str__(self) -> str:
        return f"constant {self.value}"


@dataclass(frozen=True)
class Iota(Op):
    """0, 1, 2, ... up to ``length``."""

    length: Extent
    dtype: ElementType

    def result(self, *operands: TensorType) -> TensorType:
        """One axis."""
        expect(operands, 0, self)
        return TensorType((self.length,), self.dtype)


@dataclass(frozen=True)
class Pointwise(Op):
    """A scalar function of ``pointwise.FUNCTIONS``, element by element."""

    function: str

    def result(self, *operands: TensorType) -> TensorType:
        """The operands' common shape; their type, or truth values."""
        known = FUNCTIONS.get(self.function)
        if known is None:
            raise IrError(f"no pointwise function is called {self.function!r}")
        expect(operands, known.arity, self)
        same(operands, self)
        if not known.takes(operands[0].dtype):
            raise IrError(f"{self} does not take {operands[0].dtype.value}")
        return operands[0].with_dtype(ElementType.BOOL) if known.gives_bool else operands[0]

    def __str__(self) -> str:
        return self.function


@dataclass(frozen=True)
class Select(Op):
    """The second operand where the first is true, else the third."""

    def result(self, *operands: TensorType) -> TensorType:
        """The type of the two that it selects from."""
        expect(operands, 3, self)
        if operands[0] != operands[1].with_dtype(ElementType.BOOL):
            raise IrError(f"{self} takes truth values of the shape of {operands[1]}")
        return same(operands[1:], self)


@dataclass(frozen=True)
class Cast(Op):
    """To another element type, as torch converts: floats to integers towards zero."""

    dtype: ElementType

    def result(self, *operands: TensorType) -> TensorType:
        """The shape, with the other element type."""
        expect(operands, 1, self)
        return operands[0].with_dtype(self.dtype)


ReduceKind = Literal["sum", "prod", "max", "min", "argmax", "argmin", "any", "all"]


@dataclass(frozen=True)
class Reduce(Op):
    """Along ``axes``, which vanish.

    Narrow floats are accumulated in float32 and rounded once; integers stay what they are.
    ``argmax`` and ``argmin`` take one axis and give the first of equal elements as int64.
    ``max``, ``min`` and their positions give NaN where there is one.
    """

    kind: ReduceKind
    axes: tuple[int, ...]

    def result(self, *operands: TensorType) -> TensorType:
        """The shape without the axes."""
        expect(operands, 1, self)
        (operand,) = operands
        if not self.axes or len(set(self.axes)) != len(self.axes):
            raise IrError(f"{self} needs distinct axes")
        axes_exist(self.axes, operand, self)
        is_bool = operand.dtype is ElementType.BOOL
        if (self.kind in ("any", "all")) != is_bool:
            raise IrError(f"{self} does not take {operand.dtype.value}")
        shape = tuple(e for i, e in enumerate(operand.shape) if i not in self.axes)
        if not self.kind.startswith("arg"):
            return TensorType(shape, operand.dtype)
        if len(self.axes) != 1:
            raise IrError(f"{self} takes one axis")
        return TensorType(shape, ElementType.INT64)


@dataclass(frozen=True)
class Scan(Op):
    """Running sum, product, maximum, minimum or logsumexp along an axis, inclusive."""

    kind: Literal["sum", "prod", "max", "min", "logsumexp"]
    axis: int

    def result(self, *operands: TensorType) -> TensorType:
        """The operand's type."""
        expect(operands, 1, self)
        axes_exist((self.axis,), operands[0], self)
        if operands[0].dtype is ElementType.BOOL:
            raise IrError(f"{self} does not take truth values; cast them")
        if self.kind == "logsumexp" and not operands[0].dtype.is_floating:
            raise IrError(f"{self} takes floats")
        return operands[0]


@dataclass(frozen=True)
class Matmul(Op):
    """``a @ b`` over equal batch axes; narrow floats are accumulated in float32."""

    def result(self, *operands: TensorType) -> TensorType:
        """[..., m, n] of [..., m, k] and [..., k, n]."""
        expect(operands, 2, self)
        a, b = operands
        if a.rank < 2 or a.rank != b.rank or a.dtype is not b.dtype or not a.dtype.is_floating:
            raise IrError(f"{self} of {a} and {b}")
        if a.shape[:-2] != b.shape[:-2] or a.shape[-1] != b.shape[-2]:
            raise IrError(f"{self} of {a} and {b}: the extents differ")
        return TensorType((*a.shape[:-1], b.shape[-1]), a.dtype)


@dataclass(frozen=True)
class Convolution(Op):
    """``x`` [n, c, *space] with ``weight`` [o, c / groups, *window], as torch has it."""

    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int = 1

    def result(self, *operands: TensorType) -> TensorType:
        """[n, o, *space]; extents of the space must be numbers where the stride is not 1."""
        expect(operands, 2, self)
        x, weight = operands
        rank = len(self.stride)
        if not x.rank == weight.rank == rank + 2 or x.dtype is not weight.dtype:
            raise IrError(f"{self} of {x} and {weight}")
        if weight.shape[1] * self.groups != x.shape[1]:
            raise IrError(f"{self} of {x} and {weight}: the channels differ")
        space = (self._extent(i, x.shape[i + 2], weight.shape[i + 2]) for i in range(rank))
        return TensorType((x.shape[0], weight.shape[0], *space), x.dtype)

    def _extent(self, i: int, extent: Extent, window: Extent) -> Extent:
        reach = (window - 1) * self.dilation[i] + 1
        free = extent + 2 * self.padding[i] - reach
        if self.stride[i] == 1:
            return free + 1
        if free.constant is None:
            raise IrError(f"{self} over an axis that varies")
        return Extent.of(free.constant // self.stride[i] + 1)
