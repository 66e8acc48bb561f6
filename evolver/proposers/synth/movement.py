"""Operations that move elements by a rule on their places alone, and change none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from evolver.proposers.synth.extents import Extent
from evolver.proposers.synth.op import Op, axes_exist, expect, replaced, same
from evolver.proposers.synth.types import IrError, Shape, TensorType


@dataclass(frozen=True)
class Reshape(Op):
    """The same elements in row-major order with other extents."""

    moves: ClassVar[bool] = True
    shape: Shape

    def result(self, *operands: TensorType) -> TensorType:
        """The new shape, of as many elements."""
        expect(operands, 1, self)
        result = TensorType(self.shape, operands[0].dtype)
        if result.numel != operands[0].numel:
            raise IrError(f"{self} of {operands[0]}: the number of elements differs")
        return result


@dataclass(frozen=True)
class Permute(Op):
    """Axis ``i`` of the result is axis ``order[i]`` of the operand."""

    moves: ClassVar[bool] = True
    order: tuple[int, ...]

    def result(self, *operands: TensorType) -> TensorType:
        """The extents in the new order."""
        expect(operands, 1, self)
        (operand,) = operands
        if sorted(self.order) != list(range(operand.rank)):
            raise IrError(f"{self} of {operand}: that is no order of its axes")
        return TensorType(tuple(operand.shape[i] for i in self.order), operand.dtype)


@dataclass(frozen=True)
class Expand(Op):
    """Broadcast: axes are aligned on the right; an axis of one, or a missing one, repeats."""

    moves: ClassVar[bool] = True
    shape: Shape

    def result(self, *operands: TensorType) -> TensorType:
        """The new shape."""
        expect(operands, 1, self)
        (operand,) = operands
        aligned = self.shape[len(self.shape) - operand.rank :]
        if operand.rank > len(self.shape) or any(
            old not in (new, Extent.of(1)) for old, new in zip(operand.shape, aligned, strict=True)
        ):
            raise IrError(f"{operand} does not broadcast to [{', '.join(map(str, self.shape))}]")
        return TensorType(self.shape, operand.dtype)


@dataclass(frozen=True)
class Slice(Op):
    """Elements ``start``, ``start + step``, ... of an axis; a negative step runs backwards."""

    moves: ClassVar[bool] = True
    axis: int
    start: Extent
    length: Extent
    step: int = 1

    def result(self, *operands: TensorType) -> TensorType:
        """The operand's shape with ``length`` along the axis."""
        expect(operands, 1, self)
        (operand,) = operands
        axes_exist((self.axis,), operand, self)
        if self.step == 0:
            raise IrError(f"{self}: the step is 0")
        return TensorType(replaced(operand.shape, self.axis, self.length), operand.dtype)

    def fits(self, sizes: Mapping[str, int], operands: Sequence[TensorType]) -> bool:
        """Whether first and last element exist."""
        return within(self, operands[0], self.length.at(sizes), sizes)


@dataclass(frozen=True)
class Concat(Op):
    """Operands one after the other along an axis."""

    moves: ClassVar[bool] = True
    axis: int

    def result(self, *operands: TensorType) -> TensorType:
        """The sum of the extents along the axis."""
        if not operands:
            raise IrError(f"{self} of nothing")
        axes_exist((self.axis,), operands[0], self)
        cut = [TensorType(replaced(o.shape, self.axis, Extent()), o.dtype) for o in operands]
        same(cut, self)
        total = Extent()
        for operand in operands:
            total = total + operand.shape[self.axis]
        return TensorType(replaced(operands[0].shape, self.axis, total), operands[0].dtype)


@dataclass(frozen=True)
class Pad(Op):
    """``before`` and ``after`` more elements along an axis, all equal to the second operand."""

    moves: ClassVar[bool] = True
    axis: int
    before: Extent
    after: Extent

    def result(self, *operands: TensorType) -> TensorType:
        """The larger shape."""
        expect(operands, 2, self)
        operand, fill = operands
        axes_exist((self.axis,), operand, self)
        if fill != TensorType((), operand.dtype):
            raise IrError(f"{self} of {operand} takes a scalar of its type, not {fill}")
        extent = operand.shape[self.axis] + self.before + self.after
        return TensorType(replaced(operand.shape, self.axis, extent), operand.dtype)

    def fits(self, sizes: Mapping[str, int], operands: Sequence[TensorType]) -> bool:
        """Whether it adds rather than takes away."""
        del operands
        return self.before.at(sizes) >= 0 and self.after.at(sizes) >= 0


@dataclass(frozen=True)
class Update(Op):
    """A copy of the base whose elements ``start``, ``start + step``, ... of an axis are the
    second operand's. What is not named stays untouched where the base is written in place."""

    axis: int
    start: Extent
    step: int = 1

    def result(self, *operands: TensorType) -> TensorType:
        """The base's type."""
        expect(operands, 2, self)
        base, region = operands
        axes_exist((self.axis,), base, self)
        if self.step < 1:
            raise IrError(f"{self}: the step is not positive")
        if region.rank != base.rank or base != TensorType(
            replaced(region.shape, self.axis, base.shape[self.axis]), region.dtype
        ):
            raise IrError(f"{self} of {base} with {region}")
        return base

    def fits(self, sizes: Mapping[str, int], operands: Sequence[TensorType]) -> bool:
        """Whether the region lies within the base."""
        return within(self, operands[0], operands[1].shape[self.axis].at(sizes), sizes)


def within(op: Slice | Update, operand: TensorType, length: int, sizes: Mapping[str, int]) -> bool:
    """Whether the named elements exist, in an axis of these sizes."""
    extent, start = operand.shape[op.axis].at(sizes), op.start.at(sizes)
    last = start + op.step * (length - 1)
    return length == 0 or (length > 0 and min(start, last) >= 0 and max(start, last) < extent)
