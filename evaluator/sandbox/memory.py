"""How much memory a process and its descendants hold, read from ``/proc``.

Anonymous and shared pages are counted, file pages (the code of torch, say) are not: the
kernel drops those at will. Pages that a fork shares are counted once per process, so the
sum can only err to the strict side.
"""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path

_COUNTED = (b"RssAnon:", b"RssShmem:")


def tree_memory_bytes(root_pid: int) -> int:
    """Return the bytes held by ``root_pid`` and every descendant; 0 where none is left."""
    children = _children_by_parent()
    total, waiting = 0, [root_pid]
    while waiting:
        pid = waiting.pop()
        total += _memory_bytes(pid)
        waiting += children[pid]
    return total


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


def _memory_bytes(pid: int) -> int:
    lines = _read(f"/proc/{pid}/status").splitlines()
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith(_COUNTED))


def _read(path: str) -> bytes:
    """Return the content of a file of ``/proc``; nothing where its process has ended."""
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""
