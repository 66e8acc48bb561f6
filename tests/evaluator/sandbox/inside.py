"""Helpers that run a script inside a sandbox, with the bare interpreter, and read its answer."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from evaluator.sandbox import Limits, Sandbox, SandboxedProcess, SandboxSpec

PRELUDE = """\
import json, os, sys
def answer(value):
    os.write(4, json.dumps(value).encode())
def attempt(action):
    try:
        return repr(action())
    except BaseException as error:
        return type(error).__name__
"""

SMALL = Limits(memory_bytes=256 << 20, processes=64, file_bytes=8 << 20, cpu_seconds=30)
"""Tight enough that a bomb goes off in a moment and harms nobody."""


@dataclass(frozen=True)
class Outcome:
    """What a script answered, how it ended, what it printed."""

    answer: Any
    reason: str
    log: str


@contextmanager
def started(
    sandbox: Sandbox, script: str, *, limits: Limits = SMALL, **spec: Any
) -> Iterator[SandboxedProcess]:
    """Run ``script`` inside for as long as the block lasts."""
    argv = [sys.executable, "-I", "-S", "-c", PRELUDE + script]
    process = sandbox.start(SandboxSpec(argv=argv, limits=limits, **spec))
    try:
        yield process
    finally:
        process.kill()


def run(sandbox: Sandbox, script: str, *, seconds: float = 30, **spec: Any) -> Outcome:
    """Run ``script`` inside to its end; it may call ``answer(value)`` once."""
    with started(sandbox, script, **spec) as process:
        wait_for_the_end(process, seconds=seconds)
        said = process.replies.read()
        return Outcome(
            answer=json.loads(said) if said else None,
            reason=process.exit_reason(),
            log=process.log_tail(),
        )


def wait_for_the_end(process: SandboxedProcess, *, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while process.alive():
        assert time.monotonic() < deadline, f"still running after {seconds} s"
        time.sleep(0.01)


needs_forks = pytest.mark.skipif(
    Path(sys.prefix).resolve().is_relative_to("/tmp"),
    reason="this Python lies in /tmp, which a zygote covers: programs start one by one",
)
