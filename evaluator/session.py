"""One worker in one sandbox, seen from the supervisor: requests, replies, deadlines.

Nothing that the worker sends is trusted to be well formed, short or on time. A session
that fails once is dead: its sandbox is killed and the reason is kept.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from evaluator.errors import WorkerLost
from evaluator.sandbox import Limits, Sandbox, SandboxedProcess, SandboxSpec
from evaluator.worker.protocol import Failure, Frame, ProtocolError, decode, encode

WORKER_FOLDER = Path(__file__).with_name("worker")
INSIDE = "/ksmith"
_BOOT = f"import sys; sys.path.insert(0, {INSIDE!r}); from worker.main import main; main()"
PRELOAD = f"import sys; sys.path.insert(0, {INSIDE!r}); import worker.preload"
"""What a zygote of workers runs before it forks the first."""
_REPLY_OVERHEAD_BYTES = 1 << 20
_PIPE_BYTES = 1 << 20
"""What any user may ask for a pipe (fs.pipe-max-size)."""
_LOG_CHARACTERS = 4000
_FINISH_POLL_SECONDS = 0.02
_THREAD_POOLS = 3
"""Pools of ``threads`` threads that torch and OpenMP may have at once."""
_GPU_MEMORY_BYTES = 64 << 30
_LASTING_CPU_SECONDS = 7 * 24 * 3600


class Role(StrEnum):
    """Whose code a worker runs, and so who is to blame for it."""

    REFERENCE = "reference"
    BASELINE = "compiled baseline"
    CANDIDATE = "candidate"


class WorkerTimedOut(WorkerLost):
    """A worker passed its deadline and was killed."""

    def __init__(self, role: Role) -> None:
        super().__init__(f"the {role.value} did not answer in time and was killed")
        self.role = role


class WorkerCrashed(WorkerLost):
    """A worker ended, or spoke nonsense, before it answered."""

    def __init__(self, role: Role, cause: str, *, out_of_memory: bool = False) -> None:
        super().__init__(f"the {role.value}'s worker ended: {cause}")
        self.role = role
        self.out_of_memory = out_of_memory


class RequestFailed(Exception):
    """The loaded module failed at a request; the worker lives on."""

    def __init__(self, role: Role, failure: Failure) -> None:
        super().__init__(f"{failure.type_name}: {failure.message}")
        self.role = role
        self.failure = failure


@dataclass(frozen=True)
class Reply:
    """An answer with what the supervisor's own clock says of it."""

    message: dict[str, Any]
    blobs: Sequence[bytes]
    wall_ns: int


@dataclass(frozen=True)
class WorkerOptions:
    """What distinguishes one worker's sandbox from another's."""

    role: Role
    threads: int
    gpu: bool = False
    interpret: bool = False
    user_slot: int = 0
    folders: tuple[Path, ...] = ()
    """What the backend's compiler needs to see, under the names that it has outside."""
    variables: tuple[tuple[str, str], ...] = ()
    wrapper: tuple[str, ...] = ()
    """A program and its options under which the worker runs, such as a memory checker."""

    def environment(self) -> dict[str, str]:
        """The variables that the worker is born with."""
        variables = {
            "HOME": "/tmp",  # noqa: S108 (the sandbox's own)
            "PATH": "/usr/local/cuda/bin:/usr/local/bin:/usr/bin:/bin",
            "OMP_NUM_THREADS": str(self.threads),
            # One thread a core: two of a pool on one core wait for each other at every barrier.
            "OMP_PROC_BIND": "true",
            # A pool that numpy starts at its import would not survive a zygote's fork.
            "OPENBLAS_NUM_THREADS": "1",
            # libgomp's wait policy stays its default, as in the processes that ksmith speaks
            # for: a shorter spin doubled the time of code with many parallel regions, which
            # is what torch.compile writes. The pause between blocks outlasts the spin.
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
            "TRITON_CACHE_DIR": "/tmp/triton",  # noqa: S108
            "TORCHINDUCTOR_CACHE_DIR": "/tmp/inductor",  # noqa: S108
            "USER": "worker",
        }
        if self.interpret:
            variables["TRITON_INTERPRET"] = "1"
        return variables | dict(self.variables)

    def limits(self) -> Limits:
        """What the worker may use: room for every thread pool, and pinned memory on a GPU."""
        processes = Limits().processes + _THREAD_POOLS * self.threads
        memory = _GPU_MEMORY_BYTES if self.gpu else Limits().memory_bytes
        lasting = self.role is not Role.CANDIDATE  # the reference serves a whole search
        cpu_seconds = _LASTING_CPU_SECONDS if lasting else Limits().cpu_seconds
        return Limits(
            processes=processes,
            memory_bytes=memory,
            cpu_seconds=cpu_seconds,
            reservations=bool(self.wrapper),
        )

    def spec(self) -> SandboxSpec:
        """The process to start."""
        return SandboxSpec(
            argv=[*self.wrapper, sys.executable, "-P", "-s", "-c", _BOOT],
            read_only={WORKER_FOLDER: f"{INSIDE}/worker", **{f: str(f) for f in self.folders}},
            environment=self.environment(),
            limits=self.limits(),
            gpu=self.gpu,
            user_slot=self.user_slot,
        )


