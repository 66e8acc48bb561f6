"""Lets one worker run at a time while blocks are timed on the host's cores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Self

from evaluator.client import Client


class Stage:
    """A context in which every worker stands still, but for the one that is let on.

    After a block, threads of OpenMP's pool spin for up to tens of milliseconds before they
    sleep, and a process that a candidate left behind may never sleep; both would slow the
    next worker's block.
    """

    def __init__(self, clients: Sequence[Client]) -> None:
        """Name the workers; one that is not among them always runs."""
        self._clients = clients

    def __enter__(self) -> Self:
        """Stop all."""
        for client in self._clients:
            client.session.pause()
        return self

    def __exit__(self, *_: object) -> None:
        """Let all run on."""
        for client in self._clients:
            client.session.resume()

    @contextmanager
    def everyone(self) -> Iterator[None]:
        """Let all run meanwhile."""
        self.__exit__()
        try:
            yield
        finally:
            self.__enter__()

    @contextmanager
    def only(self, client: Client) -> Iterator[None]:
        """Let ``client`` run meanwhile, and nobody else."""
        if client not in self._clients:
            yield
            return
        client.session.resume()
        try:
            yield
        finally:
            client.session.pause()
