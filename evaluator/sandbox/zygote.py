"""Sandboxes that cost a fork: programs are forked from an interpreter that imported all they need.

Importing torch takes seconds, a fork takes none. A zygote is an interpreter of ours inside
a bubblewrap sandbox; for each program it forks a child into namespaces of its own (mount,
PID, IPC, network, UTS; without root also user), with scratch folders, limits, user and
system call filter as if it had been started alone (``fork_server.py``). There is one zygote
for each distinct surrounding: interpreter, binds, environment, GPU. One that dies takes its
programs with it and is started anew for the next.

Where the system does not permit this, each program gets a sandbox of its own, and the
description says so; a program never gets less isolation than ``BubblewrapSandbox`` gives.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path, PurePosixPath

from evaluator.errors import SandboxUnavailable
from evaluator.sandbox import Limits, SandboxSpec, mounts
from evaluator.sandbox.bubblewrap import BubblewrapSandbox, user_of
from evaluator.sandbox.fork_server import MAX_ORDER_BYTES
from evaluator.sandbox.plumbing import Plumbing
from evaluator.sandbox.process import NamespaceProcess
from evaluator.sandbox.program import resource_limits, scratch_bytes
from evaluator.sandbox.seccomp import filter_program

_HERE = Path(__file__).parent
_FILES = {_HERE / name: f"/ksmith/sandbox/{name}" for name in ("fork_server.py", "launch.py")}
_BOOT = (
    "import sys; sys.path.insert(0, '/ksmith');"
    " from sandbox.fork_server import serve; exec(serve())"
)
_COVERED = ("/tmp", "/dev/shm")  # noqa: S108
"""Each program gets these empty, so nothing that it needs may lie there."""
_MOST_SOURCE_BYTES = MAX_ORDER_BYTES // 8
"""JSON may write one byte as six."""
_START_SECONDS = 180.0
"""Longest that the imports and a fork may take, on a machine that is busy."""
_DYING_SECONDS = 1.0


class ForkFailed(Exception):
    """A zygote did not bring a program to life."""


class ZygoteSandbox:
    """Forks Python programs from zygotes; starts all others, and if it must all, one by one.

    Safe to use from several threads. ``close`` ends every program that it forked.
    """

    def __init__(self, alone: BubblewrapSandbox, *, preload: str = "") -> None:
        """Start nothing yet.

        Args:
            alone: the sandbox that zygotes live in, and that serves where they cannot.
            preload: Python that a zygote runs before its first fork; it must leave no
                thread and open no device.
        """
        self.name = alone.name
        self._alone = alone
        self._preload = preload
        self._zygotes: dict[object, Zygote] = {}
        self._refusals: dict[object, str] = {}
        self._closed = False
        self._lock = threading.Lock()

    @property
    def description(self) -> str:
        """The sandbox's own description, and whether programs are forked in it."""
        refused = "; ".join(dict.fromkeys(self._refusals.values()))
        how = f"not forked: {refused}" if refused else "forked from a zygote"
        return f"{self._alone.description}, {how}"

    def start(self, spec: SandboxSpec) -> NamespaceProcess:
        """Start ``spec`` isolated (see ``Sandbox.start``).

        Raises:
            SandboxUnavailable: isolation failed, or this was closed.
        """
        while (zygote := self._zygote(spec)) is not None:
            try:
                return zygote.fork(spec)
            except ForkFailed as error:
                if not zygote.served:
                    self._refuse(spec, str(error))
                elif not zygote.dies():
                    break  # this one alone; else a new zygote in place of one that died
        return self._alone.start(spec)

    def warm(self, spec: SandboxSpec) -> None:
        """Let the zygote for ``spec`` begin its imports; does not wait for them.

        Raises:
            SandboxUnavailable: this was closed.
        """
        self._zygote(spec)

    def close(self) -> None:
        """Kill every zygote and all that was forked; calling it twice does no harm."""
        with self._lock:
            self._closed = True
            zygotes, self._zygotes = list(self._zygotes.values()), {}
        for zygote in zygotes:
            zygote.close()

    def _zygote(self, spec: SandboxSpec) -> Zygote | None:
        """Return the living zygote for ``spec``; None where it is to be started alone."""
        if not _is_python(spec):
            return None
        key = _surrounding(spec)
        with self._lock:
            if self._closed:
                raise SandboxUnavailable("the sandbox was closed meanwhile, so nothing was run")
            if key in self._refusals:
                return None
            zygote = self._zygotes.get(key)
            if zygote is None or not zygote.alive():
                if zygote is not None:
                    zygote.close()
                try:
                    zygote = self._zygotes[key] = Zygote(self._alone, spec, self._preload)
                except SandboxUnavailable as error:
                    self._refusals[key] = str(error)
                    return None
            return zygote

    def _refuse(self, spec: SandboxSpec, why: str) -> None:
        """Fork nothing more in this surrounding."""
        key = _surrounding(spec)
        with self._lock:
            self._refusals[key] = why
            useless = self._zygotes.pop(key, None)
        if useless is not None:
            useless.close()


