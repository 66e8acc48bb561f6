"""Running a repository's own command with ksmith looking on (``integrations/probe/startup``).

In the sandbox by default: a copy of HEAD, ksmith's Python, no network, nothing of the host.
What needs weights, a network or an environment of its own is run in place when the user says
so: it is then their command, with their rights. The command's Python processes find our
``sitecustomize`` first in PYTHONPATH and leave what they saw in a folder.
"""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from integrations.checkouts import Checkouts
from integrations.errors import IntegrationError
from integrations.patch.repository import TargetRepository

_STARTUP = Path(__file__).parent / "probe/startup"
_INSIDE_PROBES = "/checkouts/.probe"
_INSIDE_OUT, _PACKED = "/tmp/ksmith-seen", "/tmp/ksmith-packed"  # noqa: S108 - the sandbox's
_MOST_BYTES = 30_000_000
_STDERR = 2
"""What the command prints is a log; standard output is for the result."""
_NAME = re.compile(r"^\d+\.(?:json|json\.gz|status)$")

Environment = Callable[[str], Mapping[str, str]]
"""From the folder that processes write to, to the variables that tell them what to look for."""


class NotRun(IntegrationError):
    """The command could not be started, or what it left cannot be read."""


@dataclass(frozen=True)
class CommandEnd:
    """How the command ended."""

    command: tuple[str, ...]
    status: int | None
    """Exit status; None where it ran out of time or could not be started."""
    seconds: float
    said: str
    """The end of its output; nothing where it ran in place, since the user has seen it."""

    @property
    def told(self) -> str:
        """What a message says of it."""
        how = "did not end" if self.status is None else f"ended with status {self.status}"
        return f"`{' '.join(self.command)}` {how}"

    @property
    def tail(self) -> str:
        """What a message appends."""
        return f"; it said: {self.said.strip()[-800:]}" if self.said.strip() else ""


def run_in_sandbox(
    repository: Path,
    command: Sequence[str],
    environment: Environment,
    output: Path,
    *,
    seconds: float,
    threads: int,
    gpu: bool,
) -> CommandEnd:
    """Run ``command`` on a copy of HEAD; what its processes saw is put into ``output``.

    Raises:
        RepositoryUnfit: it is no git repository.
        SandboxUnavailable: nothing is run without a sandbox.
        NotRun: what came out makes no sense.
        WorkerLost: the sandbox died.
    """
    side = TargetRepository(repository)
    commits = {"head": side.resolve("HEAD")}
    variables = {"PYTHONPATH": f"{_INSIDE_PROBES}/startup", **environment(_INSIDE_OUT)}
    with Checkouts(side, commits, threads=threads, gpu=gpu) as checkouts:
        checkouts.run("head", ["mkdir", "-p", _INSIDE_OUT], seconds=60)
        done = checkouts.run("head", command, seconds=seconds, environment=variables)
        packer = ["python", "-S", f"{_INSIDE_PROBES}/packing.py"]
        packed = checkouts.run(
            "head", [*packer, _INSIDE_OUT, _PACKED, str(_MOST_BYTES)], seconds=120, collect=_PACKED
        )
    output.mkdir(parents=True, exist_ok=True)
    _unpack(packed.collected or "{}", output)
    ended = None if done.timed_out else done.status
    return CommandEnd(tuple(command), ended, done.seconds, done.output)


def run_here(
    repository: Path, command: Sequence[str], environment: Environment, output: Path
) -> CommandEnd:
    """Run ``command`` in ``repository`` with the user's own environment and rights.

    Raises:
        NotRun: it cannot be started.
    """
    output.mkdir(parents=True, exist_ok=True)
    path = [str(_STARTUP), os.environ.get("PYTHONPATH", "")]
    variables = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(p for p in path if p),
        **environment(str(output.resolve())),
    }
    start = time.monotonic()
    try:
        done = subprocess.run(command, cwd=repository, env=variables, check=False, stdout=_STDERR)
    except OSError as error:
        raise NotRun(f"`{command[0]}` cannot be started: {error}") from error
    return CommandEnd(tuple(command), done.returncode, time.monotonic() - start, "")


def is_ours(name: str) -> bool:
    """Whether a process of a command may have left a file of that name."""
    return _NAME.match(name) is not None


def _unpack(text: str, output: Path) -> None:
    """Write what the sandbox packed; names and contents come from untrusted code."""
    try:
        found = json.loads(text)
        for name, content in found.items():
            if is_ours(name):
                (output / name).write_bytes(base64.b64decode(content))
    except (ValueError, AttributeError, TypeError) as error:
        raise NotRun(f"what came out of the sandbox is not readable: {error}") from error
