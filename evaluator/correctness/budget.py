"""How far from float64 an element may be.

The budget of an element is ``factor`` times the reference's own error plus a floor. Both
are scaled by the magnitude of the element's row, so that zeros, a mean or a copy of an
input cannot hide in a tolerance made for larger numbers. The reference's error is taken
robustly: a row's own largest error, or the median over rows of the error relative to the
row's magnitude, whichever is larger; a reference that is lucky in one row does not make the
budget vanish there. The floor has ``floor_ulps`` units in the last place of the output's
type, and, for types as wide as the usual float32 accumulator, grows with the root of the
longest reduction that the inputs allow, since another order of summation is legitimate.
On extreme values only gross errors count: there the worst row speaks for all, and the whole
is multiplied by ``STRESS_FACTOR``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from evaluator.correctness.blocks import Block, as_rows, over_blocks, wide
from evaluator.problem import Tolerance
from evaluator.tensors import Array
from evaluator.workload import DType

_EPSILON: Mapping[str, float] = {
    DType.FLOAT64: 2.0**-52,
    DType.FLOAT32: 2.0**-23,
    DType.FLOAT16: 2.0**-10,
    DType.BFLOAT16: 2.0**-7,
}
STRESS_FACTOR = 8.0
_UNLIFTED_FACTOR = 4.0
"""The floor's multiple where the reference's own error could not be had."""


def error_budget(
    expected: Array,
    native: Array | None,
    *,
    dtype: str,
    tolerance: Tolerance,
    reduction_length: int,
    stress: bool = False,
) -> Array:
    """Return the allowed absolute error of every element, in the shape of ``expected``.

    Args:
        expected: what float64 gives.
        native: what the reference gives in its own types; None where ``expected`` is that.
        dtype: the output's type in the native run.
        tolerance: the problem's factor and floor.
        reduction_length: the longest extent over which the function may sum.
        stress: whether the inputs are extreme.

    Returns:
        A view that repeats one number per row and cannot be written.
    """
    if expected.size == 0:
        return np.zeros(expected.shape)
    rows = as_rows(expected)
    scale, worst = _scales_and_errors(rows, None if native is None else as_rows(native))
    floor = tolerance.floor_ulps * unit(dtype, reduction_length) * scale
    if dtype not in _EPSILON:  # a rounded integer may fall on either side
        floor = np.ones_like(scale)
    if native is None:
        budget = _UNLIFTED_FACTOR * floor
    else:
        budget = tolerance.factor * _robust(worst, scale, stress=stress) + floor
    budget = np.maximum(budget, tolerance.relative * scale)
    if stress:
        budget = budget * STRESS_FACTOR
    per_row = budget.reshape((*expected.shape[:-1], 1)) if len(budget) > 1 else budget.reshape(())
    return np.broadcast_to(per_row, expected.shape)


def unit(dtype: str, reduction_length: int) -> float:
    """The relative unit of the floor: the type's, and the accumulator's over the reduction."""
    own = _EPSILON.get(dtype, 0.0)
    accumulator = min(_EPSILON[DType.FLOAT32], own)
    return own + accumulator * math.sqrt(max(reduction_length, 1)) / 8


def epsilon(dtype: str) -> float:
    """The spacing of ``dtype`` at 1; 0 for exact types."""
    return _EPSILON.get(dtype, 0.0)


def _scales_and_errors(rows: Array, native: Array | None) -> tuple[Array, Array]:
    """Per row the largest finite magnitude, and the reference's largest error."""

    def largest(block: Block) -> tuple[slice, Array, Array]:
        true = wide(rows[block])
        magnitude = np.abs(true)
        error = np.zeros(1) if native is None else np.abs(wide(native[block]) - true)
        if not (np.isfinite(magnitude.max()) and np.isfinite(error.max())):
            magnitude = np.where(np.isfinite(magnitude), magnitude, 0.0)
            error = np.where(np.isfinite(error), error, 0.0)
        return block[0], magnitude.max(axis=1), error.max(axis=-1)

    scale, worst = np.zeros(len(rows)), np.zeros(len(rows))
    for at, magnitude, error in over_blocks(largest, rows.shape):
        scale[at] = np.maximum(scale[at], magnitude)
        worst[at] = np.maximum(worst[at], error)
    return scale, worst


def _robust(worst: Array, scale: Array, *, stress: bool) -> Array:
    """The reference's error per row, made robust against a lucky row."""
    relative = np.divide(worst, scale, out=np.zeros_like(worst), where=scale > 0)
    typical = np.max(relative) if stress else np.median(relative)
    robust: Array = np.maximum(worst, typical * scale)
    return robust
