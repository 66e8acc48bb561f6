"""Every probe runs against every sandbox that ksmith has; a new backend joins the table."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from evaluator.sandbox import Sandbox
from evaluator.sandbox.bubblewrap import BubblewrapSandbox
from evaluator.sandbox.zygote import ZygoteSandbox

SANDBOXES: dict[str, Callable[[], Sandbox]] = {
    "bubblewrap": BubblewrapSandbox,
    "zygote": lambda: ZygoteSandbox(BubblewrapSandbox()),
}


@pytest.fixture(params=SANDBOXES)
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    found = SANDBOXES[request.param]()
    yield found
    if isinstance(found, ZygoteSandbox):
        found.close()
