"""A session's time: a benchmark begins nothing that would not end within it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

_LATELY = 5


class Deadline:
    """The end of a session, counted from when this was made."""

    def __init__(
        self, minutes: float | None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """``minutes`` is how long the session may last; None sets no end."""
        self._clock = clock
        self._end = None if minutes is None else clock() + 60 * minutes

    def allows(self, seconds: float) -> bool:
        """Whether what takes so long would end in time."""
        return self._end is None or self._clock() + seconds <= self._end

    @property
    def minutes_left(self) -> float | None:
        """Of the session; None where it has no end."""
        return None if self._end is None else max(0.0, (self._end - self._clock()) / 60)


def expected_seconds(seconds: Sequence[float]) -> float:
    """What the next of a kind takes: as long as the longest of late; 0 where none is known."""
    return max(seconds[-_LATELY:], default=0.0)
