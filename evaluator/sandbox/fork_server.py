"""The inner side of a zygote: an interpreter with everything imported, which forks programs.

Trusted code that never runs a line of a program itself. It receives orders on one socket,
each with the program's own pipes, and forks three times for each. The first child enters new
namespaces and forks the second, the first process of the new PID namespace. That one mounts
empty scratch folders and its own ``/proc``, becomes the order's user, gives up every right,
installs the system call filter and forks the third: the program, which sees no process, file
or descriptor of the zygote's or of another program's. Any step that fails ends the child
before the program starts, and its sentence goes back to the supervisor (fail closed).
Source: design.md section 4; namespaces(7), mount_namespaces(7), user_namespaces(7).

It runs inside a sandbox and imports the standard library and ``launch.py`` alone.
"""

import contextlib
import ctypes
import gc
import json
import os
import re
import signal
import socket
import sys
from dataclasses import dataclass
from typing import Any

from .launch import checked, give_up_rights, place_pipes, set_limits, volunteer_for_the_oom_killer

MAX_ORDER_BYTES = 1 << 16
_DESCRIPTORS = ("request", "reply", "log", "status")
"""What comes with an order, in this sequence."""
_FIRST_FREE_FD = 3

_CLONE_NEWNS, _CLONE_NEWUTS, _CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
_CLONE_NEWUSER, _CLONE_NEWPID, _CLONE_NEWNET = 0x10000000, 0x20000000, 0x40000000
_MS_RDONLY, _MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 1, 2, 4, 8
_MS_REMOUNT, _MS_BIND, _MS_REC, _MS_PRIVATE = 0x20, 0x1000, 0x4000, 0x40000
_BARE = _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
_PR_SET_DUMPABLE, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 4, 22, 2
_COVERED = ("sys", "sysrq-trigger", "irq", "bus")
"""Parts of /proc that steer the kernel; read-only, as bubblewrap has them."""

_WRITABLE_AND_SHARED = re.compile(".w.s")
_LIBC = ctypes.CDLL(None, use_errno=True)


class _FilterProgram(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


@dataclass(frozen=True)
class _Order:
    """One program to start."""

    source: str
    user: int | None
    """Whom to become; None makes a user namespace instead."""
    limits: dict[str, int]
    tmp_bytes: int
    shared_memory_bytes: int
    filter: bytes
    descriptors: dict[str, int]


def serve() -> str:
    """Fork a program for each order; returns in a program only, its source for ``exec``.

    The command line holds what to run before all orders and the control socket's number.
    """
    preload, number = sys.argv[1:]
    control = socket.socket(fileno=int(number))
    _prepare(preload)
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, MAX_ORDER_BYTES, len(_DESCRIPTORS))
        if not message:
            os._exit(0)  # the supervisor has gone
        try:
            child = os.fork()
        except OSError as error:
            _tell(descriptors[_DESCRIPTORS.index("status")], f"no fork: {error}")
            child = -1
        if child == 0:
            control.detach()  # closed by number below; the object must not close it once more
            return _become_program(_read(message, descriptors))
        for descriptor in descriptors:
            os.close(descriptor)


def _prepare(preload: str) -> None:
    """Import what programs need; leave no thread, which a fork would lose, and few traces."""
    cores = os.sched_getaffinity(0)
    exec(preload, {"__name__": "__preload__"})  # noqa: S102 - ours, from the command line
    os.sched_setaffinity(0, cores)  # OpenMP binds the thread that loads it
    _refuse_what_forks_would_share()
    sys.argv = ["-c"]
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the first of the three reaps itself
    checked(_LIBC.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0))
    gc.collect()
    gc.freeze()
    sys.stdout.flush()
    sys.stderr.flush()


def _refuse_what_forks_would_share() -> None:
    """End where a fork would lose a thread, or where programs would share memory that they write.

    Raises:
        SystemExit: the imports left such a thing.
    """
    threads = len(os.listdir("/proc/self/task"))
    if threads != 1:
        sys.exit(f"the imports left {threads} threads, so nothing can be forked")
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        shared = [line.rstrip() for line in maps if _WRITABLE_AND_SHARED.match(line.split()[1])]
    if shared:
        sys.exit(f"the imports left memory that forks would share: {shared[0]}")


def _read(message: bytes, descriptors: list[int]) -> _Order:
    fields: dict[str, Any] = json.loads(message)
    fields["filter"] = bytes.fromhex(fields["filter"])
    return _Order(**fields, descriptors=dict(zip(_DESCRIPTORS, descriptors, strict=True)))


