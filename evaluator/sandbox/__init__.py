"""Sandboxes: the only places where candidate and repository code run.

One protocol, several backends, all fail closed: where isolation cannot be had, starting
raises ``SandboxUnavailable`` with the remedy and nothing runs. ``select.py`` says which
one this machine uses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Protocol


@dataclass(frozen=True)
class Limits:
    """What a sandboxed process tree may use."""

    memory_bytes: int = 8 << 30
    """Of each process, where there is no GPU, and of all together (watched, a quarter of a
    second late at worst)."""
    processes: int = 128
    """Processes and threads together."""
    file_bytes: int = 256 << 20
    """Largest single file; the private /tmp is capped at four times this, /dev/shm at once."""
    open_files: int = 512
    cpu_seconds: int = 3600
    reservations: bool = False
    """Whether a process may reserve more addresses than memory, as checkers of memory do; then
    only the watch over all together counts."""
    log_bytes: int = 1 << 20
    """Kept of standard output and error together; the rest is read and thrown away."""


@dataclass(frozen=True)
class SandboxSpec:
    """One process to start.

    ``argv`` is never given to a shell; inside, this Python lies under the name that it has
    outside, so ``sys.executable`` may lead it. ``read_only`` maps host paths to the paths
    they have inside. The environment inside is ``environment`` over a PATH, LANG, HOME and
    TMPDIR of the sandbox (with a GPU also the driver's LD_LIBRARY_PATH), nothing of ours.
    The working directory is the empty, private /tmp.
    """

    argv: Sequence[str]
    read_only: Mapping[Path, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    limits: Limits = Limits()
    gpu: bool = False
    """Whether the NVIDIA devices and the driver's libraries are visible inside."""
    user_slot: int = 0
    """Distinguishes the users that sandboxes running side by side have, where there is root;
    ``limits.processes`` counts per user, so side by side give each a slot of its own."""


class SandboxedProcess(Protocol):
    """A running sandbox. ``requests`` and ``replies`` are pipes of its own, beside its log."""

    requests: IO[bytes]
    """What we write, the process reads from file descriptor ``REQUEST_FD``."""
    replies: IO[bytes]
    """What the process writes to ``REPLY_FD``."""

    def alive(self) -> bool:
        """Whether the first process inside still runs."""

    def kill(self) -> None:
        """End everything inside, at once, and reap it; calling it twice does no harm."""

    def log_tail(self, size_bytes: int = 4000) -> str:
        """The end of what was printed inside, with undecodable bytes replaced."""

    def pause(self) -> None:
        """Stop everything inside where it stands, until ``resume``."""

    def resume(self) -> None:
        """Let everything inside run on; harmless where nothing was paused."""

    def waited_ns(self) -> int | None:
        """How long the threads inside have waited for a core so far; None if nobody can tell."""

    def exit_reason(self) -> str:
        """Why it ended (signal, exit status, memory limit), in words; '' while it runs."""


REQUEST_FD = 3
REPLY_FD = 4


class Sandbox(Protocol):
    """A way of isolating processes."""

    name: str

    @property
    def description(self) -> str:
        """Its name, version and manner of isolating, for people."""

    def start(self, spec: SandboxSpec) -> SandboxedProcess:
        """Start ``spec`` isolated: no network, no host files but the read-only binds, an
        empty private /tmp and home, its own PID, IPC, UTS and mount namespaces, no
        capabilities, no new privileges, the limits in force before the first instruction.

        Raises:
            SandboxUnavailable: isolation cannot be had; the message names the remedy.
        """
