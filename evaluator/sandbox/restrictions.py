"""What keeps a system from isolating a process, and the command that allows it.

Reads the kernel's settings and this process's rights; changes nothing.
"""

from __future__ import annotations

import os
from pathlib import Path

_CAP_SYS_ADMIN = 21

_SETTINGS = {
    "user/max_user_namespaces": (
        "0",
        "the kernel allows no user namespaces (user.max_user_namespaces=0)",
        "sudo sysctl -w user.max_user_namespaces=15000",
    ),
    "kernel/unprivileged_userns_clone": (
        "0",
        "the kernel keeps user namespaces to root (kernel.unprivileged_userns_clone=0)",
        "sudo sysctl -w kernel.unprivileged_userns_clone=1",
    ),
    "kernel/apparmor_restrict_unprivileged_userns": (
        "1",
        "AppArmor takes all rights from unprivileged user namespaces "
        "(kernel.apparmor_restrict_unprivileged_userns=1, as Ubuntu 24.04 sets it)",
        "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0 "
        "(or an AppArmor profile with the rule 'userns,' for bwrap)",
    ),
}

_CONTAINER_REMEDY = (
    "start the container with --cap-add SYS_ADMIN --security-opt seccomp=unconfined "
    "--security-opt apparmor=unconfined --security-opt systempaths=unconfined, "
    "or run ksmith outside it"
)


def why_isolation_fails(proc: Path = Path("/proc"), *, user_id: int | None = None) -> str:
    """Return the likeliest cause and its remedy, as a sentence for an error message."""
    if (os.geteuid() if user_id is None else user_id) == 0:
        if not _has_sys_admin(proc):
            return f"root lacks CAP_SYS_ADMIN, as in a plain container; {_CONTAINER_REMEDY}"
        return f"root has the capabilities it takes; if this is a container, {_CONTAINER_REMEDY}"
    for name, (bad, cause, remedy) in _SETTINGS.items():
        if _read(proc / "sys" / name) == bad:
            return f"{cause}; run: {remedy}"
    return f"no kernel setting forbids it; if this is a container, {_CONTAINER_REMEDY}"


def _has_sys_admin(proc: Path) -> bool:
    lines = _read(proc / "self/status").splitlines()
    effective = next((line.split()[1] for line in lines if line.startswith("CapEff:")), "0")
    return bool(int(effective, 16) >> _CAP_SYS_ADMIN & 1)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
