"""A running container, seen from the host: its streams, its log, its end.

The daemon gives a container's streams as connections, framed but for the input. Two threads
take the frames off into pipes, one drains the log, and one follows the daemon's events: the
end, and the kernel's out-of-memory killer, which ends one process where we end them all.
Source: Docker Engine API 1.41, ``ContainerAttach`` and ``SystemEvents``.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Self

from docker.errors import DockerException

from evaluator.errors import SandboxUnavailable
from evaluator.sandbox import Limits
from evaluator.sandbox.contained import READY
from evaluator.sandbox.daemon import Daemon
from evaluator.sandbox.process import Tail, describe_status
from evaluator.sandbox.waiting import WaitingTime

_HEADER_BYTES = 8
_CHUNK_BYTES = 1 << 16
_REAP_SECONDS = 10.0
_KILLED = 128 + signal.SIGKILL
_LOST = "the Docker daemon stopped telling of it"


class Streams:
    """The connections of a container that is about to start; closes what nobody has taken."""

    def __init__(self, daemon: Daemon, container: str) -> None:
        """Connect to its input, its two outputs and its events.

        Raises:
            OSError: the daemon refused one.
        """
        self._open: dict[str, socket.socket] = {}
        try:
            for name in ("stdin", "stdout", "stderr"):
                self._open[name] = daemon.stream(
                    "POST", f"containers/{container}/attach", stream=1, **{name: 1}
                )
            filters = json.dumps({"container": [container]})
            self._open["events"] = daemon.stream("GET", "events", filters=filters)
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self) -> Self:
        """Return the streams themselves."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close those that are left."""
        for connection in self._open.values():
            connection.close()

    def take(self, name: str) -> socket.socket:
        """Give one to the caller, who closes it."""
        return self._open.pop(name)


class ContainerProcess:
    """The program of a started container and all that it started."""

    def __init__(self, client: Any, container: str, streams: Streams, limits: Limits) -> None:
        """Take over a container that was just started.

        Args:
            client: of the daemon.
            container: its id.
            streams: from before its start; all are taken.
            limits: of which the memory and the log are kept here.
        """
        self._client = client
        self._container = container
        self._events = streams.take("events")
        self._limits = limits
        self._status: int | None = None
        self._killed_because = ""
        self._closed = False
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._init = _HostInit(client, container)
        self._waiting = WaitingTime(self._init.pid) if self._init.pid else None
        self.requests: IO[bytes] = os.fdopen(streams.take("stdin").detach(), "wb")
        self._pumps = [_Pump(streams.take(name), name) for name in ("stdout", "stderr")]
        self.replies: IO[bytes] = self._pumps[0].pipe
        self._tail = Tail(self._pumps[1].pipe, limits.log_bytes)
        self._watch = threading.Thread(target=self._follow, name="sandbox-events", daemon=True)
        self._watch.start()

    def wait_until_ready(self, program: str, *, seconds: float) -> None:
        """Wait until the launcher has looked around and is about to execute the program.

        Raises:
            SandboxUnavailable: it refused, and why.
        """
        deadline, said = time.monotonic() + seconds, b""
        while said != READY:
            left = max(0.0, deadline - time.monotonic())
            ready, _, _ = select.select([self.replies], [], [], left)
            # A refusal is read to its end; of what follows the word, nothing.
            size = len(READY) - len(said) if READY.startswith(said) else _CHUNK_BYTES
            piece = os.read(self.replies.fileno(), size) if ready else b""
            if not piece:
                break
            said += piece
        if said == READY:
            return
        self._ended.wait(max(0.0, deadline - time.monotonic()))
        words = said.decode(errors="replace") or self.log_tail().strip() or self.exit_reason()
        raise SandboxUnavailable(
            f"the container refused to start: {words or 'it gave no reason'}; the program must "
            f"lie under /usr, in this Python or in a read-only bind: {program}"
        )

    def alive(self) -> bool:
        """Whether the first process inside still runs."""
        return not self._ended.is_set()

    def kill(self) -> None:
        """End everything inside, at once, and reap it; calling it twice does no harm."""
        self._end("stopped by the supervisor")
        with self._lock:
            if self._closed:
                return
            self._closed = True
        with contextlib.suppress(OSError):
            self._events.shutdown(socket.SHUT_RDWR)
        self._watch.join()
        for pipe in (self.requests, self.replies):
            with contextlib.suppress(OSError):  # a request that nobody reads any more
                pipe.close()
        for pump in self._pumps:
            pump.join()
        self._tail.close()
        self._init.close()

    def log_tail(self, size_bytes: int = 4000) -> str:
        """The end of what was printed inside, with undecodable bytes replaced."""
        if not self.alive():
            self._tail.wait_for_the_end()
        return self._tail.last(size_bytes).decode(errors="replace")

    def pause(self) -> None:
        """Stop everything inside where it stands, until ``resume``."""
        if self.alive():
            with contextlib.suppress(DockerException):  # it ended meanwhile
                self._client.pause(self._container)

    def resume(self) -> None:
        """Let everything inside run on; harmless where nothing was paused."""
        if self.alive():
            with contextlib.suppress(DockerException):  # not paused
                self._client.unpause(self._container)

    def waited_ns(self) -> int | None:
        """How long the threads inside have waited for a core so far; None if nobody can tell."""
        return self._waiting.read_ns() if self._waiting else None

    def exit_reason(self) -> str:
        """Why it ended (signal, exit status, memory limit), in words; '' while it runs."""
        if self.alive():
            return ""
        told = _LOST if self._status is None else describe_status(self._status)
        return self._killed_because or told

    def _end(self, because: str) -> None:
        with self._lock:
            if self._closed or not self.alive():
                return
            self._killed_because = self._killed_because or because
        try:
            self._client.kill(self._container)
        except (DockerException, OSError):  # it ended meanwhile, or the daemon does not answer
            self._init.kill()
        if threading.current_thread() is not self._watch and not self._ended.wait(_REAP_SECONDS):
            self._init.kill()
            self._ended.set()

    def _follow(self) -> None:
        """Follow the events to the container's removal, which comes after every other."""
        try:
            for event in _objects(self._events):
                if event["Action"] == "oom":
                    self._end(
                        "memory limit: its processes used it up together; "
                        f"{self._limits.memory_bytes >> 20} MiB are allowed"
                    )
                elif event["Action"] == "die":
                    self._status = int(event["Actor"]["Attributes"]["exitCode"])
                    # A killed one may still turn out to have been out of memory.
                    if self._status != _KILLED or self._killed_because:
                        self._ended.set()
                elif event["Action"] == "destroy":
                    break
        except (OSError, LookupError, ValueError):  # the daemon has gone, or speaks otherwise
            pass
        finally:
            if self._status is None:
                self._init.kill()
            self._ended.set()


