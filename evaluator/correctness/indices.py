"""When an index is right although it is not the expected one: ties.

A position may hold another index than the reference's when both select the same value
within the budget. If the index stands elsewhere in the expected row, its value is known
and compared. If it does not, it can only stand for an element that ties with the row's
last selected value; its own value is not known here, so such replacements are allowed
only in rows whose boundary value ties visibly, or where ties are common in the whole tensor,
or as rarely as float64 and the reference's own type disagree about it.
"""

from __future__ import annotations

import numpy as np

from evaluator.tensors import Array

_RARE = 0.01
"""Share of positions that may tie invisibly at the boundary."""
_COMMON = 0.1
"""Share of neighbours among the selected that tie, from which on any boundary may."""


def index_faults(
    *,
    indices: Array,
    values: Array,
    expected_indices: Array,
    native_indices: Array,
    expected_values: Array,
    budget: Array,
    axis: int,
) -> str | None:
    """Return what is wrong with ``indices``, or None.

    All arrays have one shape; rows run along ``axis``. ``values`` are the candidate's own
    selected values, which the caller has compared with ``expected_values`` already.
    """
    shapes = {a.shape for a in (indices, values, expected_indices, native_indices, budget)}
    if len(shapes) != 1:
        return "indices and the values that they select differ in shape"
    got, mine, want, own, truth, slack = (
        _rows(a, axis)
        for a in (indices, values, expected_indices, native_indices, expected_values, budget)
    )
    if got.size == 0:
        return None
    if _has_duplicates(got) and not _has_duplicates(want):
        return "an index occurs twice in a row"
    if _tied_share(truth, slack) >= _COMMON:
        allowed = got.size
    else:
        allowed = max(1, 4 * int((want != own).sum()), int(_RARE * got.size))
    unknown = 0
    for row in np.flatnonzero(((got != want) & (got != own)).any(axis=1)):
        count = _row_fault(got[row], mine[row], want[row], own[row], truth[row], slack[row])
        if count is None:
            at = int(row)
            return f"row {at} selects elements whose values differ from the expected ones"
        unknown += count
    if unknown > allowed:
        return f"{unknown} indices select elements that the reference does not select"
    return None


def _row_fault(
    got: Array, mine: Array, want: Array, own: Array, truth: Array, slack: Array
) -> int | None:
    """Count the unexplained replacements of one row; None when the row is plainly wrong."""
    place = {int(index): at for at, index in enumerate(want)}
    boundary = int(np.argmin(truth)) if truth[0] >= truth[-1] else int(np.argmax(truth))
    tied = int(_near(truth, truth[boundary], slack).sum()) > 1
    unknown = 0
    for at, index in enumerate(got):
        if index in (want[at], own[at]):
            continue
        there = place.get(int(index), boundary)
        if not _near(mine[at], truth[there], 2 * slack[at]):
            return None
        unknown += int(int(index) not in place and not tied)
    return unknown


def _tied_share(truth: Array, slack: Array) -> float:
    """Share of selected values that tie with another one of their row."""
    if truth.shape[1] < 2:
        return 0.0
    ordered = np.sort(truth, axis=1)
    return float(np.mean(_near(ordered[:, 1:], ordered[:, :-1], slack[:, 1:])))


def _near(one: Array, other: Array, slack: Array) -> Array:
    """Whether values tie; equal infinities do, and what is masked by one is often selected."""
    with np.errstate(invalid="ignore"):
        return np.asarray((one == other) | (np.abs(one - other) <= slack))


def _rows(values: Array, axis: int) -> Array:
    moved = np.moveaxis(values, axis, -1) if values.ndim else values.reshape(1)
    return moved.reshape(-1, moved.shape[-1])


def _has_duplicates(rows: Array) -> bool:
    ordered = np.sort(rows, axis=1)
    return bool((ordered[:, 1:] == ordered[:, :-1]).any())
