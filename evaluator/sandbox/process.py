"""A running sandbox, seen from the host: its pipes, its log, its memory, its end.

Everything inside lives in one PID namespace. Killing the namespace's first process ends
all others, however they were started, and the kernel waits for them; so ``kill`` needs
neither process groups nor a walk over children, and nothing can escape it by forking.
Two threads serve a sandbox: one drains the log into a bounded tail, one kills the
sandbox when its processes together pass the memory limit (``setrlimit`` knows single
processes only).
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from typing import IO, Protocol

from evaluator.sandbox import Limits
from evaluator.sandbox.memory import tree_memory_bytes
from evaluator.sandbox.stopping import resume, stop_tree
from evaluator.sandbox.waiting import WaitingTime

_WATCH_SECONDS = 0.25
_WATCH_SHARE = 20
"""A look at memory is followed by at least twenty times its own duration of sleep, so
that watching costs at most five per cent of a core on a host with many processes."""

_REAP_SECONDS = 10.0


class Parent(Protocol):
    """Who learns how a namespace's first process ended; ``subprocess.Popen`` is one."""

    def poll(self) -> int | None:
        """The exit status (-N for signal N), or None while it runs."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end; raises ``subprocess.TimeoutExpired``."""

    def kill(self) -> None:
        """Stop waiting for what does not die."""


class Namespace:
    """The first process of a PID namespace and all that it started, and their log."""

    def __init__(self, parent: Parent, *, init_pidfd: int, log: IO[bytes], log_bytes: int) -> None:
        """Take over a started namespace.

        Args:
            parent: who learns how its first process ended.
            init_pidfd: the namespace's first process, opened while it surely lived; closed
                by ``kill``.
            log: the pipe of its output; read to its end by a thread of ours.
            log_bytes: how much of the log's end is kept.
        """
        self._parent = parent
        self._init = init_pidfd
        self._tail = Tail(log, log_bytes)
        self._lock = threading.Lock()
        self._killed_because = ""
        self._closed = False

    def alive(self) -> bool:
        """Whether the first process inside still runs."""
        return self._parent.poll() is None

    def kill(self) -> None:
        """End everything inside, at once, and reap it; calling it twice does no harm."""
        self._end("stopped by the supervisor")
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._release()

    def log_tail(self, size_bytes: int = 4000) -> str:
        """The end of what was printed inside, with undecodable bytes replaced."""
        if not self.alive():
            self._tail.wait_for_the_end()
        return self._tail.last(size_bytes).decode(errors="replace")

    def exit_reason(self) -> str:
        """Why it ended (signal, exit status, memory limit), in words; '' while it runs."""
        status = self._parent.poll()
        if status is None:
            return ""
        return self._killed_because or describe_status(status)

    def _release(self) -> None:
        """Close what is ours; called once, after the end."""
        self._tail.close()
        os.close(self._init)

    def _end(self, because: str) -> None:
        with self._lock:
            if self._closed or not self.alive():
                return
            self._killed_because = self._killed_because or because
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._init, signal.SIGKILL)
            try:
                self._parent.wait(_REAP_SECONDS)
            except subprocess.TimeoutExpired:
                self._parent.kill()
                self._parent.wait()


class NamespaceProcess(Namespace):
    """A sandboxed program: a namespace with the program's pipes and a watch on its memory."""

    def __init__(
        self,
        parent: Parent,
        *,
        init_pid: int,
        init_pidfd: int,
        requests: IO[bytes],
        replies: IO[bytes],
        log: IO[bytes],
        limits: Limits,
    ) -> None:
        """Take over a started sandbox; see ``Namespace`` for what is not named here.

        Args:
            parent: who learns how the namespace's first process ended.
            init_pid: the host's number of the namespace's first process.
            init_pidfd: the same process as a descriptor.
            requests: the pipe that the program reads; closed by ``kill``.
            replies: the pipe that the program writes; closed by ``kill``.
            log: the pipe of its output.
            limits: of which the memory and the log are kept here.
        """
        super().__init__(parent, init_pidfd=init_pidfd, log=log, log_bytes=limits.log_bytes)
        self.requests = requests
        self.replies = replies
        self._init_pid = init_pid
        self._paused: list[int] = []
        self._waiting = WaitingTime(init_pid)
        self._limits = limits
        self._ended = threading.Event()
        self._watch = threading.Thread(
            target=self._watch_memory, args=(init_pid,), name="sandbox-memory", daemon=True
        )
        self._watch.start()

    def pause(self) -> None:
        """Stop everything inside where it stands, until ``resume``."""
        all_stand = True
        with self._lock:
            if not self._closed and self.alive():
                self._paused, all_stand = stop_tree(self._init_pid)
        if not all_stand:
            self._end("it forks without end and could not be paused")

    def resume(self) -> None:
        """Let everything inside run on; harmless where nothing was paused."""
        with self._lock:
            if not self._closed and self.alive():
                resume(self._paused)
            self._paused = []

    def waited_ns(self) -> int | None:
        """How long the threads inside have waited for a core so far; None if nobody can tell."""
        return self._waiting.read_ns()

    def _release(self) -> None:
        self._ended.set()
        self._watch.join()
        for pipe in (self.requests, self.replies):
            with contextlib.suppress(OSError):  # a request that nobody reads any more
                pipe.close()
        super()._release()

    def _watch_memory(self, init_pid: int) -> None:
        pause = 0.0
        while not self._ended.wait(pause) and self.alive():
            start = time.monotonic()
            used = tree_memory_bytes(init_pid)
            if used > self._limits.memory_bytes:
                # Forks of a process with torch share most of their pages: look again.
                used = tree_memory_bytes(init_pid, exact=True)
            if used > self._limits.memory_bytes:
                self._end(
                    f"memory limit: its processes used {used >> 20} MiB together, "
                    f"{self._limits.memory_bytes >> 20} MiB are allowed"
                )
            pause = max(_WATCH_SECONDS, _WATCH_SHARE * (time.monotonic() - start))


def describe_status(status: int) -> str:
    """Return an exit status in words; 128 + N is how bubblewrap passes signal N on."""
    number = -status if status < 0 else status - 128
    try:
        name = signal.Signals(number).name
    except ValueError:
        return f"exited with status {status}"
    return f"ended by {name}"


class Tail:
    """Reads a pipe to its end in a thread of its own and keeps the last bytes."""

    _CHUNK_BYTES = 1 << 16

    def __init__(self, pipe: IO[bytes], size_bytes: int) -> None:
        self._pipe = pipe
        self._size_bytes = size_bytes
        self._kept = bytearray()
        self._lock = threading.Lock()
        self._reader = threading.Thread(target=self._drain, name="sandbox-log", daemon=True)
        self._reader.start()

    def last(self, size_bytes: int) -> bytes:
        """The last bytes so far."""
        with self._lock:
            return bytes(self._kept[-size_bytes:]) if size_bytes > 0 else b""

    def wait_for_the_end(self) -> None:
        """Wait, not for ever, until the pipe has ended."""
        self._reader.join(_REAP_SECONDS)

    def close(self) -> None:
        """Close the pipe, once it has ended."""
        self.wait_for_the_end()
        self._pipe.close()

    def _drain(self) -> None:
        while chunk := os.read(self._pipe.fileno(), self._CHUNK_BYTES):
            with self._lock:
                self._kept += chunk
                del self._kept[: -self._size_bytes]
