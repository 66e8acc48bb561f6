"""The choice of the sandbox for this machine, in one place, so that all parts agree."""

from __future__ import annotations

from evaluator.sandbox import Sandbox
from evaluator.sandbox.bubblewrap import BubblewrapSandbox


def select_sandbox() -> Sandbox:
    """Return the sandbox to use here.

    Raises:
        SandboxUnavailable: none can be had; the message names the remedy.
    """
    return BubblewrapSandbox()
