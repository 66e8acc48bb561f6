"""Who encloses whom on a host thread: operators, Python frames, annotations and launches.

An event's parent is the innermost event of its thread that has begun and not yet ended.
Frames that were running before the recording began lie on a track of their own in some
files; a frame without a parent on its thread is then joined to its caller by the Python id.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from integrations.traces.columns import NONE, Ints, Kind, Trace

_BLOCK = 1 << 16
Flags = NDArray[np.bool_]


def parents(trace: Trace, launches: Ints) -> Ints:
    """Return the parent's row for each row of the trace, -1 where there is none.

    Args:
        trace: the trace.
        launches: rows of the launches that are to be placed; others stay without a parent.
    """
    found = np.full(len(trace.kind), NONE, np.int32)
    enclosing = trace.rows(Kind.OPERATOR, Kind.FRAME, Kind.ANNOTATION)
    rows = np.concatenate([enclosing, launches])
    order = np.lexsort((-trace.duration_us[rows], trace.start_us[rows], trace.track[rows]))
    rows = rows[order]
    tracks = trace.track[rows]
    edges = np.flatnonzero(np.diff(tracks)) + 1
    for of_track in np.split(rows, edges) if len(rows) else ():
        found[of_track] = _swept(trace, of_track)
    _join_to_callers(trace, found)
    return found


def _swept(trace: Trace, rows: Ints) -> Ints:
    """Return the parents of ``rows``, sorted by start and then the longest first."""
    found = np.empty(len(rows), np.int32)
    stack: list[int] = []
    ends: list[float] = []
    for low in range(0, len(rows), _BLOCK):  # lists are fast and large: a block at a time
        block = rows[low : low + _BLOCK]
        starts = trace.start_us[block]
        answers = []
        for row, start, end in zip(
            block.tolist(),
            starts.tolist(),
            (starts + trace.duration_us[block]).tolist(),
            strict=True,
        ):
            while ends and ends[-1] <= start:
                ends.pop()
                stack.pop()
            answers.append(stack[-1] if stack else NONE)
            stack.append(row)
            ends.append(end)
        found[low : low + _BLOCK] = answers
    return found


def _join_to_callers(trace: Trace, found: Ints) -> None:
    frames = trace.rows(Kind.FRAME)
    roots = frames[(found[frames] == NONE) & (trace.other[frames] != NONE)]
    if not len(roots):
        return
    order = np.argsort(trace.link[frames], kind="stable")
    ids = trace.link[frames][order]
    at = np.minimum(np.searchsorted(ids, trace.other[roots]), len(ids) - 1)
    callers = frames[order][at]
    # A caller encloses its callee, which also keeps damaged ids from making circles.
    start, callers_start = trace.start_us[roots], trace.start_us[callers]
    good = (
        (ids[at] == trace.other[roots])
        & (callers_start < start)
        & (callers_start + trace.duration_us[callers] > start)
    )
    found[roots[good]] = callers[good]


def nearest(parent: Ints, wanted: Flags) -> Ints:
    """Return the row itself or its nearest ancestor for which ``wanted`` holds; -1 without.

    Pointers are doubled, so the steps are the logarithm of the depth.
    """
    none = len(parent)  # one row more, which is its own ancestor
    up = np.append(parent, none).astype(np.int32)
    up[up < 0] = none
    marked = np.flatnonzero(wanted)
    up[marked] = marked
    while True:
        further = up[up]
        if np.array_equal(further, up):
            break
        up = further
    found = up[:-1]
    found[found == none] = NONE
    return found


def above(parent: Ints, rows: Ints, answer: Ints) -> Ints:
    """Return ``answer`` (of every row) at the parents of ``rows``; -1 for rows without one."""
    up = parent[rows]
    return np.where(up < 0, NONE, answer[up])
