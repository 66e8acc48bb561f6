"""Where an evaluation's time goes: a clock that the stages of one thread are read off.

Whoever begins an evaluation opens its ``StageClock``; whatever it calls says which stage it is
(``with staged(Stage.BUILD)``, or as a decorator), without knowing whose clock runs, or whether
one does. Each moment belongs to one stage, the innermost; waiting for others that use the
device is a stage of its own. What belongs to none is the evaluation's ``seconds`` less the sum.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from evaluator.device import Device
from evaluator.evaluation import Stage


class StageClock:
    """The stages of one evaluation; used by one thread."""

    def __init__(
        self, device: Device | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Count from now; ``device`` tells how long this thread held it and waited for it."""
        self.seconds: dict[Stage, float] = {}
        self._device = device
        self._clock = clock
        self._stage: Stage | None = None
        self._now, self._waited = clock(), self._turns()[1]
        self._held_before = self._turns()[0]

    @property
    def device_seconds(self) -> float:
        """For how long this thread has held the device since the clock was made."""
        return self._turns()[0] - self._held_before

    @contextmanager
    def open(self) -> Iterator[None]:
        """Let this be the clock of all stages of this thread meanwhile."""
        token = _CURRENT.set(self)
        try:
            yield
        finally:
            _CURRENT.reset(token)

    def enter(self, stage: Stage | None) -> Stage | None:
        """Book the time until now, go on in ``stage`` and return the one before."""
        now, waited = self._clock(), self._turns()[1]
        waiting = waited - self._waited
        if waiting:
            self._book(Stage.WAITING, waiting)
        if self._stage is not None:
            self._book(self._stage, max(0.0, now - self._now - waiting))
        self._now, self._waited = now, waited
        before, self._stage = self._stage, stage
        return before

    def _book(self, stage: Stage, seconds: float) -> None:
        self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds

    def _turns(self) -> tuple[float, float]:
        return (0.0, 0.0) if self._device is None else self._device.turns()


_CURRENT: ContextVar[StageClock | None] = ContextVar("stage_clock", default=None)


@contextmanager
def staged(stage: Stage) -> Iterator[None]:
    """Book the time meanwhile on ``stage``, where a clock is open."""
    clock = _CURRENT.get()
    if clock is None:
        yield
        return
    before = clock.enter(stage)
    try:
        yield
    finally:
        clock.enter(before)
