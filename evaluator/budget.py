"""How far from float64 an element may be.

The budget of an element is ``factor`` times the reference's own error plus a floor. Both
are scaled by the magnitude of the element's row, so that zeros, a mean or a copy of an
input cannot hide in a tolerance made for larger numbers. The reference's error is taken
robustly: a row's own largest error, or the median over rows of the error relative to the
row's magnitude, whichever is larger; a reference that is lucky in one row does not make the
budget vanish there. The floor has ``floor_ulps`` units in the last place of the output's
type, and, for types as wide as the usual float32 accumulator, grows with the root of the
longest reduction that the inputs allow, since another order of summation is legitimate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from evaluator.problem import Tolerance
from evaluator.tensors import Array
from evaluator.workload import DType

_EPSILON: Mapping[str, float] = {
    DType.FLOAT64: 2.0**-52,
    DType.FLOAT32: 2.0**-23,
    DType.FLOAT16: 2.0**-10,
    DType.BFLOAT16: 2.0**-7,
}
_MIN_ROW = 16
"""Rows shorter than this have no scale of their own; the whole tensor gives it."""
_UNLIFTED_FACTOR = 4.0
"""The floor's multiple where the reference's own error could not be had."""


def error_budget(
    expected: Array,
    native: Array | None,
    *,
    dtype: str,
    tolerance: Tolerance,
    reduction_length: int,
) -> Array:
    """Return the allowed absolute error of every element, in the shape of ``expected``.

    Args:
        expected: what float64 gives, float64.
        native: what the reference gives in its own types; None where ``expected`` is that.
        dtype: the output's type in the native run.
        tolerance: the problem's factor and floor.
        reduction_length: the longest extent over which the function may sum.
    """
    if expected.size == 0:
        return np.zeros_like(expected)
    rows = _rows(expected)
    scale = np.max(np.abs(np.where(np.isfinite(rows), rows, 0.0)), axis=1, keepdims=True)
    floor = tolerance.floor_ulps * _unit(dtype, reduction_length) * scale
    if dtype not in _EPSILON:  # a rounded integer may fall on either side
        floor = np.ones_like(scale)
    if native is None:
        return _spread(_UNLIFTED_FACTOR * floor, rows, expected)
    own = _reference_error(rows, _rows(native), scale)
    return _spread(tolerance.factor * own + floor, rows, expected)


def _unit(dtype: str, reduction_length: int) -> float:
    """The relative unit of the floor: the type's, and the accumulator's over the reduction."""
    own = _EPSILON.get(dtype, 0.0)
    accumulator = min(_EPSILON[DType.FLOAT32], own)
    return own + accumulator * math.sqrt(max(reduction_length, 1)) / 8


def _reference_error(rows: Array, native: Array, scale: Array) -> Array:
    """The reference's error per row, robust against a lucky row. Shape (rows, 1)."""
    usable = np.isfinite(rows) & np.isfinite(native)
    error = np.abs(np.where(usable, native, 0.0) - np.where(usable, rows, 0.0))
    worst = np.max(error, axis=1, keepdims=True)
    relative = np.divide(worst, scale, out=np.zeros_like(worst), where=scale > 0)
    robust: Array = np.maximum(worst, np.median(relative) * scale)
    return robust


def _rows(values: Array) -> Array:
    """``values`` as (rows, extent) in float64; one row where the last extent is short."""
    wide = np.asarray(values, dtype=np.float64)
    if wide.ndim < 2 or wide.shape[-1] < _MIN_ROW:
        return wide.reshape(1, -1)
    return wide.reshape(-1, wide.shape[-1])


def _spread(per_row: Array, rows: Array, like: Array) -> Array:
    return np.broadcast_to(per_row, rows.shape).reshape(like.shape)
