"""Kernels of a graph's replay, joined to the launches that were captured.

A replay is one launch with many kernels, and says nothing of where they come from. The trace
of the capture has the launches, with their Python frames, but no kernels. Both sides list the
same work: by graph node id where the profiler gives it, else by time on the one side, and by
the time of capture on the other. Where the captured launches name their kernels (ROCm), the
n-th kernel of a name is the n-th captured launch of that name, so that streams that overtake
each other do no harm; else the order alone decides, and only where the counts are equal.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from integrations.traces.columns import NONE, Ints, Kind, Trace

_BEGIN, _END = re.compile(r"StreamBeginCapture"), re.compile(r"StreamEndCapture")
_LAUNCHES = re.compile(
    r"^(?:cuda|cu|hip)(?:Ext)?(?:Module|Cooperative)?Launch(?:Cooperative)?Kernel|MemcpyAsync|"
    r"MemsetAsync|MemsetD\d+Async|Memcpy\w*Async|hipLaunchByPtr|cuLaunchKernelEx"
)
_LEAST_SHARE = 0.9


@dataclass(frozen=True)
class Capture:
    """The launches between one begin and end of capture."""

    launches: Ints
    """Rows of the capture's trace, in order."""
    names: tuple[str, ...]
    """Kernel of each, empty where the trace does not say."""


@dataclass(frozen=True)
class Joined:
    """The kernels of one replay and the captured launch of each, -1 without one."""

    capture: Capture
    rows: Ints
    agreement: float
    """Share of the kernels whose name equals the captured one; of order alone, NaN."""


def captures_of(trace: Trace) -> list[Capture]:
    """Return what was captured, in order; all launches where no begin of capture is in sight."""
    rows = trace.rows(Kind.LAUNCH)
    rows = rows[np.argsort(trace.start_us[rows], kind="stable")]
    found: list[Capture] = []
    current: list[int] | None = None
    for row in rows.tolist():
        name = trace.names[trace.name[row]]
        if _BEGIN.search(name):
            current = []
        elif _END.search(name) and current is not None:
            found.append(_capture(trace, current))
            current = None
        elif current is not None and _LAUNCHES.search(name):
            current.append(row)
    if found:
        return found
    executed = set(trace.link[trace.rows(Kind.KERNEL, Kind.COPY)].tolist())
    names = [trace.names[trace.name[row]] for row in rows.tolist()]
    rest = [
        row
        for row, name in zip(rows.tolist(), names, strict=True)
        if _LAUNCHES.search(name) and trace.link[row] not in executed
    ]
    return [_capture(trace, rest)] if rest else []


def _capture(trace: Trace, rows: list[int]) -> Capture:
    kernels = [trace.other[row] for row in rows]
    names = [trace.names[k] if k != NONE else "" for k in kernels]
    return Capture(np.array(rows, np.int64), tuple(names))


def replay_order(trace: Trace, rows: Ints) -> Ints:
    """Return the kernels of one replay in the order of their nodes, else of time."""
    nodes = trace.other[rows]
    by = nodes if (nodes != NONE).all() and len(set(nodes.tolist())) == len(nodes) else None
    return rows[np.argsort(trace.start_us[rows] if by is None else by, kind="stable")]


def join_replay(names: Sequence[str], captures: Sequence[Capture]) -> Joined | None:
    """Return the capture that fits the replayed kernels best, None where none does.

    Args:
        names: of the kernels, in the replay's order.
        captures: of the capture's traces.
    """
    tried = [joined for c in captures for joined in _attempts(names, c)]
    fits = [j for j in tried if np.mean(j.rows != NONE) >= _LEAST_SHARE]
    return max(fits, key=_fitness, default=None)


def _fitness(joined: Joined) -> tuple[float, float, float]:
    named = 0.0 if np.isnan(joined.agreement) else joined.agreement
    surplus = len(joined.capture.launches) - len(joined.rows)
    return named, float(np.mean(joined.rows != NONE)), -abs(surplus)


def _attempts(names: Sequence[str], capture: Capture) -> Iterator[Joined]:
    captured = [_plain(n) for n in capture.names]
    wanted = [_plain(n) for n in names]
    shared = Counter(captured) & Counter(wanted)
    if sum(shared[n] for n in shared if n) > 0:
        rows = _by_name(wanted, captured, capture.launches)
        yield Joined(capture, rows, float(np.mean(rows != NONE)))
    if len(names) == len(captured):
        known = [(a, b) for a, b in zip(wanted, captured, strict=True) if b]
        agreement = float(np.mean([a == b for a, b in known])) if known else float("nan")
        yield Joined(capture, capture.launches, agreement)


def _by_name(wanted: Sequence[str], captured: Sequence[str], launches: Ints) -> Ints:
    """The n-th of a name to the n-th of that name; copies, which have none, likewise."""
    waiting: dict[str, list[int]] = defaultdict(list)
    for name, row in zip(reversed(captured), reversed(launches.tolist()), strict=True):
        waiting[name].append(row)
    rows = [waiting[n].pop() if waiting.get(n) else NONE for n in wanted]
    return np.array(rows, np.int64)


def _plain(name: str) -> str:
    """A kernel's name; copies have none on the side of the capture."""
    return "" if name.startswith(("Memcpy", "Memset")) else name