def _surrounding(spec: SandboxSpec) -> object:
    """What programs of one zygote have in common."""
    return (
        tuple(spec.argv[:-1]),
        tuple(sorted(spec.read_only.items())),
        tuple(sorted(spec.environment.items())),
        spec.gpu,
    )


def _is_python(spec: SandboxSpec) -> bool:
    """Whether ``spec`` is code for this interpreter, and nothing of it lies in a scratch folder."""
    if len(spec.argv) < 3 or spec.argv[0] != sys.executable or spec.argv[-2] != "-c":
        return False
    if len(spec.argv[-1].encode()) > _MOST_SOURCE_BYTES:
        return False
    inside = [*spec.read_only.values(), *mounts.interpreter_binds().values()]
    return not any(PurePosixPath(p).is_relative_to(c) for p in inside for c in _COVERED)


class Zygote:
    """One warm interpreter in a sandbox, and the socket over which it is ordered to fork."""

    def __init__(self, sandbox: BubblewrapSandbox, like: SandboxSpec, preload: str) -> None:
        """Start it; its imports run on while we go on.

        Args:
            sandbox: where it lives.
            like: a spec of the programs to come; their interpreter, binds, environment, GPU.
            preload: Python that it runs first.

        Raises:
            SandboxUnavailable: isolation failed.
        """
        argv = [*like.argv[:-1], _BOOT, preload]
        spec = replace(like, argv=argv, limits=Limits())
        self._namespace, self._control = sandbox.start_trusted(spec, _FILES)
        self.served = False
        """Whether it has forked a program."""

    def alive(self) -> bool:
        """Whether it still runs."""
        return self._namespace.alive()

    def dies(self) -> bool:
        """Whether it has died, or is about to."""
        deadline = time.monotonic() + _DYING_SECONDS
        while self.alive() and time.monotonic() < deadline:
            time.sleep(0.01)
        return not self.alive()

    def close(self) -> None:
        """Kill it and all that it forked."""
        self._namespace.kill()
        self._control.close()

    def fork(self, spec: SandboxSpec) -> NamespaceProcess:
        """Start the program of ``spec``.

        Raises:
            ForkFailed: it did not come to life.
        """
        with Plumbing() as pipes:
            theirs = [
                pipes.to_child("request"),
                pipes.from_child("reply"),
                pipes.from_child("log"),
                pipes.socket_pair("status"),
            ]
            try:
                socket.send_fds(self._control, [_order(spec)], theirs)
            except OSError as error:
                raise ForkFailed(f"the zygote takes no orders: {error}") from error
            pipes.close_theirs()
            status = pipes.take_socket("status")
            try:
                self._wait_for_init(status, pipes)
                init_pid = _number_here(pipes.ours["init"])
                status.send(b"!")
            except BaseException as error:
                status.close()  # which ends the child
                if isinstance(error, OSError):
                    raise ForkFailed(str(error)) from error
                raise
            self.served = True
            return NamespaceProcess(
                ForkedInit(os.dup(pipes.ours["init"]), status),
                init_pid=init_pid,
                init_pidfd=pipes.ours.pop("init"),
                requests=pipes.take_writer("request"),
                replies=pipes.take_reader("reply"),
                log=pipes.take_reader("log"),
                limits=spec.limits,
            )

    def _wait_for_init(self, status: socket.socket, pipes: Plumbing) -> None:
        """Wait until the namespace's first process is known and has confined itself."""
        deadline = time.monotonic() + _START_SECONDS
        ready = False
        while not (ready and "init" in pipes.ours):
            status.settimeout(max(0.001, deadline - time.monotonic()))
            said, descriptors, _, _ = socket.recv_fds(
                status, MAX_ORDER_BYTES, 1, socket.MSG_CMSG_CLOEXEC
            )
            if descriptors:
                pipes.ours["init"] = descriptors[0]
            elif said == b"ready":
                ready = True
            else:
                raise ForkFailed(said.decode(errors="replace") or self._last_words())
        status.settimeout(None)

    def _last_words(self) -> str:
        self.dies()  # its log is whole once it has
        said = self._namespace.log_tail().strip().splitlines()
        return said[-1] if said else "the zygote ended without a word"