def _objects(connection: socket.socket) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects that come line by line, until the connection ends; close it."""
    with connection, connection.makefile("rb") as lines:
        for line in lines:
            yield json.loads(line)


class _Pump:
    """Takes the frames off one output stream, in a thread, until it ends."""

    def __init__(self, source: socket.socket, name: str) -> None:
        ours, theirs = os.pipe()
        self.pipe = os.fdopen(ours, "rb")
        self._thread = threading.Thread(
            target=_unframe, args=(source, theirs), name=f"sandbox-{name}", daemon=True
        )
        self._thread.start()

    def join(self) -> None:
        self._thread.join(_REAP_SECONDS)


def _unframe(source: socket.socket, sink: int) -> None:
    with (
        source,
        source.makefile("rb", buffering=_CHUNK_BYTES) as frames,
        os.fdopen(sink, "wb", buffering=0) as pipe,
        contextlib.suppress(OSError),  # our end of the pipe was closed
    ):
        while len(header := frames.read(_HEADER_BYTES)) == _HEADER_BYTES:
            left = int.from_bytes(header[4:], "big")
            while left and (piece := frames.read(min(left, _CHUNK_BYTES))):
                left -= len(piece)
                view = memoryview(piece)
                while view:
                    view = view[pipe.write(view) :]


class _HostInit:
    """The container's first process as we see it; nothing where our view is another.

    A number that the daemon tells may mean another process to us, where it runs in another
    PID namespace; the process's control group tells whether it is the container's.
    """

    def __init__(self, client: Any, container: str) -> None:
        self.pid = 0
        self._descriptor = -1
        try:
            pid = int(client.inspect_container(container)["State"]["Pid"])
            self._descriptor = os.pidfd_open(pid)
            if container in Path(f"/proc/{pid}/cgroup").read_text(encoding="ascii"):
                self.pid = pid
        except (DockerException, OSError, ValueError):
            return

    def kill(self) -> None:
        """Kill it, where it is ours to kill, without the daemon's help."""
        if self.pid:
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor, self.pid = -1, 0
