"""Two reports of the same thing, before and after: what each function gained or lost.

Times are put beside each other per call of the function where both sides count calls, for two
recordings seldom last equally long; what was only on one side is said so.
"""

from __future__ import annotations

from typing import Literal

from pydantic import NonNegativeFloat, NonNegativeInt

from evaluator.records import Record
from integrations.traces.report import HotReport, HotTarget


class Change(Record):
    """One function on both sides; times in microseconds."""

    target: str
    kind: Literal["both", "gone", "new"]
    device_us_before: NonNegativeFloat
    device_us_after: NonNegativeFloat
    calls_before: NonNegativeInt
    calls_after: NonNegativeInt
    launches_per_call_before: NonNegativeFloat
    launches_per_call_after: NonNegativeFloat
    per_call_ratio: float | None
    """Device time a call, before over after; above 1 is faster. None on one side alone."""
    moved_us: float
    """What the change is worth over all calls of the side before: its calls times the
    difference a call; the whole where it is gone or new (negative)."""


class HotComparison(Record):
    """The functions that changed most first."""

    device_us_before: NonNegativeFloat
    device_us_after: NonNegativeFloat
    span_us_before: NonNegativeFloat
    span_us_after: NonNegativeFloat
    changes: tuple[Change, ...]


def compare(before: HotReport, after: HotReport, top: int | None = None) -> HotComparison:
    """Put two whole reports beside each other."""
    ours = {t.target: t for t in before.targets}
    theirs = {t.target: t for t in after.targets}
    changes = [_change(n, ours.get(n), theirs.get(n)) for n in dict.fromkeys([*ours, *theirs])]
    changes.sort(key=lambda c: (-abs(c.moved_us), c.target))
    return HotComparison(
        device_us_before=before.device_us,
        device_us_after=after.device_us,
        span_us_before=before.span_us,
        span_us_after=after.span_us,
        changes=tuple(changes[:top]),
    )


def _change(target: str, a: HotTarget | None, b: HotTarget | None) -> Change:
    ratio = None
    if a is not None and b is not None:
        each = a.device_us / a.calls, b.device_us / b.calls
        ratio = each[0] / each[1] if each[1] else None
        moved = a.calls * (each[0] - each[1])
    else:
        moved = a.device_us if a is not None else -b.device_us if b is not None else 0.0
    return Change(
        target=target,
        kind="both" if a and b else "gone" if a else "new",
        device_us_before=a.device_us if a else 0.0,
        device_us_after=b.device_us if b else 0.0,
        calls_before=a.calls if a else 0,
        calls_after=b.calls if b else 0,
        launches_per_call_before=a.launches / a.calls if a else 0.0,
        launches_per_call_after=b.launches / b.calls if b else 0.0,
        per_call_ratio=ratio,
        moved_us=moved,
    )
