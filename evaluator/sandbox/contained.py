"""What runs first inside a container: it makes sure of the isolation, then becomes the program.

The daemon sets the user, the limits and the filter, as it was told; whether it did is looked
at here, from inside, because a daemon that ignores an option says nothing. A container has
three streams and inherits no descriptor: its input becomes the requests, its output the
replies, its errors the log. On the output, ``READY`` comes before any byte of the
program's, or a sentence that says why it was not started (fail closed).

It is imported with ``launch.py`` alone beside it, by an interpreter without site packages.
"""

import errno
import json
import os
import signal
import sys
from collections.abc import Iterator, Mapping

from .launch import REPLY_FD, place_pipes, volunteer_for_the_oom_killer

READY = b"ready\n"
_SCRATCH = ("/tmp", "/dev", "/proc")  # noqa: S108
"""Where a mount may be writable: small, private and, but for the first, root's."""


def main() -> None:
    """Read the settings (JSON) and the program from the command line; never returns."""
    settings, program = json.loads(sys.argv[1]), sys.argv[2:]
    variables = settings["environment"]
    _place_streams()
    try:
        complaints = [*_rights(settings["user"], settings["status"]), *_network(), *_writable()]
        if complaints:
            raise OSError("Docker did not isolate it: " + "; ".join(complaints))
        path = _find(program[0], variables["PATH"])
        volunteer_for_the_oom_killer()
        os.makedirs(variables["HOME"], mode=0o700, exist_ok=True)
        for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by Python; a program expects neither
            signal.signal(ignored, signal.SIG_DFL)
        os.write(REPLY_FD, READY)
        os.execve(path, program, variables)  # noqa: S606 - no shell is the point
    except OSError as error:
        os.write(REPLY_FD, f"cannot start {program[0]}: {error}".encode())
        os._exit(126)


def _place_streams() -> None:
    place_pipes(0, 1, keep=-1)
    nothing = os.open("/dev/null", os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    os.close(nothing)


def _rights(user: int, wanted: Mapping[str, int]) -> Iterator[str]:
    """Yield what differs in the user and in ``/proc/self/status``."""
    if {*os.getresuid(), *os.getresgid(), *os.getgroups()} != {user}:
        yield f"it runs as user {os.getuid()} with the groups {os.getgroups()}, not as {user}"
    with open("/proc/self/status", encoding="ascii") as file:
        status = dict(line.rstrip().split(":\t", 1) for line in file if ":\t" in line)
    for name, value in wanted.items():
        if int(status.get(name, "-1"), 16) != value:
            yield f"{name} is {status.get(name, 'unknown')}, not {value}"


def _network() -> Iterator[str]:
    with open("/proc/net/dev", encoding="ascii") as file:
        names = [line.split(":")[0].strip() for line in file if ":" in line]
    if other := [name for name in names if name != "lo"]:
        yield f"it has the network interfaces {', '.join(other)}"


def _writable() -> Iterator[str]:
    """Yield the mounts that could be written to and are no scratch folder."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as file:
        for line in file:
            fields = line.split()
            place, options, whole = fields[4], fields[5].split(","), fields[-1].split(",")
            scratch = any(f"{place}/".startswith(f"{folder}/") for folder in _SCRATCH)
            if not scratch and "ro" not in options and "ro" not in whole:
                yield f"{place} is writable"


def _find(name: str, search: str) -> str:
    """Return the program's path; told here, for nobody hears of a failed ``exec`` as such."""
    paths = [name] if "/" in name else [f"{folder}/{name}" for folder in search.split(":")]
    for path in paths:
        if os.access(path, os.X_OK):
            return path
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