class Session:
    """A running worker; a context manager that kills it."""

    def __init__(self, sandbox: Sandbox, options: WorkerOptions) -> None:
        """Start the worker; its hello is awaited by ``ready``.

        Raises:
            SandboxUnavailable: no sandbox can be had.
        """
        self.options = options
        self.hello: dict[str, Any] | None = None
        self._process: SandboxedProcess = sandbox.start(options.spec())
        self._request_fd = self._process.requests.fileno()
        self._reply_fd = self._process.replies.fileno()
        os.set_blocking(self._request_fd, False)
        _widen(self._reply_fd)
        self._turn = threading.Lock()
        self._closed = False
        self._final_log = ""

    def __enter__(self) -> Self:
        """Return the session itself."""
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Kill the worker."""
        self.close()

    def ready(self, timeout_seconds: float) -> dict[str, Any]:
        """Wait for the hello; return the versions inside.

        Raises:
            WorkerLost: the worker did not come up.
        """
        if self.hello is None:
            frame = self._receive(time.monotonic() + timeout_seconds, _REPLY_OVERHEAD_BYTES)
            self.hello = dict(frame.message.get("hello", {}))
        return self.hello

    def request(
        self, message: Mapping[str, Any], *, timeout_seconds: float, reply_bytes: int = 0
    ) -> Reply:
        """Send ``message`` and return the answer; threads wait for each other.

        Raises:
            RequestFailed: the loaded module failed; the worker lives on.
            WorkerLost: the worker is dead: late, crashed, or not speaking the protocol.
        """
        with self._turn:
            deadline = time.monotonic() + timeout_seconds
            started = time.perf_counter_ns()
            self._send(Frame(dict(message)), deadline)
            frame = self._receive(deadline, reply_bytes + _REPLY_OVERHEAD_BYTES)
            wall_ns = time.perf_counter_ns() - started
        if "failure" in frame.message:
            raise RequestFailed(self.options.role, _failure(frame.message["failure"]))
        return Reply(frame.message, frame.blobs, wall_ns)

    def pause(self) -> None:
        """Stop the worker where it stands, until ``resume``."""
        self._process.pause()

    def resume(self) -> None:
        """Let the worker run on."""
        self._process.resume()

    def waited_ns(self) -> int | None:
        """How long the worker's threads have waited for a core; None if nobody can tell."""
        return self._process.waited_ns()

    @property
    def closed(self) -> bool:
        """Whether the worker is gone: killed by a deadline, by ourselves or by others."""
        return self._closed or not self._process.alive()

    def log_tail(self) -> str:
        """The end of what the worker printed; kept after it was killed."""
        return self.log()[-_LOG_CHARACTERS:]

    def log(self) -> str:
        """All that is kept of what the worker printed; also after it was killed."""
        return self._final_log if self._closed else self._process.log_tail(Limits().log_bytes)

    def finish(self, timeout_seconds: float) -> str:
        """Let the worker end by itself, and return how it did; it is killed where it does not.

        Raises:
            WorkerLost: it does not take the request.
        """
        deadline = time.monotonic() + timeout_seconds
        if not self.closed:
            self._send(Frame({"kind": "quit"}), deadline)
        while self._process.alive() and time.monotonic() < deadline:
            time.sleep(_FINISH_POLL_SECONDS)
        reason = self._process.exit_reason()
        self.close()
        return reason or f"it did not end within {timeout_seconds:.0f} s"

    def close(self) -> None:
        """Kill the worker; calling it twice does no harm."""
        if not self._closed:
            self._final_log = self.log()
            self._closed = True
            self._process.kill()

    def _send(self, frame: Frame, deadline: float) -> None:
        for piece in encode(frame):
            view = memoryview(piece)
            while view:
                self._wait(self._request_fd, deadline, writing=True)
                try:
                    view = view[os.write(self._request_fd, view) :]
                except BlockingIOError:
                    continue
                except OSError as error:
                    raise self._crashed(f"a request could not be sent: {error}") from error

    def _receive(self, deadline: float, max_bytes: int) -> Frame:
        def read_exactly(size: int) -> bytes:
            pieces: list[bytes] = []
            while size > 0:
                self._wait(self._reply_fd, deadline, writing=False)
                pieces.append(os.read(self._reply_fd, min(size, _PIPE_BYTES)))
                size -= len(pieces[-1])
                if not pieces[-1]:
                    raise self._crashed("")
            return b"".join(pieces)

        try:
            return decode(read_exactly, max_blob_bytes=max_bytes)
        except ProtocolError as error:
            raise self._crashed(f"it broke the protocol: {error}") from error

    def _wait(self, fd: int, deadline: float, *, writing: bool) -> None:
        """Wait until ``fd`` is ready, or kill the worker at ``deadline``."""
        if self._closed:
            raise WorkerCrashed(self.options.role, "it was stopped earlier")
        poller = select.poll()
        poller.register(fd, select.POLLOUT if writing else select.POLLIN)
        left = deadline - time.monotonic()
        if left <= 0 or not poller.poll(left * 1000):
            self.close()
            raise WorkerTimedOut(self.options.role)

    def _crashed(self, cause: str) -> WorkerCrashed:
        """Kill the worker and say why it went."""
        deadline = time.monotonic() + 1.0
        while self._process.alive() and not cause and time.monotonic() < deadline:
            time.sleep(0.01)
        reason = cause or self._process.exit_reason() or "it closed its pipe"
        self.close()
        out_of_memory = "memory" in reason.casefold()
        return WorkerCrashed(self.options.role, reason, out_of_memory=out_of_memory)


def _widen(pipe: int) -> None:
    """Let a pipe hold more than 64 KiB: large outputs come over it."""
    with contextlib.suppress(OSError):  # the user's share of such memory is used up
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)


def _failure(fields: Any) -> Failure:
    """Read a failure; a worker that sends nonsense here gets a plain one."""
    try:
        failure = Failure(**fields)
    except TypeError:
        failure = None
    texts = ("kind", "type_name", "message", "trace")
    if failure is None or not all(isinstance(getattr(failure, name), str) for name in texts):
        return Failure(kind="exception", type_name="Unknown", message=str(fields)[:500])
    line = failure.line if isinstance(failure.line, int) else None
    return replace(failure, line=line)
