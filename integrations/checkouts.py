"""Two commits of a repository side by side in one sandbox, to run its commands in.

Repository code is untrusted: it runs under the evaluator's sandbox only, with no network
and on copies that vanish with it. Commands see the Python that ksmith runs with, its
packages, and a C++ compiler; what else a repository needs is not there, and the answer
says so.
"""

from __future__ import annotations

import json
import select
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from evaluator.errors import WorkerLost
from evaluator.sandbox import Limits, SandboxSpec
from evaluator.sandbox.select import select_sandbox
from integrations.patch.repository import TargetRepository

_PROBES = Path(__file__).parent / "probe"
_INSIDE = "/checkouts"
_GRACE_SECONDS = 30.0
_COPY_SECONDS = 120.0


@dataclass(frozen=True)
class CommandResult:
    """How one command ended."""

    status: int | None
    """Exit status; None where it could not be started."""
    seconds: float
    output: str
    """The end of standard output and error together."""
    timed_out: bool
    collected: str | None
    """Text of the file that was asked for, None where the command did not write it."""


class Checkouts:
    """Writable copies of commits, in a sandbox; a context manager that ends it."""

    def __init__(
        self,
        repository: TargetRepository,
        commits: Mapping[str, str],
        *,
        threads: int,
        gpu: bool = False,
    ) -> None:
        """Export ``commits`` (name to commit) and start the sandbox.

        Raises:
            RepositoryUnfit: a commit cannot be exported.
            SandboxUnavailable: no sandbox can be had.
        """
        self._folder = Path(tempfile.mkdtemp(prefix="ksmith-checkouts-"))
        try:
            for name, commit in commits.items():
                repository.export(commit, self._folder / name)
            _let_all_read(self._folder)
            self._process = select_sandbox().start(self._spec(tuple(commits), threads, gpu))
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        self._first_reply = True

    def _spec(self, names: Sequence[str], threads: int, gpu: bool) -> SandboxSpec:
        return SandboxSpec(
            argv=[
                sys.executable, "-P", "-s", f"{_INSIDE}/.probe/commands.py",
                *[f"{name}={_INSIDE}/{name}" for name in names],
            ],
            read_only={
                _PROBES: f"{_INSIDE}/.probe",
                **{self._folder / name: f"{_INSIDE}/{name}" for name in names},
            },
            environment={
                "HOME": "/tmp",  # noqa: S108 - the sandbox's own
                "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
                "LANG": "C.UTF-8",
                "USER": "worker",
                "OMP_NUM_THREADS": str(threads),
                "PYTHONDONTWRITEBYTECODE": "1",
                "TORCHINDUCTOR_CACHE_DIR": "/tmp/inductor",  # noqa: S108
                "TRITON_CACHE_DIR": "/tmp/triton",  # noqa: S108
            },
            limits=Limits(memory_bytes=64 << 30) if gpu else Limits(),
            gpu=gpu,
        )  # fmt: skip

    def run(
        self,
        name: str,
        argv: Sequence[str],
        *,
        seconds: float,
        environment: Mapping[str, str] | None = None,
        collect: str | None = None,
    ) -> CommandResult:
        """Run ``argv`` at the top of the copy ``name``; ``python`` is ours.

        Raises:
            WorkerLost: the sandbox died or its runner does not answer.
        """
        request = {
            "in": name,
            "argv": list(argv),
            "environment": dict(environment or {}),
            "seconds": seconds,
            "collect": collect,
        }
        wait = seconds + _GRACE_SECONDS + (_COPY_SECONDS if self._first_reply else 0.0)
        self._first_reply = False
        try:
            self._process.requests.write(json.dumps(request).encode() + b"\n")
            self._process.requests.flush()
        except OSError as error:
            raise self._lost() from error
        return CommandResult(**json.loads(self._read_line(time.monotonic() + wait)))

    def _read_line(self, deadline: float) -> bytes:
        replies = self._process.replies
        line = b""
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([replies], [], [], max(0.0, deadline - time.monotonic()))
            chunk = replies.read1(1 << 16) if ready else b""  # type: ignore[attr-defined]
            if not chunk:
                raise self._lost()
            line += chunk
        return line

    def _lost(self) -> WorkerLost:
        why = self._process.exit_reason() or "it does not answer"
        return WorkerLost(
            f"the sandbox for the repository's commands is lost: {why}; "
            f"its last words: {self._process.log_tail(500).strip() or 'none'}"
        )

    def close(self) -> None:
        """End everything inside and remove the exported commits."""
        self._process.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _let_all_read(folder: Path) -> None:
    """Undo a strict umask: the user inside the sandbox is not ours."""
    folder.chmod(0o755)
    for path in folder.rglob("*"):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode | (0o555 if path.is_dir() else 0o444))
