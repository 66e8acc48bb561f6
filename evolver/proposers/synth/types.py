"""Types of the row programs' values: an element type and a shape."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from evolver.proposers.synth.extents import Extent, product


class IrError(ValueError):
    """Operands that an operation does not take; the message says which, and what it takes."""


class ElementType(StrEnum):
    """Element types, spelled as torch spells them: those of workloads, and what lies between."""

    FLOAT64 = "float64"
    FLOAT32 = "float32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FLOAT8_E4M3FN = "float8_e4m3fn"
    FLOAT8_E5M2 = "float8_e5m2"
    INT64 = "int64"
    INT32 = "int32"
    INT16 = "int16"
    INT8 = "int8"
    UINT8 = "uint8"
    BOOL = "bool"

    @property
    def is_floating(self) -> bool:
        """Whether values are rounded."""
        return "float" in self.value

    @property
    def is_integer(self) -> bool:
        """Whether values are whole numbers; truth values are not."""
        return "int" in self.value

    @property
    def itemsize_bytes(self) -> int:
        """Bytes per element."""
        if self is ElementType.BOOL or self.value.startswith("float8"):
            return 1
        return int("".join(c for c in self.value if c.isdigit())) // 8

    @property
    def wide(self) -> ElementType:
        """What a kernel computes in: float32 for narrower floats, the type itself otherwise.

        Torch does the same, and rounds the result of each operation to the narrow type.
        """
        narrow = self.is_floating and self.itemsize_bytes < 4
        return ElementType.FLOAT32 if narrow else self


Shape = tuple[Extent, ...]


@dataclass(frozen=True)
class TensorType:
    """Shape and element type of a value."""

    shape: Shape
    dtype: ElementType

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def numel(self) -> Extent:
        """Number of elements."""
        return product(self.shape)

    def with_shape(self, *extents: Extent | int) -> TensorType:
        """Return this element type with another shape."""
        return TensorType(tuple(Extent.of(e) for e in extents), self.dtype)

    def with_dtype(self, dtype: ElementType) -> TensorType:
        """Return this shape with another element type."""
        return TensorType(self.shape, dtype)

    def __str__(self) -> str:
        return f"{self.dtype.value}[{', '.join(map(str, self.shape))}]"


def tensor(dtype: ElementType, *extents: Extent | int | str) -> TensorType:
    """Return the type of a tensor with these extents."""
    return TensorType(tuple(Extent.of(e) for e in extents), dtype)
