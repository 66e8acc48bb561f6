"""How much memory a process and its descendants hold, read from ``/proc``.

Anonymous and shared pages are counted, file pages (the code of torch, say) are not: the
kernel drops those at will. A quick look counts pages that a fork shares once per process;
an exact one counts them once, and costs a walk over the page tables.

What processes share by MAP_SHARED belongs to none of them: it is there although no page table
leads to it, where a child filled it and ended. So the shared objects are counted, not their
pages: by their blocks, which root may ask for, else by how far the mappings reach.
"""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path

_QUICK = ("status", b"RssAnon:")
_EXACT = ("smaps_rollup", b"Pss_Anon:")
_SHARED_OBJECT = b"/dev/zero (deleted)"
"""How the kernel names shared memory that has no file; what has one lies in a tmpfs of a size."""
_BLOCK_BYTES = 512


def tree_memory_bytes(root_pid: int, *, exact: bool = False) -> int:
    """Return the bytes held by ``root_pid`` and every descendant; 0 where none is left.

    Args:
        root_pid: of the first process.
        exact: count private pages that several of the processes share once; else once for each.
    """
    pids = tree(root_pid)
    shared: dict[bytes, int] = {}
    for pid in pids:
        _count_shared(pid, shared)
    return sum(_private_bytes(pid, exact=exact) for pid in pids) + sum(shared.values())


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


def _private_bytes(pid: int, *, exact: bool) -> int:
    """The private memory of one process; a quick look where the exact one is not permitted."""
    file, counted = _EXACT if exact else _QUICK
    lines = _read(f"/proc/{pid}/{file}").splitlines()
    if exact and not lines:
        return _private_bytes(pid, exact=False)
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith(counted))


def _count_shared(pid: int, held: dict[bytes, int]) -> None:
    """Add the shared objects that a process maps, by their inode, to those of the others."""
    for line in _read(f"/proc/{pid}/maps").splitlines():
        if line.endswith(_SHARED_OBJECT):
            span, _, offset, _, inode = line.split()[:5]
            start, end = (int(address, 16) for address in span.split(b"-"))
            try:
                blocks = os.stat(f"/proc/{pid}/map_files/{start:x}-{end:x}").st_blocks
                held[inode] = blocks * _BLOCK_BYTES
            except OSError:
                held[inode] = max(held.get(inode, 0), int(offset, 16) + end - start)


def _read(path: str) -> bytes:
    """Return the content of a file of ``/proc``; nothing where its process has ended."""
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""
