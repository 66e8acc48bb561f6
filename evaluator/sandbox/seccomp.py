"""A system call filter that takes from a sandbox what no kernel ever needs.

The filter is a short deny list in classic BPF, assembled by hand because the format is
five instructions and libseccomp would be one more thing to install. It closes what
namespaces and limits leave open: new namespaces (a way back to capabilities), tracing
and reading other processes, kernel interfaces with a history of escapes (bpf,
io_uring, userfaultfd, keyrings), and memory that no limit counts (memfd, System V).
Denied calls fail with EPERM; ``clone3`` fails with ENOSYS, so that libc falls back to
``clone``, whose flags a filter can read. Source: seccomp(2), Docker's default profile.
"""

from __future__ import annotations

import errno
import platform
import struct
from collections.abc import Mapping, Sequence

from evaluator.errors import SandboxUnavailable

_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

_CLONE = {"x86_64": 56, "aarch64": 220}
_CLONE3 = 435
_X32_BIT = 0x40000000
_NAMESPACE_FLAGS = 0x7E020000
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET."""

DENIED: dict[str, tuple[int, int]] = {
    # name: (number on x86_64, number on aarch64)
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "pidfd_getfd": (438, 438),
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "syslog": (103, 116),
    "acct": (163, 89),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "semget": (64, 190),
    "msgget": (68, 186),
}

# BPF: load the 32-bit word at an offset, jump if equal, jump if any bit is set, return.
_LOAD, _JUMP_EQUAL, _JUMP_BITS, _RETURN = 0x20, 0x15, 0x45, 0x06
_NUMBER_OFFSET, _ARCH_OFFSET, _FIRST_ARGUMENT_OFFSET = 0, 4, 16
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000


def filter_program(architecture: str | None = None) -> bytes:
    """Return the filter as an array of ``struct sock_filter`` for ``bwrap --seccomp``.

    Raises:
        SandboxUnavailable: there is no table of system calls for this processor.
    """
    architecture = _known(architecture)
    column = list(_AUDIT_ARCH).index(architecture)
    program = [
        _instruction(_LOAD, value=_ARCH_OFFSET),
        _instruction(_JUMP_EQUAL, yes=1, value=_AUDIT_ARCH[architecture]),
        _instruction(_RETURN, value=_KILL),
        _instruction(_LOAD, value=_NUMBER_OFFSET),
        *_fail_with(errno.ENOSYS, when=_JUMP_EQUAL, value=_CLONE3),
    ]
    if architecture == "x86_64":
        program += _fail_with(errno.ENOSYS, when=_JUMP_BITS, value=_X32_BIT)
    for numbers in DENIED.values():
        program += _fail_with(errno.EPERM, when=_JUMP_EQUAL, value=numbers[column])
    program += [
        _instruction(_JUMP_EQUAL, no=3, value=_CLONE[architecture]),
        _instruction(_LOAD, value=_FIRST_ARGUMENT_OFFSET),
        *_fail_with(errno.EPERM, when=_JUMP_BITS, value=_NAMESPACE_FLAGS),
        _instruction(_RETURN, value=_ALLOW),
    ]
    return b"".join(program)


def docker_profile(architecture: str | None = None) -> dict[str, object]:
    """Return the same rules as a seccomp profile of Docker's, whose daemon assembles them.

    A call under a foreign architecture's number, x32's included, kills there too.

    Raises:
        SandboxUnavailable: there is no table of system calls for this processor.
    """
    audit = {"x86_64": "SCMP_ARCH_X86_64", "aarch64": "SCMP_ARCH_AARCH64"}
    namespaces = [1 << bit for bit in range(32) if _NAMESPACE_FLAGS >> bit & 1]
    masked = [
        {"index": 0, "value": f, "valueTwo": f, "op": "SCMP_CMP_MASKED_EQ"} for f in namespaces
    ]
    return {
        "defaultAction": "SCMP_ACT_ALLOW",
        "architectures": [audit[_known(architecture)]],
        "syscalls": [
            _docker_rule(["clone3"], errno.ENOSYS),
            _docker_rule(list(DENIED), errno.EPERM),
            *(_docker_rule(["clone"], errno.EPERM, [condition]) for condition in masked),
        ],
    }


def _docker_rule(
    names: list[str], number: int, conditions: Sequence[Mapping[str, object]] = ()
) -> dict[str, object]:
    action = {"action": "SCMP_ACT_ERRNO", "errnoRet": number}
    return {"names": names, "args": list(conditions), **action}


def _known(architecture: str | None) -> str:
    architecture = architecture or platform.machine()
    if architecture not in _AUDIT_ARCH:
        raise SandboxUnavailable(
            f"no system call filter for the processor architecture {architecture!r}; "
            f"ksmith evaluates on {' and '.join(_AUDIT_ARCH)} only"
        )
    return architecture


def _fail_with(number: int, *, when: int, value: int) -> list[bytes]:
    return [
        _instruction(when, no=1, value=value),
        _instruction(_RETURN, value=_ERRNO | number),
    ]


def _instruction(code: int, *, yes: int = 0, no: int = 0, value: int = 0) -> bytes:
    return struct.pack("=HBBI", code, yes, no, value)
