"""The device's time line: how much of it a kernel takes, and what it waits for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from integrations.traces.columns import NONE, Floats, Ints


@dataclass(frozen=True)
class TimeLine:
    """Per piece of work, in the order given; times in microseconds."""

    exposed_us: Floats
    """Its part of the time line: while k pieces run at once, each gets a k-th."""
    idle_before_us: Floats
    """How long the device had nothing to do before it; 0 for the first."""
    previous: Ints
    """The piece that began before it on the device, -1 for the first."""
    span_us: float
    """From the first to the last, of all devices together."""
    busy_us: float


def time_line(start_us: Floats, duration_us: Floats, device: Ints) -> TimeLine:
    """Lay work out on its devices."""
    exposed, idle = np.zeros(len(start_us)), np.zeros(len(start_us))
    previous = np.full(len(start_us), NONE, np.int64)
    span = 0.0
    for number in np.unique(device):
        rows = np.flatnonzero(device == number)
        rows = rows[np.argsort(start_us[rows], kind="stable")]
        start, end = start_us[rows], start_us[rows] + duration_us[rows]
        exposed[rows] = _exposed(start, end)
        reached = np.maximum.accumulate(end)
        idle[rows[1:]] = np.maximum(0.0, start[1:] - reached[:-1])
        previous[rows[1:]] = rows[:-1]
        span += float(reached[-1] - start[0])
    return TimeLine(exposed, idle, previous, span, float(exposed.sum()))


def _exposed(start: Floats, end: Floats) -> Floats:
    """Return the integral of one over the number that run, from start to end of each."""
    times = np.concatenate([start, end])
    order = np.argsort(times, kind="stable")
    running = np.cumsum(np.repeat([1, -1], len(start))[order])
    steps = np.diff(times[order]) / np.maximum(running[:-1], 1) * (running[:-1] > 0)
    integral = np.empty(len(times))
    integral[order] = np.concatenate([[0.0], np.cumsum(steps)])
    found: Floats = integral[len(start) :] - integral[: len(start)]
    return found
