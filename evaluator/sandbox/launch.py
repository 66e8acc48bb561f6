"""What runs first inside a sandbox: it gives up every right, sets the limits, becomes the program.

Bubblewrap starts this file with the interpreter's bare standard library (``-I -S``). It
puts the two pipes on their numbers, closes every other descriptor, sets the resource
limits, and, where the sandbox was built by root, changes to an unprivileged user; only
then does it execute the program, so that no instruction of the program runs before.
Source: capabilities(7), setrlimit(2), bubblewrap's own order of steps.

The status pipe tells the supervisor what happened: ``ready`` and end of file when the
program was executed, a sentence otherwise. It starts by path, so it imports nothing of ours; what a
zygote forks (``fork_server.py``) goes through the same steps.
"""

import contextlib
import ctypes
import fcntl
import json
import os
import resource
import signal
import sys

REQUEST_FD = 3
REPLY_FD = 4
_FREE_FD = 16
"""Descriptors are moved here first, so that putting one in its place overwrites none."""

_PR_CAPBSET_DROP = 24
_PR_SET_NO_NEW_PRIVS = 38
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
_CAPABILITY_VERSION_3 = 0x20080522


def main() -> None:
    """Read the settings (JSON) and the program from the command line; never returns."""
    settings, program = json.loads(sys.argv[1]), sys.argv[2:]
    status = fcntl.fcntl(settings["status_fd"], fcntl.F_DUPFD_CLOEXEC, _FREE_FD)
    try:
        place_pipes(settings["request_fd"], settings["reply_fd"], keep=status)
        set_limits(settings["limits"])
        volunteer_for_the_oom_killer()
        user = settings["user"]
        give_up_rights(user, bounding=user is not None)
        os.makedirs(os.environ["HOME"], mode=0o700, exist_ok=True)
        for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by Python; a program expects neither
            signal.signal(ignored, signal.SIG_DFL)
        os.write(status, b"ready")
        os.execvp(program[0], program)  # noqa: S606 - no shell is the point
    except OSError as error:
        os.write(status, f": cannot start {program[0]}: {error}".encode())
        os._exit(126)


def place_pipes(request: int, reply: int, *, keep: int) -> None:
    """Put the two pipes on their numbers; close every descriptor above them but ``keep``."""
    request = fcntl.fcntl(request, fcntl.F_DUPFD, _FREE_FD)
    reply = fcntl.fcntl(reply, fcntl.F_DUPFD, _FREE_FD)
    os.dup2(request, REQUEST_FD)
    os.dup2(reply, REPLY_FD)
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        if descriptor > REPLY_FD and descriptor != keep:
            with contextlib.suppress(OSError):  # the listing's own is closed already
                os.close(descriptor)


def set_limits(limits: dict[str, int]) -> None:
    """Lower each limit, soft and hard; one that is lower already stays as it is."""
    for name, wanted in limits.items():
        which = getattr(resource, name)
        _, hard = resource.getrlimit(which)
        allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(which, (allowed, allowed))


def volunteer_for_the_oom_killer() -> None:
    """Where memory runs out all the same, the kernel shall end this and not a neighbour."""
    with open("/proc/self/oom_score_adj", "w", encoding="ascii") as score:
        score.write("1000")


def give_up_rights(user: int | None, *, bounding: bool) -> None:
    """Drop every capability; change to ``user`` where the sandbox has no user namespace.

    Args:
        user: whom to become; None where the namespace maps one user only.
        bounding: whether to empty the bounding set as well, which takes CAP_SETPCAP.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    checked(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    checked(libc.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0))
    if bounding:
        _drop_bounding_set(libc)
    if user is not None:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    checked(libc.capset(header, (ctypes.c_uint32 * 6)()))


def _drop_bounding_set(libc: ctypes.CDLL) -> None:
    with open("/proc/sys/kernel/cap_last_cap", encoding="ascii") as last:
        capabilities = range(int(last.read()) + 1)
    for capability in capabilities:
        checked(libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0))


def checked(result: int) -> None:
    """Raise the OSError of a libc call that failed."""
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


if __name__ == "__main__":
    main()
