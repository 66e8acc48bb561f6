"""Work in flight: what runs beside the search, in threads that touch neither state nor log.

Whoever starts work says what is to be done with its outcome; that is done in the thread that
lands it, one at a time, in the order of arrival. ``serial`` runs everything at once in the
caller's thread instead: where the host is what is timed, nothing may run beside it.

Threads are daemons: an interrupted search does not wait for a model's reply.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TypeVar

from evolver.unbroken import unbroken

T = TypeVar("T")


class Flights:
    """Starts work and lands its outcomes. For one thread alone to call."""

    def __init__(self, *, serial: bool) -> None:
        self._serial = serial
        self._arrivals: deque[Callable[[], None]] = deque()
        self._arrived = threading.Event()
        self._in_flight = 0
        self._own = 0.0
        self._since: float | None = time.perf_counter()
        """Since when the calling thread alone works; None while it waits or others fly."""

    def __len__(self) -> int:
        """Number of flights that have not landed."""
        return self._in_flight

    def start(self, work: Callable[[], T], then: Callable[[Future[T]], None]) -> None:
        """Run ``work`` in a thread; ``then`` takes its outcome when it lands."""
        outcome: Future[T] = Future()

        def fly() -> None:
            try:
                result = work()
            except BaseException as error:  # ``then`` meets it
                outcome.set_exception(error)
            else:
                outcome.set_result(result)
            self._arrivals.append(lambda: then(outcome))
            self._arrived.set()

        self._in_flight += 1
        if self._serial:
            with self.away():
                fly()
        else:
            self._pause()
            threading.Thread(target=fly, daemon=True).start()

    def land(self, *, patience_seconds: float | None = None) -> None:
        """Wait for the next arrival, at most so long, and do what was to be done with it.

        An interruption ends the waiting; what has arrived it neither loses nor does by half.
        """
        with self.away():
            while not self._arrivals:
                if not self._arrived.wait(patience_seconds):
                    return
                self._arrived.clear()
        with unbroken():
            arrived = self._arrivals.popleft()
            self._in_flight -= 1
            self._go_on()
            arrived()

    @property
    def has_arrivals(self) -> bool:
        """Whether something can be landed without waiting."""
        return bool(self._arrivals)

    @contextmanager
    def away(self) -> Iterator[None]:
        """Count the time inside as work or waiting, not as the search's own."""
        self._pause()
        try:
            yield
        finally:
            self._go_on()

    @property
    def overhead_seconds(self) -> float:
        """What the calling thread itself took so far, while nothing was in flight or ``away``."""
        return self._own + (0.0 if self._since is None else time.perf_counter() - self._since)

    def _pause(self) -> None:
        self._own, self._since = self.overhead_seconds, None

    def _go_on(self) -> None:
        if self._since is None and (self._serial or not self._in_flight):
            self._since = time.perf_counter()
