"""What a program finds around itself, in whichever sandbox: user, accounts, environment, limits.

Values only; each backend says them in the words of its own tool.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from evaluator.sandbox import Limits, SandboxSpec, mounts

USER_SLOTS = 64
"""Programs that one process of ours may run side by side as different users."""
_FIRST_USER, _USERS = 60_000, 5_003


def user_number(slot: int) -> int:
    """Return the slot's user: distinct for all slots of one process, and most likely for
    those of two, whose processes would else count against one limit."""
    if not 0 <= slot < USER_SLOTS:
        raise ValueError(f"user_slot {slot} is not in 0..{USER_SLOTS - 1}")
    return _FIRST_USER + (os.getpid() * USER_SLOTS + slot) % _USERS


def all_users() -> range:
    """Return every number that ``user_number`` may give."""
    return range(_FIRST_USER, _FIRST_USER + _USERS)


def accounts(users: Sequence[int]) -> tuple[bytes, bytes]:
    """Return ``/etc/passwd`` and ``/etc/group`` with an account for each user."""
    passwd = "".join(f"sandbox:x:{user}:{user}::/tmp/home:/bin/sh\n" for user in users)
    group = "".join(f"sandbox:x:{user}:\n" for user in users)
    return passwd.encode(), group.encode()


def environment(spec: SandboxSpec) -> dict[str, str]:
    """Return the variables of the program, and no others."""
    variables = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": "/tmp/home",  # noqa: S108 - inside
        "TMPDIR": "/tmp",  # noqa: S108 - inside
        "LANG": "C.UTF-8",
    }
    if spec.gpu:
        variables["LD_LIBRARY_PATH"] = ":".join(map(str, mounts.driver_folders()))
    return {**variables, **spec.environment}


def scratch_bytes(limits: Limits) -> tuple[int, int]:
    """Return the sizes of /tmp and /dev/shm."""
    return 4 * limits.file_bytes, limits.file_bytes


def resource_limits(limits: Limits, *, gpu: bool) -> dict[str, int]:
    """Return limits per process by the names of ``resource``.

    Memory is limited as writable private pages (RLIMIT_DATA), not as address space:
    allocators and CUDA reserve far more addresses than they use. CUDA makes even its
    reservations writable, so with a GPU only the limit over the whole tree counts.
    """
    wanted = {
        "RLIMIT_NPROC": limits.processes,
        "RLIMIT_FSIZE": limits.file_bytes,
        "RLIMIT_NOFILE": limits.open_files,
        "RLIMIT_CPU": limits.cpu_seconds,
        "RLIMIT_CORE": 0,
    }
    reserves = gpu or limits.reservations
    return wanted if reserves else wanted | {"RLIMIT_DATA": limits.memory_bytes}