def _become_program(order: _Order) -> str:
    """Go through the three forks; return in the last, exit in the others."""
    status = socket.socket(fileno=order.descriptors["status"])
    try:
        checked(_LIBC.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0))  # or /proc/self would be root's
        _close_all_but(set(order.descriptors.values()))
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _enter_namespaces(order.user)
        _leave_to_init(status)
        _mount_private(order)
        _confine(order)
        status.send(b"ready")
        if status.recv(1) != b"!":  # the supervisor knows our number and may start watching
            os._exit(1)
        _leave_to_program(status)
        status.detach()
        _take_place(order)
    except BaseException as error:
        _tell(order.descriptors["status"], f"{type(error).__name__}: {error}")
        os._exit(1)
    return order.source


def _tell(status: int, sentence: str) -> None:
    with contextlib.suppress(OSError):
        os.write(status, sentence.encode())


def _close_all_but(kept: set[int]) -> None:
    start = _FIRST_FREE_FD
    for descriptor in sorted(kept):
        os.closerange(start, descriptor)
        start = descriptor + 1
    os.closerange(start, os.sysconf("SC_OPEN_MAX"))


def _enter_namespaces(user: int | None) -> None:
    flags = _CLONE_NEWNS | _CLONE_NEWPID | _CLONE_NEWIPC | _CLONE_NEWUTS | _CLONE_NEWNET
    if user is not None:
        _done("new namespaces", _LIBC.unshare(flags))
        return
    us, group = os.getuid(), os.getgid()
    _done("a new user namespace", _LIBC.unshare(flags | _CLONE_NEWUSER))
    maps = {"setgroups": "deny", "uid_map": f"{us} {us} 1", "gid_map": f"{group} {group} 1"}
    for name, content in maps.items():
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(content)


def _leave_to_init(status: socket.socket) -> None:
    """Fork the namespace's first process and hand the supervisor its descriptor."""
    init = os.fork()
    if init == 0:
        return
    socket.send_fds(status, [b"init"], [os.pidfd_open(init)])
    os._exit(0)


def _mount_private(order: _Order) -> None:
    """Cover what programs could share: scratch folders, terminals, ``/proc``."""
    _mount(None, "/", None, _MS_REC | _MS_PRIVATE)
    _mount("proc", "/proc", "proc", _BARE)
    for path in (f"/proc/{name}" for name in _COVERED):
        if os.path.exists(path):
            _mount(path, path, None, _MS_BIND | _MS_REC)
            _mount(None, path, None, _MS_BIND | _MS_REMOUNT | _MS_RDONLY | _BARE)
    for path, size in (("/tmp", order.tmp_bytes), ("/dev/shm", order.shared_memory_bytes)):  # noqa: S108
        _mount("tmpfs", path, "tmpfs", _MS_NOSUID | _MS_NODEV, f"mode=1777,size={size}")
    _mount("tmpfs", "/dev/pts", "tmpfs", _BARE | _MS_RDONLY, "mode=0555,size=4096")
    os.chdir("/tmp")  # noqa: S108 - the old one is under it, and writable


def _confine(order: _Order) -> None:
    """Everything that must hold before the program's first instruction."""
    set_limits(order.limits)
    volunteer_for_the_oom_killer()
    give_up_rights(order.user, bounding=True)
    os.makedirs(os.environ["HOME"], mode=0o700, exist_ok=True)
    program = _FilterProgram(len(order.filter) // 8, order.filter)
    checked(_LIBC.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0))
    # The first process stays ours: its memory is not the program's to read or write.
    checked(_LIBC.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0))


def _leave_to_program(status: socket.socket) -> None:
    """Fork the program; stay as the namespace's first process, until it ends."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # which the kernel keeps from a first process
    program = os.fork()
    if program == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        return
    _close_all_but({status.fileno()})
    os.closerange(0, _FIRST_FREE_FD)  # the program's log ends with the program
    while True:
        pid, code = os.wait()
        if pid == program:
            with contextlib.suppress(OSError):
                status.send(str(os.waitstatus_to_exitcode(code)).encode())
            os._exit(0)


def _take_place(order: _Order) -> None:
    """Descriptors 0 to 4 and nothing else, in a session of its own."""
    checked(_LIBC.prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0))
    os.setsid()
    for standard in (1, 2):
        os.dup2(order.descriptors["log"], standard)
    place_pipes(order.descriptors["request"], order.descriptors["reply"], keep=-1)


def _mount(
    source: str | None, target: str, kind: str | None, flags: int, options: str = ""
) -> None:
    texts = [None if text is None else text.encode() for text in (source, target, kind)]
    _done(f"a mount on {target}", _LIBC.mount(*texts, ctypes.c_ulong(flags), options.encode()))


def _done(what: str, result: int) -> None:
    """Raise the OSError of a libc call that failed, with what was wanted."""
    try:
        checked(result)
    except OSError as error:
        raise OSError(error.errno, f"{what}: {error.strerror}") from error
