"""What a KernelBench file constructs and is called with, found by running it in a sandbox."""

from __future__ import annotations

import json
import os
import select
import sys
import time
from pathlib import Path

import psutil
from pydantic import BaseModel, ConfigDict, Field, JsonValue

from evaluator.sandbox import Limits, Sandbox, SandboxedProcess, SandboxSpec
from integrations.kernelbench.errors import NotCarried
from integrations.kernelbench.values import TensorFacts

_INSIDE = Path(__file__).with_name("inside.py")
_FACTS = Path(__file__).parents[1] / "probe/facts.py"
_SCRIPT, _ROOT = "/ksmith/inside.py", "/ksmith"
_SECONDS = 180.0
_LONGEST_BYTES = 64 << 20


class _Seen(BaseModel):
    model_config = ConfigDict(frozen=True)


class SeenValue(_Seen):
    """One input: a tensor, a scalar, or something else that ``other`` names."""

    tensor: TensorFacts | None = None
    scalar: bool | int | float | str | None = None
    other: str | None = None


class SeenState(_Seen):
    """One parameter or buffer."""

    name: str
    parameter: bool
    tensor: TensorFacts


class Seen(_Seen):
    """What one file showed."""

    constructor: tuple[JsonValue, ...] | None = None
    """None where it is constructed with what is no plain value; ``constructor_told`` has it."""
    constructor_told: str = ""
    argument_names: tuple[str, ...] = ()
    inputs: tuple[SeenValue, ...] = Field(default=(), max_length=64)
    state: tuple[SeenState, ...] = Field(default=(), max_length=4096)
    shares_state: bool = False


def look(text: str, sandbox: Sandbox | None = None) -> Seen:
    """Run the file ``text`` in a sandbox and return what it showed.

    Raises:
        NotCarried: it fails, takes too long or too much memory, or answers nonsense.
        SandboxUnavailable: nothing is run without a sandbox.
    """
    from evaluator.sandbox.select import select_sandbox

    process = (sandbox or select_sandbox()).start(_spec())
    try:
        with process.requests as requests:
            requests.write(text.encode("utf-8"))
        answer = _read_all(process)
        return _parsed(answer, process)
    except BrokenPipeError as error:
        raise NotCarried(f"its sandbox ended early: {process.log_tail(500)}") from error
    finally:
        process.kill()


def _spec() -> SandboxSpec:
    memory = max(Limits().memory_bytes, psutil.virtual_memory().total // 2)
    return SandboxSpec(
        argv=[sys.executable, "-P", "-s", _SCRIPT],
        read_only={_INSIDE: _SCRIPT, _FACTS: f"{_ROOT}/integrations/probe/facts.py"},
        environment={"OMP_NUM_THREADS": "4", "USER": "kernelbench", "PYTHONPATH": _ROOT},
        limits=Limits(memory_bytes=memory),
    )


def _read_all(process: SandboxedProcess) -> bytes:
    descriptor = process.replies.fileno()
    deadline, answer = time.monotonic() + _SECONDS, b""
    while (left := deadline - time.monotonic()) > 0:
        ready, _, _ = select.select([descriptor], [], [], left)
        chunk = os.read(descriptor, 1 << 20) if ready else b""
        answer += chunk
        if len(answer) > _LONGEST_BYTES:
            raise NotCarried("it told more of itself than is read")
        if ready and not chunk:
            return answer
    raise NotCarried(f"constructing it and its inputs took longer than {_SECONDS:.0f} s")


def _parsed(answer: bytes, process: SandboxedProcess) -> Seen:
    if not answer:
        why = process.exit_reason() or process.log_tail(500).strip()
        raise NotCarried(f"constructing it and its inputs failed: {why}")
    return read_answer(answer)


def read_answer(answer: bytes) -> Seen:
    """Return what the line that ``inside.py`` answers with says.

    Raises:
        NotCarried: it tells of a failure, or makes no sense.
    """
    try:
        message = json.loads(answer)
        if "failure" in message:
            raise NotCarried(f"constructing it and its inputs failed: {message['failure']}")
        return Seen.model_validate(_nested(message["seen"]))
    except (ValueError, TypeError, KeyError, AttributeError, AssertionError) as error:
        raise NotCarried(f"its sandbox answered nonsense: {str(error)[:200]}") from error


def _nested(seen: dict[str, object]) -> dict[str, object]:
    """Gather a tensor's facts, which lie flat, into a field of their own."""
    inputs, state = seen["inputs"], seen["state"]
    assert isinstance(inputs, list)
    assert isinstance(state, list)
    named = ("name", "parameter")
    return {
        **seen,
        "inputs": [{"tensor": v} if "shape" in v else v for v in inputs],
        "state": [
            {
                **{k: v[k] for k in named},
                "tensor": {k: x for k, x in v.items() if k not in named},
            }
            for v in state
        ],
    }
