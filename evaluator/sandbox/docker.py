"""The Docker sandbox: each program in a container of its own, by a daemon on this machine.

It gives what the bubblewrap sandbox gives, for machines whose administrators allow Docker
but no namespaces, and with ``runtime="runsc"`` gVisor's kernel in place of the host's. It
fails closed: a daemon that cannot do what is asked is not used, what it made of the request
is read back before the start, and what became of it is looked at from inside
(``contained.py``). Whoever may speak to the daemon is as good as root on this machine; the
programs inside never see its socket. Source: design.md section 4.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import subprocess
import sys
import threading
import uuid
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from evaluator.sandbox import SandboxedProcess, SandboxSpec
from evaluator.sandbox.daemon import DEFAULT_ADDRESS, Daemon
from evaluator.sandbox.docker_options import OWNER_LABEL, container_config, image_archive
from evaluator.sandbox.program import user_number

if TYPE_CHECKING:
    from evaluator.sandbox.container import ContainerProcess

_IMAGE = "ksmith-sandbox"
_WARDEN = Path(__file__).with_name("warden.py")
_START_SECONDS = 60.0
_WARDEN_SECONDS = 10.0


class DockerSandbox:
    """Starts each program in a container, by the daemon that ``DOCKER_HOST`` names."""

    def __init__(self, address: str | None = None, *, runtime: str | None = None) -> None:
        """Connect to the daemon and see what it can do.

        Args:
            address: of its socket; by default DOCKER_HOST, else ``DEFAULT_ADDRESS``.
            runtime: a runtime that it knows by this name, instead of its default.

        Raises:
            SandboxUnavailable: no daemon answers, or it cannot isolate.
        """
        self.name = f"docker:{runtime}" if runtime else "docker"
        self._runtime = runtime
        self._daemon = Daemon(address or os.environ.get("DOCKER_HOST") or DEFAULT_ADDRESS)
        if complaint := self._daemon.why_unfit(runtime):
            raise self._daemon.unavailable(complaint)

    @property
    def description(self) -> str:
        """The daemon's version and address, and the runtime."""
        version = self._daemon.info["ServerVersion"]
        runtime = self._runtime or self._daemon.info.get("DefaultRuntime", "runc")
        return f"Docker {version} ({self._daemon.address}), programs run in {runtime} containers"

    def start(self, spec: SandboxSpec) -> SandboxedProcess:
        """Start ``spec`` isolated (see ``Sandbox.start``).

        Raises:
            SandboxUnavailable: isolation failed, or the program does not exist inside.
        """
        from docker.errors import DockerException

        try:
            container = self._create(spec)
            try:
                return self._run(container, spec)
            except BaseException:
                with contextlib.suppress(DockerException):  # it removed itself
                    self._daemon.client.remove_container(container, force=True)
                raise
        except (DockerException, OSError) as error:
            raise self._daemon.unavailable(error) from error

    def _create(self, spec: SandboxSpec) -> str:
        """Create the container and read back what the daemon made of the request."""
        client = self._daemon.client
        config = container_config(
            spec,
            image=self._image(),
            user=user_number(spec.user_slot),
            owner=_guarded(self._daemon),
            runtime=self._runtime,
        )
        created = client.create_container_from_config(config)
        container = str(created["Id"])
        made = client.inspect_container(container)["HostConfig"]
        ignored = [k for k, wanted in config["HostConfig"].items() if made.get(k) != wanted]
        warned = "; ".join(created.get("Warnings") or ())
        if ignored or warned:
            client.remove_container(container, force=True)
            raise self._daemon.unavailable(
                f"it does not honour {', '.join(ignored) or 'what was asked'} "
                f"({warned or 'without a word'}); update Docker (20.10 or newer)"
            )
        return container

    def _run(self, container: str, spec: SandboxSpec) -> ContainerProcess:
        from evaluator.sandbox.container import ContainerProcess, Streams

        with Streams(self._daemon, container) as streams:
            self._daemon.client.start(container)
            process = ContainerProcess(self._daemon.client, container, streams, spec.limits)
        try:
            process.wait_until_ready(spec.argv[0], seconds=_START_SECONDS)
        except BaseException:
            process.kill()
            raise
        return process

    def _image(self) -> str:
        """Return the name of the image, which is made where it is not there yet."""
        from docker.errors import ImageNotFound

        archive = _archive()
        tag = hashlib.sha256(archive).hexdigest()[:16]
        try:
            self._daemon.client.inspect_image(f"{_IMAGE}:{tag}")
        except ImageNotFound:
            self._daemon.client.import_image_from_data(archive, repository=_IMAGE, tag=tag)
        return f"{_IMAGE}:{tag}"


_archive = cache(image_archive)

_WARDENS: dict[str, tuple[str, subprocess.Popen[bytes]]] = {}
_WARDENS_LOCK = threading.Lock()


def _guarded(daemon: Daemon) -> str:
    """Return the label value whose containers a warden removes if this process is killed.

    Raises:
        SandboxUnavailable: the warden ended.
    """
    with _WARDENS_LOCK:
        if daemon.address not in _WARDENS:
            owner = f"{os.getpid()}-{uuid.uuid4().hex}"
            process = subprocess.Popen(
                [sys.executable, "-P", str(_WARDEN), daemon.address, f"{OWNER_LABEL}={owner}"],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            _WARDENS[daemon.address] = owner, process
            atexit.register(_dismiss, process)
        owner, process = _WARDENS[daemon.address]
        if process.poll() is not None:
            del _WARDENS[daemon.address]
            raise daemon.unavailable(f"{_WARDEN.name} ended with status {process.returncode}")
        return owner


def _dismiss(warden: subprocess.Popen[bytes]) -> None:
    warden.communicate(timeout=_WARDEN_SECONDS)
