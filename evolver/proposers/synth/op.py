"""The interface of the row programs' operations, and the checks that they share.

There are few operations, each does one thing, and nothing is implicit: operands of a pointwise
function have one shape and one element type, broadcasts and casts are operations of their own,
an index is aligned with what it indexes. Softmax, norms and losses are compositions. No
operation says how it is computed or which axes run in parallel; a genome does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import ClassVar

from evolver.proposers.synth.extents import Extent
from evolver.proposers.synth.types import IrError, Shape, TensorType


@dataclass(frozen=True)
class Op:
    """An operation with its attributes; operands are given where it is used."""

    moves: ClassVar[bool] = False
    """Whether each element of the result is an element of an operand, found by its place (or by
    an index): what was computed of loads can then be computed anew at that place."""

    def result(self, *operands: TensorType) -> TensorType:
        """Return the type that it gives for ``operands``.

        Raises:
            IrError: it does not take these.
        """
        raise NotImplementedError

    def fits(self, sizes: Mapping[str, int], operands: Sequence[TensorType]) -> bool:
        """Whether its bounds hold for these sizes, where types alone cannot tell."""
        del sizes, operands
        return True

    @property
    def name(self) -> str:
        """What it is called where it is printed."""
        return type(self).__name__.lower()

    def __str__(self) -> str:
        attributes = ", ".join(f"{f.name}={_shown(getattr(self, f.name))}" for f in fields(self))
        return f"{self.name}({attributes})" if attributes else self.name


def expect(operands: Sequence[TensorType], count: int, op: Op) -> None:
    """Raise ``IrError`` unless there are ``count`` operands."""
    if len(operands) != count:
        raise IrError(f"{op} takes {count} operands, not {len(operands)}")


def same(operands: Sequence[TensorType], op: Op) -> TensorType:
    """Return the one type of all operands; ``IrError`` where they differ."""
    if len(set(operands)) != 1:
        raise IrError(f"{op} takes operands of one type, not {', '.join(map(str, operands))}")
    return operands[0]


def axes_exist(axes: Sequence[int], operand: TensorType, op: Op) -> None:
    """Raise ``IrError`` unless the operand has all these axes."""
    if not all(0 <= axis < operand.rank for axis in axes):
        raise IrError(f"{op} of {operand}: there is no such axis")


def replaced(shape: Shape, axis: int, extent: Extent) -> Shape:
    """Return ``shape`` with another extent at ``axis``."""
    return (*shape[:axis], extent, *shape[axis + 1 :])


def _shown(value: object) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value))}]"
    return str(value)
