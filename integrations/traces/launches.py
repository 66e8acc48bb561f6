"""Which call of the runtime or the driver launched a kernel: by correlation, nothing else.

The external id is not used: in files of 2022 and 2023 it equals the correlation. Where a
correlation occurs more than once (merged ranks, duplicated ids), the launch of the same rank
that began last before the kernel is taken.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from integrations.traces.columns import NONE, Ints, Kind, Trace

_RANK_IN_PID = re.compile(r"^\[(.+?)\]")
_GRAPH_LAUNCH = re.compile(r"GraphLaunch")


@dataclass(frozen=True)
class Launches:
    """Device work and what launched it; the arrays are parallel."""

    work: Ints
    """Rows of kernels and copies."""
    launch: Ints
    """Row of the launch, -1 where the trace has none."""
    replayed: np.ndarray[tuple[int], np.dtype[np.bool_]]
    """Whether the launch replayed a graph."""
    duplicates: int
    """Correlations that more than one launch bears."""


def find_launches(trace: Trace) -> Launches:
    """Join the device's work to the host's calls."""
    work = trace.rows(Kind.KERNEL, Kind.COPY)
    calls = trace.rows(Kind.LAUNCH)
    calls = calls[trace.link[calls] != NONE]
    ranks = _ranks(trace)
    # Sorted by rank, correlation and start: the wanted call is the last that is not greater.
    order = np.lexsort((trace.start_us[calls], trace.link[calls], ranks[trace.track[calls]]))
    calls = calls[order]
    keys = np.stack([ranks[trace.track[calls]], trace.link[calls]])
    duplicates = int((np.diff(keys, axis=1) == 0).all(axis=0).sum()) if calls.size else 0
    launch = _joined(trace, work, calls, ranks)
    graphs = np.array([bool(_GRAPH_LAUNCH.search(n)) for n in trace.names], bool)
    replayed = (launch != NONE) & graphs[trace.name[launch]] if graphs.size else launch != NONE
    return Launches(work, launch, replayed, duplicates)


def _joined(trace: Trace, work: Ints, calls: Ints, ranks: Ints) -> Ints:
    launch = np.full(len(work), NONE, np.int64)
    if not calls.size or not work.size:
        return launch
    both = np.concatenate([calls, work])
    is_work = np.repeat([0, 1], [len(calls), len(work)])
    # Clocks of host and device may differ by a little: a kernel comes after its own launch
    # in any case, and after later launches of the same correlation only if it began later.
    order = np.lexsort((is_work, trace.start_us[both], trace.link[both], ranks[trace.track[both]]))
    sorted_rows, sorted_work = both[order], is_work[order]
    position = np.arange(len(order))
    last_call = np.maximum.accumulate(np.where(sorted_work == 0, position, NONE))
    next_call = np.minimum.accumulate(np.where(sorted_work == 0, position, len(order))[::-1])[::-1]
    for candidate in (next_call, last_call):  # the last before wins over the next after
        at = np.clip(candidate, 0, len(order) - 1)
        same = (
            (sorted_work[at] == 0)
            & (trace.link[sorted_rows[at]] == trace.link[sorted_rows])
            & (ranks[trace.track[sorted_rows[at]]] == ranks[trace.track[sorted_rows]])
            & (trace.link[sorted_rows] != NONE)
            & (sorted_work == 1)
        )
        launch[order[same] - len(calls)] = sorted_rows[at[same]]
    return launch


def _ranks(trace: Trace) -> Ints:
    """A number for the rank of each track, of a merged file by the pid's prefix."""
    found = [_RANK_IN_PID.match(str(pid)) for pid, _ in trace.tracks]
    texts = [m.group(1) if m else "" for m in found]
    known = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    return np.array([known[text] for text in texts], np.int64)
