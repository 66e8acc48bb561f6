"""The GPU opens inside a sandbox that asks for it, and in no other."""

from __future__ import annotations

from pathlib import Path

import pytest

from evaluator.sandbox import Sandbox
from tests.evaluator.sandbox.inside import run

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not any(Path("/dev").glob("nvidia[0-9]*")), reason="no NVIDIA GPU"),
]

OPEN = "import ctypes\nanswer(attempt(lambda: ctypes.CDLL('libcuda.so.1').cuInit(0)))"


def test_the_driver_opens_the_gpu_inside(sandbox: Sandbox) -> None:
    assert run(sandbox, OPEN, gpu=True).answer == "0"


def test_without_being_asked_for_the_gpu_stays_shut(sandbox: Sandbox) -> None:
    assert run(sandbox, OPEN).answer != "0"