def _order(spec: SandboxSpec) -> bytes:
    tmp_bytes, shared_memory_bytes = scratch_bytes(spec.limits)
    order = {
        "source": spec.argv[-1],
        "user": user_of(spec.user_slot),
        "limits": resource_limits(spec.limits, gpu=spec.gpu),
        "tmp_bytes": tmp_bytes,
        "shared_memory_bytes": shared_memory_bytes,
        "filter": filter_program().hex(),
    }
    return json.dumps(order).encode()


def _number_here(pidfd: int) -> int:
    """Return the number that a process has for us; it must not have been reaped."""
    for line in Path(f"/proc/self/fdinfo/{pidfd}").read_text(encoding="ascii").splitlines():
        name, _, value = line.partition(":")
        if name == "Pid" and int(value) > 0:
            return int(value)
    raise ForkFailed("the kernel does not tell a forked process's number")


class ForkedInit:
    """Implements ``process.Parent`` for a first process that is no child of ours.

    Its end shows on its descriptor; before that it sends the program's exit status.
    """

    def __init__(self, pidfd: int, status: socket.socket) -> None:
        """Take over both; they are closed once the end is known."""
        self._pidfd = pidfd
        self._status = status
        self._code: int | None = None
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        """The exit status (-N for signal N), or None while it runs."""
        return self._look(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end.

        Raises:
            subprocess.TimeoutExpired: it lives on.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self._look(10)) is None:
            if deadline is not None and time.monotonic() >= deadline:
                raise subprocess.TimeoutExpired("a forked program", timeout or 0)
        return code

    def kill(self) -> None:
        """Stop waiting for what does not die."""
        with self._lock:
            if self._code is None:
                self._conclude(-signal.SIGKILL)

    def _look(self, milliseconds: int) -> int | None:
        with self._lock:
            if self._code is None:
                poller = select.poll()
                poller.register(self._pidfd, select.POLLIN)
                if poller.poll(milliseconds):
                    self._conclude(self._said())
            return self._code

    def _said(self) -> int:
        """What it sent before its end; a first process that was killed sent nothing."""
        with contextlib.suppress(OSError, ValueError):
            return int(self._status.recv(16, socket.MSG_DONTWAIT))
        return -signal.SIGKILL

    def _conclude(self, code: int) -> None:
        self._code = code
        self._status.close()
        os.close(self._pidfd)
