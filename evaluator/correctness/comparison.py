"""The worst element of one tensor against float64: pure, in blocks, for tensors of any size."""

from __future__ import annotations

import numpy as np

from evaluator.correctness.blocks import Block, as_rows, over_blocks, wide
from evaluator.evaluation import OutputError
from evaluator.tensors import Array


def compare_values(
    name: str, expected: Array, native: Array | None, got: Array, budget: Array
) -> OutputError:
    """Return the worst element of ``got``; ``budget_used`` above 1 means wrong.

    Args:
        name: for the record.
        expected: float64 values.
        native: the reference's own values, whose NaN and infinities are right as well.
        got: the candidate's values, same shape.
        budget: the allowed absolute error, same shape.
    """
    if expected.size == 0:
        return OutputError(name=name, max_abs_error=0.0, max_rel_error=0.0, budget_used=0.0)
    rows = as_rows(expected)
    mine, own = as_rows(got), None if native is None else as_rows(native)
    allowed = budget.reshape(-1, 1) if budget.size in (1, len(rows)) else as_rows(budget)
    allowed = np.broadcast_to(allowed, rows.shape)

    def worst(block: Block) -> tuple[float, float, float, tuple[int, int]]:
        true = wide(rows[block])
        error = _errors(true, None if own is None else own[block], wide(mine[block]))
        magnitude = np.abs(true)
        if not np.isfinite(magnitude.max()):
            magnitude = np.where(np.isfinite(true), magnitude, 1.0)
        used = _ratio(error, allowed[block])
        row, column = np.unravel_index(int(np.argmax(used)), used.shape)
        at = (block[0].start + int(row), block[1].start + int(column))
        relative = _ratio(error, magnitude)
        return float(used[row, column]), float(error.max()), float(relative.max()), at

    found = list(over_blocks(worst, rows.shape))
    used, _, _, at = max(found, key=lambda f: f[0])
    place = np.unravel_index(at[0] * rows.shape[1] + at[1], expected.shape)
    return OutputError(
        name=name,
        max_abs_error=max(f[1] for f in found),
        max_rel_error=max(f[2] for f in found),
        budget_used=used,
        worst_index=tuple(int(i) for i in place),
    )


def _errors(true: Array, native: Array | None, got: Array) -> Array:
    """Absolute errors; infinite where NaN or an infinity stands in the wrong place."""
    error: Array = np.abs(got - true)
    if np.isfinite(error.max()):
        return error
    error = np.where(agrees_exactly(got, true), 0.0, error)
    if native is not None:
        at_limit = ~np.isfinite(native) & agrees_exactly(got, native)
        error = np.where(at_limit, 0.0, error)
    return np.asarray(np.where(np.isnan(error), np.inf, error))


def agrees_exactly(one: Array, other: Array) -> Array:
    """Where two arrays are equal, NaN counting as equal to NaN."""
    both_nan = (one != one) & (other != other)
    return np.asarray((one == other) | both_nan)


def _ratio(numerator: Array, denominator: Array) -> Array:
    """Element by element; 0 over 0 is 0, anything else over 0 is infinite."""
    quotient = np.divide(numerator, denominator)
    if np.isnan(quotient.max()):
        undefined = np.isnan(quotient)
        quotient[undefined] = np.where(numerator[undefined] == 0, 0.0, np.inf)
    return quotient
