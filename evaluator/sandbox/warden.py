"""A process that outlives the supervisor by a moment, to remove the containers that it left.

A container is the daemon's child, not ours: if we are killed, nobody would end it. The
warden waits for the end of its input, which our end brings about however we end, and then
removes what carries our label. It is started by path, and imports nothing of ours.
"""

import contextlib
import sys
import time

import docker
from docker.errors import DockerException

_ROUNDS = 2
_PAUSE_SECONDS = 1.0
"""A container that was being made as the supervisor died shows itself by then."""


def main() -> None:
    """Take the daemon's address and the label from the command line."""
    address, label = sys.argv[1:]
    sys.stdin.buffer.read()
    client = docker.APIClient(base_url=address, version="auto")
    for attempt in range(_ROUNDS):
        time.sleep(attempt * _PAUSE_SECONDS)
        for container in client.containers(all=True, quiet=True, filters={"label": label}):
            with contextlib.suppress(DockerException):  # gone by itself
                client.remove_container(container["Id"], force=True)


if __name__ == "__main__":
    main()
