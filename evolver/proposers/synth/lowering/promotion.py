"""Torch's rules for operands of different element types."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from evolver.proposers.synth.types import ElementType as E

_WIDTHS = {E.INT8: 1, E.INT16: 2, E.INT32: 4, E.INT64: 8}


class Weight(IntEnum):
    """Whose type counts: that of tensors with axes, of tensors without, of numbers."""

    NUMBER = 0
    SCALAR = 1
    TENSOR = 2


def promoted(operands: Sequence[tuple[E, Weight]]) -> E:
    """Return the type in which torch computes with ``operands``.

    A lighter operand counts only where it is of a higher category (truth values, whole numbers,
    floats) than every heavier one.
    """
    result: E | None = None
    for weight in sorted(Weight, reverse=True):
        of_weight = [dtype for dtype, w in operands if w is weight]
        if not of_weight:
            continue
        here = of_weight[0]
        for dtype in of_weight[1:]:
            here = _common(here, dtype)
        if result is None or _category(here) > _category(result):
            result = here
    assert result is not None
    return result


def of_number(value: bool | int | float) -> E:
    """Return the type that torch gives a number by default."""
    if isinstance(value, bool):
        return E.BOOL
    return E.INT64 if isinstance(value, int) else E.FLOAT32


def _category(dtype: E) -> int:
    return 2 if dtype.is_floating else 1 if dtype.is_integer else 0


def _common(a: E, b: E) -> E:
    if a is b:
        return a
    if _category(a) != _category(b):
        return max(a, b, key=_category)
    if a.is_floating:
        wider = max(a, b, key=lambda t: t.itemsize_bytes)
        return wider if a.itemsize_bytes != b.itemsize_bytes else E.FLOAT32
    if E.UINT8 in (a, b):
        (signed,) = {a, b} - {E.UINT8}
        return E.INT16 if signed is E.INT8 else signed
    return max(a, b, key=_WIDTHS.__getitem__)
