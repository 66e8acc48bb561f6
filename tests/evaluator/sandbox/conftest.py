"""Every probe runs against every sandbox that ksmith has; a new backend joins the table."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from evaluator.sandbox import Sandbox
from evaluator.sandbox.bubblewrap import BubblewrapSandbox
from evaluator.sandbox.docker import DockerSandbox
from evaluator.sandbox.zygote import ZygoteSandbox
from tests.docker_engine import docker_engine, why_no_engine

SANDBOXES: dict[str, Callable[[pytest.FixtureRequest], Sandbox]] = {
    "bubblewrap": lambda _: BubblewrapSandbox(),
    "zygote": lambda _: ZygoteSandbox(BubblewrapSandbox()),
    "docker": lambda request: DockerSandbox(request.getfixturevalue("engine")),
}


@pytest.fixture(scope="session")
def engine() -> Iterator[str]:
    """The address of a Docker engine of our own."""
    if why := why_no_engine():
        pytest.skip(why)
    with docker_engine() as address:
        yield address


@pytest.fixture(params=SANDBOXES)
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    found = SANDBOXES[request.param](request)
    yield found
    if isinstance(found, ZygoteSandbox):
        found.close()
