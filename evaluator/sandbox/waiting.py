"""How long the threads of a process tree waited for a core, read from ``/proc``.

``schedstat`` counts, per thread, the nanoseconds in which it could have run and something
else did: other work on the same cores. It is ours to read from outside, so a candidate
cannot talk itself out of a slow block.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from evaluator.sandbox.memory import tree


class WaitingTime:
    """The waiting of ``root_pid`` and of the descendants that it has at the first reading."""

    def __init__(self, root_pid: int) -> None:
        self._root_pid = root_pid
        self._pids: list[int] = []

    def read_ns(self) -> int | None:
        """Return the nanoseconds waited so far, over all threads; None where it cannot be told."""
        if not self._pids:
            self._pids = tree(self._root_pid)
        waited = [_waited_ns(pid) for pid in self._pids]
        known = [ns for ns in waited if ns is not None]
        return sum(known) if known else None


def _waited_ns(pid: int) -> int | None:
    """Waiting of all threads of one process; None where it has ended or may not be read."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
        total = 0
        for thread in threads:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                fields = Path(f"/proc/{pid}/task/{thread}/schedstat").read_bytes().split()
                total += int(fields[1])
    except (OSError, IndexError, ValueError):
        return None
    return total
