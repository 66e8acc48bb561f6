"""The Docker daemon on this machine: a connection, what it can do, what its refusals mean.

The Docker SDK for Python asks and answers; the streams that last as long as a container (its
input, its outputs, its events) have connections of our own, for the SDK leaves their
descriptors to the garbage collector. Source: Docker Engine API 1.41.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from evaluator.errors import SandboxUnavailable

DEFAULT_ADDRESS = "unix:///var/run/docker.sock"
_SCHEME = "unix://"
_ANSWER_SECONDS = 60.0

_NEEDED = {
    "MemoryLimit": "limits on memory",
    "SwapLimit": "limits on swap (boot the kernel with swapaccount=1)",
    "PidsLimit": "limits on processes (a kernel with the pids control group)",
}
_START = "start it: sudo systemctl start docker (or install it: sudo apt-get install docker.io)"
_JOIN = "sudo usermod -aG docker $USER, then log in again (members are as good as root)"
_GVISOR = "install it (gvisor.dev/docs/user_guide/install), then: sudo runsc install"
_NVIDIA = (
    "sudo apt-get install nvidia-container-toolkit, then: sudo nvidia-ctk runtime configure; "
    "sudo systemctl restart docker"
)
_REMEDIES = {
    "could not select device driver": _NVIDIA,
    "docker-init": "install tini where the daemon looks for docker-init",
    "bind source path does not exist": "the daemon must see the files of this machine",
    "PermissionError": _JOIN,
    "ConnectionRefusedError": _START,
    "FileNotFoundError": _START,
}


class Daemon:
    """A daemon that answered; ``client`` is the SDK's low-level one."""

    def __init__(self, address: str) -> None:
        """Connect to the daemon at ``address``, a unix socket.

        Raises:
            SandboxUnavailable: there is no SDK, the address is not on this machine, or no
                daemon answers there.
        """
        self.address = address
        self._socket_path = address.removeprefix(_SCHEME)
        if not address.startswith(_SCHEME):
            raise self.unavailable(
                "the sandbox binds files of this machine, so it needs a daemon on it; "
                f"set DOCKER_HOST={DEFAULT_ADDRESS}"
            )
        try:
            import docker
        except ImportError as error:
            raise self.unavailable(
                f"the Docker SDK for Python is missing ({error}); "
                f"{sys.executable} -m pip install docker"
            ) from error
        try:
            self.client: Any = docker.APIClient(
                base_url=address, version="auto", timeout=_ANSWER_SECONDS
            )
            self.info: Mapping[str, Any] = self.client.info()
        except (docker.errors.DockerException, OSError) as error:
            raise self.unavailable(error) from error

    def why_unfit(self, runtime: str | None) -> str:
        """Return why it cannot isolate (with this runtime); '' where it can."""
        return why_unfit(self.info, runtime)

    def unavailable(self, why: Exception | str) -> SandboxUnavailable:
        """Return the error that says that nothing was run, why, and the remedy."""
        words = str(getattr(why, "explanation", None) or why)
        remedies = dict.fromkeys(remedy for part, remedy in _REMEDIES.items() if part in words)
        return SandboxUnavailable(
            f"the Docker daemon at {self.address} did not serve, so nothing was run: "
            + "; ".join([words, *remedies])
        )

    def stream(self, method: str, resource: str, **query: object) -> socket.socket:
        """Send a request on a connection of its own; return it where the answer's body begins.

        Raises:
            OSError: the daemon refused it.
        """
        path = f"/v{self.client.api_version}/{resource}?{urlencode(query)}"
        request = f"{method} {path} HTTP/1.0\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.settimeout(_ANSWER_SECONDS)
            connection.connect(self._socket_path)
            connection.sendall(request.encode())
            answer = b""
            while not answer.endswith(b"\r\n\r\n") and (byte := connection.recv(1)):
                answer += byte
            if answer.split(b" ")[1:2] not in ([b"101"], [b"200"]):
                raise OSError(f"{method} {resource} was answered with {answer[:200]!r}")
            connection.settimeout(None)
        except BaseException:
            connection.close()
            raise
        return connection


def why_unfit(info: Mapping[str, Any], runtime: str | None) -> str:
    """Return why a daemon with this ``docker info`` cannot isolate; '' where it can."""
    lacking = [meaning for key, meaning in _NEEDED.items() if not info.get(key)]
    if not any("name=seccomp" in option for option in info.get("SecurityOptions") or ()):
        lacking.append("system call filters (a kernel and a runc with seccomp)")
    if lacking:
        return f"it lacks {', '.join(lacking)}"
    if runtime is not None and runtime not in info.get("Runtimes", {}):
        return f"it has no runtime {runtime!r}; {_GVISOR}"
    return ""
