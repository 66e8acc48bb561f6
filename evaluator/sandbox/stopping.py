"""Stops a process tree whose processes would rather not be stopped.

A list of processes is out of date when it is read: one that forks and exits all the time is
never on it. So the tree is walked and sent SIGSTOP again and again, until walks find nobody
new, lose nobody on the way, and see every thread stand: then nobody is left who could fork. One
such walk is not enough, for the kernel may leave a child out of a list that changes meanwhile.
Source: proc(5), ``/proc/pid/task/tid/children`` and ``stat``.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from evaluator.sandbox.memory import tree

_CHILDREN_ARE_TOLD = os.path.exists("/proc/thread-self/children")
"""Else (a kernel without CONFIG_PROC_CHILDREN) all processes are listed, which is slower."""
_LONGEST_SECONDS = 2.0
_CALM_WALKS = 3
_STANDING = frozenset("TtZ")
_SLEEP_SECONDS = 0.02
"""Whoever sleeps in the kernel this long waits for another (``vfork``), and does not fork."""


def stop_tree(root_pid: int) -> tuple[list[int], bool]:
    """Stop ``root_pid`` and every descendant.

    Returns:
        Those that were stopped, and whether they are all; if not, some forked too fast.
    """
    walks = _Walks()
    deadline = time.monotonic() + _LONGEST_SECONDS
    calm_since = deadline
    calm_walks = 0
    while (now := time.monotonic()) < deadline:
        states = walks.stop_those_found(root_pid)
        calm_walks = calm_walks + 1 if states <= _STANDING else 0
        if calm_walks == _CALM_WALKS:
            return walks.stopped, True
        if calm_walks:
            continue
        calm_since = min(calm_since, now) if states <= _STANDING | {"D"} else deadline
        if now - calm_since > _SLEEP_SECONDS:
            return walks.stopped, True
    return walks.stopped, False


def resume(pids: Sequence[int]) -> None:
    """Let those run on that are still there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


class _Walks:
    """Repeated walks over one tree, and who was seen on them."""

    def __init__(self) -> None:
        self.stopped: list[int] = []
        self._zombies: set[str] = set()

    def stop_those_found(self, root_pid: int) -> set[str]:
        """Walk once, parents before children; stop who is new; return the threads' states.

        The state is "?" for what was new, or has ended since the last walk or on this one: it
        may have left children that this walk passed by.
        """
        states: set[str] = set()
        waiting = [root_pid] if _CHILDREN_ARE_TOLD else tree(root_pid)
        while waiting:
            pid = waiting.pop()
            try:
                found, children = self._look(pid)
                if pid not in self.stopped:
                    found.add("?")
                    os.kill(pid, signal.SIGSTOP)
                    self.stopped.append(pid)
            except (FileNotFoundError, ProcessLookupError):
                found, children = {"?"}, []
            states |= found
            waiting += children
        return states

    def _look(self, pid: int) -> tuple[set[str], list[int]]:
        """Return the states of a process's threads, and its children, read after them."""
        states: set[str] = set()
        children: list[int] = []
        for thread in os.listdir(f"/proc/{pid}/task"):
            task = Path(f"/proc/{pid}/task/{thread}")
            # The command's name, in parentheses, may itself hold spaces and parentheses.
            state = task.joinpath("stat").read_bytes().rpartition(b")")[2].split()[0].decode()
            if state == "Z" and thread not in self._zombies:
                self._zombies.add(thread)
                state = "?"
            states.add(state)
            if _CHILDREN_ARE_TOLD:
                children += map(int, task.joinpath("children").read_bytes().split())
        return states, children
