"""Who may use a device now: many candidates in flight, one of them timed.

A candidate's life has three parts. While its worker starts and its kernels compile it is on
the host alone, beside any number of others. When it runs what is compiled it has the device
to itself for one call. When it is timed it has the device until its last block; where launches
count (or the device is the host), it has the host as well, and nobody compiles meanwhile.
The device's lock is a file's, so that other ksmith processes on this machine keep to it too
(design.md section 4, "Speed").
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import gettempdir

from filelock import FileLock

from evaluator.evaluation import Clock

_POLL_SECONDS = 0.003
"""Between looks at a lock that another process holds: a call that waits for it is as short."""


class Device:
    """The locks of one device; share one object among the threads of a process."""

    def __init__(
        self,
        name: str,
        *,
        folder: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Name the device.

        Args:
            name: distinguishes devices of this machine, such as ``cuda:0`` or ``cpu``.
            folder: where the lock file lies; by default the machine's temporary folder.
            clock: by which turns are counted, in seconds.
        """
        path = (folder or Path(gettempdir())) / f"ksmith-{name.replace(':', '-')}.lock"
        # Any user of the machine may measure on it, so any user may lock it.
        self._between_processes = FileLock(
            path, mode=0o666, thread_local=False, poll_interval=_POLL_SECONDS
        )
        # A thread that times may run a call in between, to look into what it timed.
        self._between_threads = threading.RLock()
        self._host = _SharedLock()
        self._turns = _Turns()
        self._clock = clock

    def turns(self) -> tuple[float, float]:
        """For how many seconds the calling thread has held the device, and waited for a turn."""
        return self._turns.held_seconds, self._turns.waited_seconds

    @contextmanager
    def building(self) -> Iterator[None]:
        """Use the host (start, import, compile); excluded only while launches are timed."""
        with ExitStack() as held:
            with self._waiting():
                held.enter_context(self._host.shared())
            yield

    @contextmanager
    def running(self) -> Iterator[None]:
        """Use the device for one call."""
        with ExitStack() as held:
            with self._waiting():
                held.enter_context(self._between_threads)
                held.enter_context(self._between_processes)
            held.enter_context(self._holding())
            yield

    @contextmanager
    def timing(self, clock: Clock) -> Iterator[None]:
        """Use the device, and the host where ``clock`` feels it, until the last block."""
        with ExitStack() as held:
            if clock is not Clock.GRAPH_REPLAY:
                with self._waiting():
                    held.enter_context(self._host.alone())
            held.enter_context(self.running())
            yield

    @contextmanager
    def _waiting(self) -> Iterator[None]:
        began = self._clock()
        try:
            yield
        finally:
            self._turns.waited_seconds += self._clock() - began

    @contextmanager
    def _holding(self) -> Iterator[None]:
        """Count from the outermost turn of this thread on."""
        began, outermost = self._clock(), not self._turns.depth
        self._turns.depth += 1
        try:
            yield
        finally:
            self._turns.depth -= 1
            if outermost:
                self._turns.held_seconds += self._clock() - began


class _Turns(threading.local):
    """What one thread has had of the device."""

    held_seconds = 0.0
    waited_seconds = 0.0
    depth = 0


class _SharedLock:
    """Many at once, or one thread alone; who wants to be alone goes before newcomers."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._sharing = 0
        self._waiting = 0
        self._alone: int | None = None

    @contextmanager
    def shared(self) -> Iterator[None]:
        if self._alone == threading.get_ident():
            yield
            return
        with self._changed:
            self._changed.wait_for(lambda: self._alone is None and not self._waiting)
            self._sharing += 1
        try:
            yield
        finally:
            with self._changed:
                self._sharing -= 1
                self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        with self._changed:
            self._waiting += 1
            self._changed.wait_for(lambda: self._alone is None and not self._sharing)
            self._waiting -= 1
            self._alone = threading.get_ident()
        try:
            yield
        finally:
            with self._changed:
                self._alone = None
                self._changed.notify_all()
