"""Every probe runs against every sandbox that ksmith has; a new backend joins the table."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from evaluator.sandbox import Sandbox
from evaluator.sandbox.bubblewrap import BubblewrapSandbox

SANDBOXES: dict[str, Callable[[], Sandbox]] = {"bubblewrap": BubblewrapSandbox}


@pytest.fixture(params=SANDBOXES)
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    return SANDBOXES[request.param]()
