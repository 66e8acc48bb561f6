"""Operations that choose places by value: top-k, sorting, gathers, scatters and look-ups.

``Gather`` and ``Scatter`` stay within a row; ``Take`` and ``Put`` reach anywhere in memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from evolver.proposers.synth.extents import Extent
from evolver.proposers.synth.op import Op, axes_exist, expect, replaced
from evolver.proposers.synth.types import ElementType, IrError, TensorType

INDEX_TYPES = (ElementType.INT64, ElementType.INT32)


@dataclass(frozen=True)
class TopK(Op):
    """Positions of the ``k`` largest (or smallest) along an axis, as int64.

    Sorted by value, and of equal values the first comes first; where ``ordered`` is false an
    implementation may give them in any order. The values are a ``Gather`` of the operand.
    """

    k: int
    axis: int
    largest: bool = True
    ordered: bool = True

    def result(self, *operands: TensorType) -> TensorType:
        """The operand's shape with ``k`` along the axis."""
        expect(operands, 1, self)
        (operand,) = operands
        axes_exist((self.axis,), operand, self)
        extent = operand.shape[self.axis].constant
        if self.k < 0 or (extent is not None and self.k > extent):
            raise IrError(f"{self} of an axis of {operand.shape[self.axis]}")
        shape = replaced(operand.shape, self.axis, Extent.of(self.k))
        return TensorType(shape, ElementType.INT64)

    def fits(self, sizes: Mapping[str, int], operands: Sequence[TensorType]) -> bool:
        """Whether there are ``k`` elements."""
        return self.k <= operands[0].shape[self.axis].at(sizes)


@dataclass(frozen=True)
class ArgSort(Op):
    """Positions that sort an axis, as int64; NaN counts as largest, equal values keep order."""

    axis: int
    descending: bool = False

    def result(self, *operands: TensorType) -> TensorType:
        """The operand's shape."""
        expect(operands, 1, self)
        axes_exist((self.axis,), operands[0], self)
        return operands[0].with_dtype(ElementType.INT64)


@dataclass(frozen=True)
class Gather(Op):
    """``operand[..., index[..., j, ...], ...]``: picks along one axis within each row.

    Operands: the tensor, the index. They agree in all other axes. An index lies in
    [0, extent); what torch wraps or promises otherwise is spelled out before.
    """

    moves: ClassVar[bool] = True
    axis: int

    def result(self, *operands: TensorType) -> TensorType:
        """The index's shape, the operand's element type."""
        expect(operands, 2, self)
        operand, index = operands
        axes_exist((self.axis,), operand, self)
        _index(index, self)
        if replaced(operand.shape, self.axis, Extent()) != replaced(
            index.shape, self.axis, Extent()
        ):
            raise IrError(f"{self} of {operand} by {index}: other axes differ")
        return index.with_dtype(operand.dtype)


Combine = Literal["store", "sum", "prod", "max", "min"]


@dataclass(frozen=True)
class Scatter(Op):
    """A copy of the base with ``source`` put at ``index`` along one axis within each row.

    Operands: base, index, source. Index and source have one shape; all agree in the other axes.
    Where several elements fall on one place, ``store`` keeps any of them, the others combine
    them with what the base has there.
    """

    axis: int
    combine: Combine = "store"

    def result(self, *operands: TensorType) -> TensorType:
        """The base's type."""
        expect(operands, 3, self)
        base, index, source = operands
        Gather(self.axis).result(base, index)
        if source != index.with_dtype(base.dtype):
            raise IrError(f"{self} of {source} into {base} by {index}")
        return base


@dataclass(frozen=True)
class Take(Op):
    """``table[i, j, ...]``: look-ups in memory along the leading axes.

    Operands: the table, then one index per looked-up axis, all of one shape, each within
    [0, extent). Embeddings, paged caches and advanced indexing are this.
    """

    moves: ClassVar[bool] = True

    def result(self, *operands: TensorType) -> TensorType:
        """The indices' shape, then the table's remaining axes."""
        table, indices = operands[0], operands[1:]
        _lookup(table, indices, self)
        return TensorType(indices[0].shape + table.shape[len(indices) :], table.dtype)


@dataclass(frozen=True)
class Put(Op):
    """A copy of the base with ``source`` put at ``base[i, j, ...]``: the inverse of ``Take``.

    Operands: base, source, then the indices. Places are combined as in ``Scatter``.
    """

    combine: Combine = "store"

    def result(self, *operands: TensorType) -> TensorType:
        """The base's type."""
        if len(operands) < 3:
            raise IrError(f"{self} takes a base, a source and indices")
        base, source, *indices = operands
        if source != Take().result(base, *indices):
            raise IrError(f"{self} of {source} into {base} by {', '.join(map(str, indices))}")
        return base


def _index(index: TensorType, op: Op) -> None:
    if index.dtype not in INDEX_TYPES:
        raise IrError(f"{op} takes an index of int64 or int32, not {index.dtype.value}")


def _lookup(table: TensorType, indices: Sequence[TensorType], op: Op) -> None:
    if not indices or len(indices) > table.rank:
        raise IrError(f"{op} of {table} by {len(indices)} indices")
    for index in indices:
        _index(index, op)
        if index.shape != indices[0].shape:
            raise IrError(f"{op} by indices of different shapes")
