"""Traces of a repository's own command, recorded from outside (``integrations/probe/startup``).

In the sandbox by default: a copy of HEAD, ksmith's Python, no network, nothing of the host.
What needs weights, a network or an environment of its own is run in place when the user says
so: it is then their command, with their rights.
"""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import NonNegativeInt

from evaluator.records import Record
from integrations.checkouts import Checkouts
from integrations.errors import IntegrationError
from integrations.patch.repository import TargetRepository

_STARTUP = Path(__file__).parent / "probe/startup"
_INSIDE_PROBES = "/checkouts/.probe"
_INSIDE_OUT, _PACKED = "/tmp/ksmith-profile", "/tmp/ksmith-packed"  # noqa: S108 - the sandbox's
_MOST_BYTES = 30_000_000
_STDERR = 2
"""What the command prints is a log; standard output is for the result."""
_NAME = re.compile(r"^\d+\.(?:json\.gz|status)$")


class ProfileFailed(IntegrationError):
    """The command left no trace; the message says what happened instead."""


@dataclass(frozen=True)
class ProfileSettings:
    """What to record."""

    warmup: int = 3
    steps: int = 3
    step: str = ""
    """``path/to/file.py::qualname`` of the step; outermost module calls where empty."""
    own: bool = False
    """The command profiles itself; stacks and shapes are added to that."""

    def environment(self, out: str, startup: str, before: str = "") -> dict[str, str]:
        """Variables for the command's process; ``before`` is its PYTHONPATH."""
        return {
            "PYTHONPATH": os.pathsep.join(p for p in (startup, before) if p),
            "KSMITH_PROFILE_OUT": out,
            "KSMITH_PROFILE_WARMUP": str(self.warmup),
            "KSMITH_PROFILE_STEPS": str(self.steps),
            "KSMITH_PROFILE_STEP": self.step,
            "KSMITH_PROFILE_OWN": "1" if self.own else "0",
        }


class ProcessReport(Record):
    """What one process of the command did, as it says itself."""

    pid: int
    argv: tuple[str, ...]
    seen: NonNegativeInt
    recorded: NonNegativeInt
    trace: str | None
    error: str | None


class ProfileResult(Record):
    """Traces, and the processes that wrote them."""

    command: tuple[str, ...]
    status: int | None
    """Exit status of the command."""
    seconds: float
    traces: tuple[Path, ...]
    processes: tuple[ProcessReport, ...]


def profile_in_sandbox(
    repository: Path,
    command: Sequence[str],
    settings: ProfileSettings,
    output: Path,
    *,
    seconds: float,
    threads: int,
    gpu: bool,
) -> ProfileResult:
    """Run ``command`` on a copy of HEAD inside the sandbox.

    Raises:
        RepositoryUnfit: it is no git repository.
        SandboxUnavailable: nothing is run without a sandbox.
        ProfileFailed: there is no trace.
        WorkerLost: the sandbox died.
    """
    if settings.own:
        raise ProfileFailed("a command that profiles itself keeps its trace; use --no-sandbox")
    side = TargetRepository(repository)
    commits = {"head": side.resolve("HEAD")}
    environment = settings.environment(_INSIDE_OUT, f"{_INSIDE_PROBES}/startup")
    with Checkouts(side, commits, threads=threads, gpu=gpu) as checkouts:
        checkouts.run("head", ["mkdir", "-p", _INSIDE_OUT], seconds=60)
        done = checkouts.run("head", command, seconds=seconds, environment=environment)
        packer = ["python", "-S", f"{_INSIDE_PROBES}/packing.py"]
        packed = checkouts.run(
            "head", [*packer, _INSIDE_OUT, _PACKED, str(_MOST_BYTES)], seconds=120, collect=_PACKED
        )
    _prepare(output)
    _unpack(packed.collected or "{}", output)
    ended = None if done.timed_out else done.status
    return _result(command, ended, done.seconds, output, done.output)


def profile_here(
    repository: Path, command: Sequence[str], settings: ProfileSettings, output: Path
) -> ProfileResult:
    """Run ``command`` in ``repository`` with the user's own environment and rights.

    Raises:
        ProfileFailed: it cannot be started, or there is no trace.
    """
    _prepare(output)
    extra = settings.environment(
        str(output.resolve()), str(_STARTUP), os.environ.get("PYTHONPATH", "")
    )
    start = time.monotonic()
    try:
        done = subprocess.run(
            command, cwd=repository, env={**os.environ, **extra}, check=False, stdout=_STDERR
        )
    except OSError as error:
        raise ProfileFailed(f"`{command[0]}` cannot be started: {error}") from error
    return _result(command, done.returncode, time.monotonic() - start, output, "", settings.own)


def _prepare(output: Path) -> None:
    output.mkdir(parents=True, exist_ok=True)
    for left in output.glob("*.status"):  # by a recording that was stopped
        left.unlink()


def _unpack(text: str, output: Path) -> None:
    """Write what the sandbox packed; names and contents come from untrusted code."""
    try:
        found = json.loads(text)
        for name, content in found.items():
            if _NAME.match(name):
                (output / name).write_bytes(base64.b64decode(content))
    except (ValueError, AttributeError, TypeError) as error:
        raise ProfileFailed(f"what came out of the sandbox is not readable: {error}") from error


def _result(
    command: Sequence[str],
    status: int | None,
    seconds: float,
    output: Path,
    said: str,
    own: bool = False,
) -> ProfileResult:
    processes = []
    for path in sorted(output.glob("*.status")):
        try:
            processes.append(ProcessReport.model_validate_json(path.read_bytes()))
        except ValueError as error:
            raise ProfileFailed(f"{path} is not readable: {error}") from error
        path.unlink()
    names = [p.trace for p in processes if p.trace]
    traces = tuple(output / n for n in names if _NAME.match(n) and (output / n).is_file())
    if not traces and not own:
        raise ProfileFailed(_why(command, status, processes, said))
    return ProfileResult(
        command=tuple(command),
        status=status,
        seconds=seconds,
        traces=traces,
        processes=tuple(processes),
    )


def _why(
    command: Sequence[str], status: int | None, processes: list[ProcessReport], said: str
) -> str:
    shown = " ".join(command)
    how = "ran out of time" if status is None else f"ended with status {status}"
    tail = f"; it said: {said.strip()[-800:]}" if said.strip() else ""
    errors = [p.error for p in processes if p.error]
    if errors:
        return f"`{shown}` {how}, and nothing was recorded: {errors[0]}{tail}"
    if not processes:
        return f"`{shown}` {how}, and no Python process of it imported torch{tail}"
    most = max(p.seen for p in processes)
    return (
        f"`{shown}` {how} after {most} steps, and the warm-up was not over: lower --warmup, let it "
        f"run longer, or name a function that it imports and calls with --step{tail}"
    )
