"""What the Docker daemon is told of one program, as its API has it: values, no daemon.

The image is an empty root: links, accounts, and a folder for Docker's own init. All else
that a program sees are read-only binds of the host's files, the same as in the bubblewrap
sandbox. Source: Docker Engine API 1.41, ``ContainerCreate``.
"""

from __future__ import annotations

import io
import json
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evaluator.sandbox import SandboxSpec, mounts
from evaluator.sandbox.program import (
    accounts,
    all_users,
    environment,
    resource_limits,
    scratch_bytes,
)
from evaluator.sandbox.seccomp import docker_profile

OWNER_LABEL = "ksmith.supervisor"

_HERE = Path(__file__).parent
_FILES = {_HERE / name: f"/ksmith/sandbox/{name}" for name in ("contained.py", "launch.py")}
_BOOT = "import sys; sys.path.insert(0, '/ksmith'); from sandbox.contained import main; main()"
_INIT_FOLDER = "/sbin"
"""Docker binds its init into this one, so it must not lead to the host's."""
_RUNTIME_THREADS = 128
"""Of gVisor's own kernel, which the daemon counts with the program's."""
_LOADER_CACHE = "/etc/ld.so.cache"
_NO_CAPABILITIES = dict.fromkeys(("CapInh", "CapPrm", "CapEff", "CapBnd"), 0)
_KERNEL_FILTER = {"NoNewPrivs": 1, "Seccomp": 2}


def image_archive() -> bytes:
    """Return the root of every container as a tar archive, the same bytes each time."""
    passwd, group = accounts(all_users())
    links = {name: to for name, to in mounts.system_links().items() if name != _INIT_FOLDER}
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for folder, mode in (("etc", 0o755), (_INIT_FOLDER[1:], 0o755), ("tmp", 0o1777)):
            # A tmpfs takes the mode of the folder under it, whatever its own options say.
            archive.addfile(_entry(folder, tarfile.DIRTYPE, mode=mode))
        for name, target in links.items():
            archive.addfile(_entry(name[1:], tarfile.SYMTYPE, linkname=target))
        for name, content in (("etc/passwd", passwd), ("etc/group", group)):
            entry = _entry(name, tarfile.REGTYPE, size=len(content))
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def container_config(
    spec: SandboxSpec, *, image: str, user: int, owner: str, runtime: str | None
) -> dict[str, Any]:
    """Return the body of the request that creates the container of ``spec``.

    Args:
        spec: the program.
        image: the name of the image made of ``image_archive``.
        user: whom it runs as.
        owner: by which a warden finds the containers that a dead supervisor left.
        runtime: the daemon's name for another runtime than its own default, gVisor's ``runsc``.
    """
    status = _NO_CAPABILITIES | ({} if runtime else _KERNEL_FILTER)
    settings = {"user": user, "status": status, "environment": _variables(spec)}
    return {
        "Image": image,
        "Hostname": "sandbox",
        "User": f"{user}:{user}",
        "WorkingDir": "/tmp",  # noqa: S108 - inside
        "Cmd": [sys.executable, "-I", "-S", "-c", _BOOT, json.dumps(settings), *spec.argv],
        "Labels": {OWNER_LABEL: owner},
        **dict.fromkeys(("OpenStdin", "StdinOnce", "AttachStdin"), True),
        **dict.fromkeys(("AttachStdout", "AttachStderr"), True),
        "HostConfig": _host_config(spec, runtime),
    }


def _host_config(spec: SandboxSpec, runtime: str | None) -> dict[str, Any]:
    limits = spec.limits
    tmp_bytes, shared_memory_bytes = scratch_bytes(limits)
    return {
        "Mounts": [_bind(source, inside) for source, inside in _binds(spec).items()],
        "Tmpfs": {
            "/tmp": f"rw,exec,nosuid,nodev,mode=1777,size={tmp_bytes}",  # noqa: S108 - inside
            # Instead of the host's: nothing that runs inside needs them.
            "/sys": "ro,size=4096",
            "/sys/fs/cgroup": "ro,size=4096",
        },
        "ShmSize": shared_memory_bytes,
        "NetworkMode": "none",
        "IpcMode": "private",
        "CgroupnsMode": "private",
        "ReadonlyRootfs": True,
        "Privileged": False,
        "CapDrop": ["ALL"],
        "SecurityOpt": ["no-new-privileges", f"seccomp={json.dumps(docker_profile())}"],
        "PidsLimit": limits.processes + (_RUNTIME_THREADS if runtime else 0),
        "Memory": limits.memory_bytes,
        "MemorySwap": limits.memory_bytes,  # both together: no swap
        "Ulimits": _ulimits(spec),
        "Dns": ["127.0.0.1"],  # or it would see the host's
        "DnsSearch": ["."],
        "LogConfig": {"Type": "none", "Config": {}},
        "AutoRemove": True,
        "Init": True,
        **({"Runtime": runtime} if runtime else {}),
        **({"DeviceRequests": [_ALL_GPUS]} if spec.gpu else {}),
    }


_ALL_GPUS = {
    "Driver": "",
    "Count": -1,
    "DeviceIDs": None,
    # Not "utility", which would bring a socket of the host's.
    "Capabilities": [["gpu", "compute"]],
    "Options": {},
}


def _binds(spec: SandboxSpec) -> dict[Path, str]:
    binds = mounts.system_binds() | mounts.interpreter_binds() | dict(spec.read_only) | _FILES
    if spec.gpu:
        # The driver's libraries are the host's own, under /usr; NVIDIA's hook finds them
        # there and writes a loader cache with them, which a bind would forbid it.
        binds |= mounts.driver_binds()
        binds.pop(Path(_LOADER_CACHE), None)
    return {source: inside for source, inside in binds.items() if inside != _INIT_FOLDER}


def _bind(source: Path, inside: str) -> dict[str, Any]:
    private = {"Propagation": "rprivate"}
    return {
        "Type": "bind",
        "Source": str(source),
        "Target": inside,
        "ReadOnly": True,
        "BindOptions": private,
    }


def _ulimits(spec: SandboxSpec) -> list[dict[str, Any]]:
    """Return the limits per process; how many there may be is counted per container."""
    wanted = resource_limits(spec.limits, gpu=spec.gpu)
    names = {name: name.removeprefix("RLIMIT_").lower() for name in wanted}
    return [
        {"Name": names[name], "Soft": value, "Hard": value}
        for name, value in wanted.items()
        if name != "RLIMIT_NPROC"
    ]


def _variables(spec: SandboxSpec) -> Mapping[str, str]:
    return {**environment(spec), "PWD": "/tmp"}  # noqa: S108 - inside


def _entry(
    name: str, kind: bytes, *, mode: int = 0o644, linkname: str = "", size: int = 0
) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode, entry.linkname, entry.size = kind, mode, linkname, size
    return entry
