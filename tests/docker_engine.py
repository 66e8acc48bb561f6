"""A Docker engine of the tests' own: its files in one folder, its end with the block."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import docker
import psutil

_START_SECONDS = 60
_RUNSC = ["--platform=ptrace", "--network=none"]
"""What Debian 12's needs on the kernels of today."""
_STOP_SECONDS = 20


def why_no_engine() -> str:
    """Why none can be started here; '' where it can."""
    if shutil.which("dockerd") is None:
        return "no dockerd (apt-get install docker.io)"
    if os.geteuid() != 0:
        return "only root can start dockerd"
    return ""


@contextmanager
def docker_engine() -> Iterator[str]:
    """Start ``dockerd`` and yield its address; stop it, and all that it started, at the end."""
    folder = Path(tempfile.mkdtemp(prefix="ksmith-docker-"))
    address = f"unix://{folder}/socket"
    runsc = shutil.which("runsc")
    settings = {
        "data-root": f"{folder}/data",
        "exec-root": f"{folder}/exec",
        "pidfile": f"{folder}/pid",
        "hosts": [address],
        "bridge": "none",
        "iptables": False,
        "runtimes": {"runsc": {"path": runsc, "runtimeArgs": _RUNSC}} if runsc else {},
    }
    (folder / "daemon.json").write_text(json.dumps(settings))
    with (folder / "log").open("w") as log:
        engine = subprocess.Popen(
            ["dockerd", "--config-file", folder / "daemon.json"],
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        _wait_until_it_answers(engine, address, folder / "log")
        yield address
    finally:
        _stop(engine)
        _unmount_all(folder)
        shutil.rmtree(folder, ignore_errors=True)


def _wait_until_it_answers(engine: subprocess.Popen[bytes], address: str, log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while engine.poll() is None and time.monotonic() < deadline:
        try:
            docker.APIClient(base_url=address, version="auto").close()
        except docker.errors.DockerException:
            time.sleep(0.1)
        else:
            return
    raise AssertionError(f"dockerd did not come up: {log.read_text()[-2000:]}")


def _stop(engine: subprocess.Popen[bytes]) -> None:
    started = psutil.Process(engine.pid).children(recursive=True) if engine.poll() is None else []
    engine.send_signal(signal.SIGTERM)
    try:
        engine.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        engine.kill()
        engine.wait()
    _, left = psutil.wait_procs(started, timeout=5)
    for process in left:
        process.kill()


def _unmount_all(folder: Path) -> None:
    mounted = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
    for place in sorted((m for m in mounted if m.startswith(f"{folder}/")), reverse=True):
        subprocess.run(["umount", "--lazy", place], check=False)
