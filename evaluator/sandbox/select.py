"""The choice of the sandbox for this machine, in one place, so that all parts agree.

The choice lives in the environment, so that processes of ours that start others pass it on.
"""

from __future__ import annotations

import os

from evaluator.errors import SandboxUnavailable
from evaluator.sandbox import Sandbox
from evaluator.sandbox.bubblewrap import BubblewrapSandbox

VARIABLE = "KSMITH_SANDBOX"
NAMES = ("bubblewrap", "docker", "docker:RUNTIME")
_DEFAULT = "bubblewrap"


def choose_sandbox(name: str) -> None:
    """Let ``select_sandbox`` return this one from now on, here and in processes we start.

    Raises:
        SandboxUnavailable: no sandbox has this name.
    """
    _kind_and_runtime(name)
    os.environ[VARIABLE] = name


def select_sandbox() -> Sandbox:
    """Return the sandbox to use here: what ``KSMITH_SANDBOX`` names, else bubblewrap.

    Raises:
        SandboxUnavailable: it cannot be had; the message names the remedy.
    """
    kind, runtime = _kind_and_runtime(os.environ.get(VARIABLE) or _DEFAULT)
    if kind == "bubblewrap":
        return BubblewrapSandbox()
    from evaluator.sandbox.docker import DockerSandbox

    return DockerSandbox(runtime=runtime)


def _kind_and_runtime(name: str) -> tuple[str, str | None]:
    kind, colon, runtime = name.partition(":")
    if (kind == "bubblewrap" and not colon) or (kind == "docker" and bool(colon) == bool(runtime)):
        return kind, runtime or None
    raise SandboxUnavailable(
        f"there is no sandbox named {name!r}, so nothing was run; "
        f"--sandbox and {VARIABLE} take {', '.join(NAMES[:-1])} or {NAMES[-1]} (docker:runsc)"
    )
