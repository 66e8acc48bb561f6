"""The pipes between us and one child, with an owner for every descriptor.

A ``Plumbing`` opens pipes by name, hands the child its ends, and closes whatever nobody
has taken when it ends, so that no failure on the way to a running sandbox leaks one.
"""

from __future__ import annotations

import os
import select
import socket
import time
from types import TracebackType
from typing import IO, Self

_CHUNK_BYTES = 1 << 16


class Plumbing:
    """Pipes by name; ``ours`` and ``theirs`` map a name to the end that each side holds."""

    def __init__(self) -> None:
        self.ours: dict[str, int] = {}
        self.theirs: dict[str, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close_theirs()
        for descriptor in self.ours.values():
            os.close(descriptor)
        self.ours.clear()

    def to_child(self, name: str) -> int:
        """Open a pipe that the child reads and return the child's end."""
        self.theirs[name], self.ours[name] = os.pipe()
        return self.theirs[name]

    def from_child(self, name: str) -> int:
        """Open a pipe that the child writes and return the child's end."""
        self.ours[name], self.theirs[name] = os.pipe()
        return self.theirs[name]

    def socket_pair(self, name: str) -> int:
        """Open a pair of sockets that keep messages apart and return the child's end."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.ours[name], self.theirs[name] = ours.detach(), theirs.detach()
        return self.theirs[name]

    def data(self, name: str, content: bytes) -> int:
        """Return an end from which the child reads ``content``, at most a pipe's 64 KiB."""
        end = self.to_child(name)
        os.write(self.ours[name], content)
        os.close(self.ours.pop(name))
        return end

    def close_theirs(self) -> None:
        """Close the child's ends on our side, once it holds its own copies."""
        for descriptor in self.theirs.values():
            os.close(descriptor)
        self.theirs.clear()

    def take_reader(self, name: str) -> IO[bytes]:
        """Give our end of a pipe that the child writes to the caller, who closes it."""
        return os.fdopen(self.ours.pop(name), "rb")

    def take_writer(self, name: str) -> IO[bytes]:
        """Give our end of a pipe that the child reads to the caller, who closes it."""
        return os.fdopen(self.ours.pop(name), "wb")

    def take_socket(self, name: str) -> socket.socket:
        """Give our end of a pair of sockets to the caller, who closes it."""
        return socket.socket(fileno=self.ours.pop(name))

    def read_all(self, name: str, *, seconds: float) -> bytes:
        """Read a pipe to its end, or as far as it comes within ``seconds``."""
        deadline, content = time.monotonic() + seconds, b""
        while (left := deadline - time.monotonic()) > 0:
            ready, _, _ = select.select([self.ours[name]], [], [], left)
            chunk = os.read(self.ours[name], _CHUNK_BYTES) if ready else b""
            if not chunk:
                break
            content += chunk
        return content
