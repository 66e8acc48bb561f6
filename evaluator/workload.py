"""Workloads: concrete inputs of a problem, described without their values.

A workload is data. The values are drawn inside a worker from a seed that arrives
after the candidate's module has been imported, so nothing here holds a tensor.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field, NonNegativeInt, PositiveFloat, model_validator

from evaluator.records import Record


class DType(StrEnum):
    """Element types, spelled as torch spells them."""

    FLOAT64 = "float64"
    FLOAT32 = "float32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    INT64 = "int64"
    INT32 = "int32"
    INT16 = "int16"
    INT8 = "int8"
    UINT8 = "uint8"
    BOOL = "bool"

    @property
    def is_floating(self) -> bool:
        """Whether values of this type are rounded rather than exact."""
        return "float" in self.value

    @property
    def itemsize_bytes(self) -> int:
        """Bytes per element."""
        digits = "".join(c for c in self.value if c.isdigit())
        return int(digits) // 8 if digits else 1


class ValueKind(StrEnum):
    """How the elements of a tensor are drawn."""

    NORMAL = "normal"
    UNIFORM = "uniform"
    INTEGERS = "integers"
    PERMUTATION = "permutation"
    TIES = "ties"
    CONSTANT = "constant"
    ARANGE = "arange"
    CAPTURED = "captured"


class Values(Record):
    """A generator of elements.

    ``normal`` uses mean and std; ``uniform`` and ``integers`` draw from [low, high);
    ``permutation`` permutes range(n) along the last dimension; ``ties`` draws from
    ``high`` distinct normal values so that equal elements abound; ``constant`` fills
    with ``low``; ``arange`` counts from ``low`` by one over the flat tensor; ``captured``
    repeats the integers ``data`` over the flat tensor, as they were seen in a real call.
    """

    kind: ValueKind = ValueKind.NORMAL
    mean: float = 0.0
    std: PositiveFloat = 1.0
    low: float = 0.0
    high: float = 1.0
    data: tuple[int, ...] = Field(default=(), max_length=1024)

    @model_validator(mode="after")
    def _range_is_not_empty(self) -> Values:
        if bool(self.data) is not (self.kind is ValueKind.CAPTURED):
            raise ValueError("captured values, and no others, need data")
        if self.kind in (ValueKind.UNIFORM, ValueKind.INTEGERS) and self.high <= self.low:
            raise ValueError(f"{self.kind.value} needs low < high, got [{self.low}, {self.high})")
        return self


class TensorSpec(Record):
    """One tensor argument: shape and strides in elements; no strides means contiguous."""

    shape: tuple[NonNegativeInt, ...]
    dtype: DType = DType.FLOAT32
    strides: tuple[NonNegativeInt, ...] | None = None
    values: Values = Values()
    alias_of: str | None = None
    """Name of an earlier argument whose very storage this argument is."""

    @property
    def numel(self) -> int:
        """Number of elements."""
        count = 1
        for extent in self.shape:
            count *= extent
        return count

    @model_validator(mode="after")
    def _strides_fit(self) -> TensorSpec:
        if self.strides is not None and len(self.strides) != len(self.shape):
            raise ValueError(f"{len(self.strides)} strides for a shape of {len(self.shape)} dims")
        if self.values.kind in (ValueKind.NORMAL, ValueKind.UNIFORM) and not self.dtype.is_floating:
            raise ValueError(
                f"{self.values.kind.value} values need a floating dtype, got {self.dtype.value}; "
                "use kind: integers"
            )
        return self


Scalar = bool | int | float | str | None
ArgumentValue = TensorSpec | bool | int | float | str | None


class Workload(Record):
    """One input of the problem: a value or tensor for each argument and each state attribute."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,60}$")]
    arguments: dict[str, ArgumentValue]
    weight: PositiveFloat = 1.0
    held_out: bool = False
    """Not shown to proposers; a failure on it tells its kind and nothing else."""

    @property
    def tensors(self) -> dict[str, TensorSpec]:
        """The tensor arguments, in order."""
        return {n: v for n, v in self.arguments.items() if isinstance(v, TensorSpec)}

    @property
    def scalars(self) -> dict[str, Scalar]:
        """The arguments that are not tensors, in order."""
        return {n: v for n, v in self.arguments.items() if not isinstance(v, TensorSpec)}

    @property
    def total_bytes(self) -> int:
        """Bytes of all tensor arguments, each counted once."""
        return sum(
            t.numel * t.dtype.itemsize_bytes for t in self.tensors.values() if t.alias_of is None
        )


class Twist(StrEnum):
    """How drawn elements are changed into values that kernels get wrong."""

    ZEROS = "zeros"
    TIES = "ties"
    """Four distinct values."""
    EQUAL_ROWS = "equal_rows"
    LARGE = "large"
    TINY = "tiny"
    SCALES = "scales"
    """Each element has a magnitude of its own."""
    MINUS_INFINITY = "minus_infinity"
    PLUS_INFINITY = "plus_infinity"
    """An eighth of the elements, here and there."""
    REDRAWN = "redrawn"
    """All elements are drawn anew."""


class Variation(StrEnum):
    """In what a derived workload differs from the declared ones."""

    SHAPES = "shapes"
    VALUES = "values"
    LAYOUTS = "layouts"


class DerivedWorkload(Workload):
    """A workload that the evaluator made of a declared one; no proposer ever sees it."""

    variation: Variation
    twists: dict[str, Twist] = Field(default_factory=dict)
    """Per tensor argument."""
    may_refuse: bool = False
    """Whether an exception is as good as a right answer: it lies outside what was declared."""
    held_out: bool = True

    @property
    def is_stress(self) -> bool:
        """Whether its values are extreme, so that only gross errors count."""
        return bool(self.twists)
