"""A process without isolation that speaks the sandbox protocol: for honest sources only.

It exists so that the evaluator's logic can be tested where no sandbox can be had. What a
hostile candidate does is tested in the real one.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import IO

from evaluator.sandbox import REPLY_FD, REQUEST_FD, SandboxSpec


class PlainProcess:
    """A child process in a process group of its own."""

    def __init__(self, spec: SandboxSpec) -> None:
        root = Path(tempfile.mkdtemp(prefix="ksmith-plain-"))
        argv = [_rewritten(part, spec, root) for part in spec.argv]
        request_read, request_write = os.pipe()
        reply_read, reply_write = os.pipe()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the process)

        def wire() -> None:
            high_request, high_reply = os.dup(request_read), os.dup(reply_write)
            os.dup2(high_request, REQUEST_FD)
            os.dup2(high_reply, REPLY_FD)

        self._child = subprocess.Popen(
            argv,
            env=dict(spec.environment),
            preexec_fn=wire,
            pass_fds=(REQUEST_FD, REPLY_FD),
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        os.close(request_read)
        os.close(reply_write)
        self.requests: IO[bytes] = os.fdopen(request_write, "wb", buffering=0)
        self.replies: IO[bytes] = os.fdopen(reply_read, "rb", buffering=0)

    def alive(self) -> bool:
        return self._child.poll() is None

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait()
        self.requests.close()
        self.replies.close()

    def log_tail(self, size_bytes: int = 4000) -> str:
        self._log.seek(0)
        return self._log.read()[-size_bytes:].decode("utf-8", "replace")

    def exit_reason(self) -> str:
        code = self._child.poll()
        return "" if code is None else f"ended with {code}"


class PlainSandbox:
    """Starts plain processes."""

    name = "none (test)"

    def start(self, spec: SandboxSpec) -> PlainProcess:
        return PlainProcess(spec)


def _rewritten(part: str, spec: SandboxSpec, root: Path) -> str:
    """``part`` with the paths that exist inside only replaced by links on the host."""
    for host, inside in spec.read_only.items():
        link = root / inside.lstrip("/")
        if not link.is_symlink():
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(host)
        parent = str(Path(inside).parent)
        part = part.replace(repr(parent), repr(str(link.parent)))
    return part
