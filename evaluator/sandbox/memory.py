"""How much memory a process and its descendants hold, read from ``/proc``.

Anonymous and shared pages are counted, file pages (the code of torch, say) are not: the
kernel drops those at will. A quick look counts pages that a fork shares once per process;
an exact one counts them once, and costs a walk over the page tables.
"""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path

_QUICK = ("status", (b"RssAnon:", b"RssShmem:"))
_EXACT = ("smaps_rollup", (b"Pss_Anon:", b"Pss_Shmem:"))


def tree_memory_bytes(root_pid: int, *, exact: bool = False) -> int:
    """Return the bytes held by ``root_pid`` and every descendant; 0 where none is left.

    Args:
        root_pid: of the first process.
        exact: count pages that several of the processes share once; else once for each.
    """
    return sum(_memory_bytes(pid, exact=exact) for pid in tree(root_pid))


def tree(root_pid: int) -> list[int]:
    """Return ``root_pid`` and every descendant, as ``/proc`` lists them now, parents first."""
    children = _children_by_parent()
    found = [root_pid]
    for pid in found:  # grows while it is walked
        found += children[pid]
    return found


def _children_by_parent() -> defaultdict[int, list[int]]:
    children: defaultdict[int, list[int]] = defaultdict(list)
    for name in os.listdir("/proc"):
        if name.isdigit():
            stat = _read(f"/proc/{name}/stat")
            # The command's name, in parentheses, may itself hold spaces and parentheses.
            fields = stat.rpartition(b")")[2].split()
            if len(fields) > 1:
                children[int(fields[1])].append(int(name))
    return children


def _memory_bytes(pid: int, *, exact: bool) -> int:
    """The memory of one process; a quick look where the exact one is not permitted."""
    file, counted = _EXACT if exact else _QUICK
    lines = _read(f"/proc/{pid}/{file}").splitlines()
    if exact and not lines:
        return _memory_bytes(pid, exact=False)
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith(counted))


def _read(path: str) -> bytes:
    """Return the content of a file of ``/proc``; nothing where its process has ended."""
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""
