"""The emitter in its sandbox, seen from our side: one request, then one reply per question.

The emitter executes repository code, so nothing that it says is trusted: replies are bounded
in size and time, and checked for their form.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evaluator.candidate import BackendName
from evaluator.problem import LoadedProblem, Problem
from evaluator.sandbox import Limits, Sandbox, SandboxedProcess, SandboxSpec
from evaluator.workload import TensorSpec
from evolver.proposers.compiler.constructed import emitted_function

EMITTER_FOLDER = Path(__file__).with_name("emitter")
INSIDE = "/ksmith"
_BOOT = "import sys; sys.path.insert(0, {root!r}); from emitter.__main__ import main; main()"
_LONGEST_REPLY_BYTES = 4 << 20
_SECONDS_PER_REPLY = 240.0
"""The first includes the import of torch and of Inductor."""


@dataclass(frozen=True)
class EmitterReply:
    """A program, or why there is none."""

    source: str | None = None
    description: str = ""
    failure: str | None = None
    is_last: bool = False
    graphs: object = None
    """Traced graphs as JSON, where those were asked for."""


class EmitterProcess:
    """One emitter for one problem and backend."""

    def __init__(
        self,
        loaded: LoadedProblem,
        backend: BackendName,
        sandbox: Sandbox | None = None,
        *,
        wants_graphs: bool = False,
    ) -> None:
        """Start the emitter and hand it the request; it works when ``next`` asks.

        It answers with programs, or once with the traced graphs where those are wanted.

        Raises:
            SandboxUnavailable: no sandbox can be had.
        """
        self._process = _start(backend, sandbox)
        self._buffer = b""
        request = {**request_of(loaded, backend), "wants_graphs": wants_graphs}
        self._send(json.dumps(request).encode() + b"\n")

    def next(self, timeout_seconds: float = _SECONDS_PER_REPLY) -> EmitterReply:
        """Ask for the next program and wait for it.

        An emitter that dies, stalls or speaks nonsense gives a last reply with the reason.
        """
        if not self._send(b"next\n"):
            return self._lost("ended before its reply")
        line = self._line(time.monotonic() + timeout_seconds)
        if line is None:
            return self._lost(f"gave no reply within {timeout_seconds:.0f} s")
        return _parsed(line) or self._lost("sent a malformed reply")

    def close(self) -> None:
        """End the emitter."""
        self._process.kill()

    def _send(self, data: bytes) -> bool:
        try:
            self._process.requests.write(data)
            self._process.requests.flush()
        except (OSError, ValueError):
            return False
        return True

    def _line(self, deadline: float) -> bytes | None:
        descriptor = self._process.replies.fileno()
        while b"\n" not in self._buffer:
            remaining = deadline - time.monotonic()
            ready, _, _ = select.select([descriptor], [], [], max(remaining, 0))
            chunk = os.read(descriptor, 1 << 16) if ready else b""
            if not chunk or len(self._buffer) > _LONGEST_REPLY_BYTES:
                return None
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _lost(self, what: str) -> EmitterReply:
        reason = self._process.exit_reason() or "still running"
        tail = self._process.log_tail(600).strip()
        return EmitterReply(
            failure=f"the compiler's emitter {what} ({reason}); its log ends: {tail}", is_last=True
        )


def _start(backend: BackendName, sandbox: Sandbox | None) -> SandboxedProcess:
    from evaluator.machine import gpus
    from evaluator.sandbox.select import select_sandbox

    spec = SandboxSpec(
        argv=[sys.executable, "-P", "-s", "-c", _BOOT.format(root=INSIDE)],
        read_only={EMITTER_FOLDER: f"{INSIDE}/emitter"},
        environment={
            "HOME": "/tmp",  # noqa: S108 (the sandbox's own)
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "TORCHINDUCTOR_CACHE_DIR": "/tmp/inductor",  # noqa: S108
            "TRITON_CACHE_DIR": "/tmp/triton",  # noqa: S108
            "OMP_NUM_THREADS": "1",
            "USER": "emitter",
        },
        limits=Limits(memory_bytes=16 << 30),
        # Inductor asks a real device for its properties; without one an H200 is assumed.
        gpu=backend is BackendName.TRITON and bool(gpus()),
    )
    return (sandbox or select_sandbox()).start(spec)


def varying_dimensions(problem: Problem) -> list[list[tuple[str, int]]]:
    """The dimensions (parameter, position) whose extents differ between workloads.

    Those that are equal in every workload stand together. It reads held-out workloads too and
    tells of them only this, so that no program is bound to the sizes that were shown.
    """
    classes: dict[tuple[int | None, ...], list[tuple[str, int]]] = {}
    for name in problem.parameters:
        specs = [w.arguments[name] for w in problem.workloads]
        shapes = [s.shape if isinstance(s, TensorSpec) else None for s in specs]
        if len({len(s) for s in shapes if s is not None}) != 1:
            continue
        for position in range(max(len(s) for s in shapes if s is not None)):
            extents = tuple(None if s is None else s[position] for s in shapes)
            if len(set(extents) - {None}) > 1:
                classes.setdefault(extents, []).append((name, position))
    return list(classes.values())


def request_of(loaded: LoadedProblem, backend: BackendName) -> dict[str, Any]:
    """The emitter's request for a problem; held-out workloads stay at home."""
    problem = loaded.problem
    shown = [w for w in problem.workloads if not w.held_out] or list(problem.workloads)
    return {
        "reference_source": loaded.reference_source,
        "function": problem.entry.function,
        "class_name": problem.entry.class_name,
        "candidate_function": emitted_function(problem),
        "arguments": list(problem.arguments),
        "state": list(problem.state),
        "returns_tuple": problem.contract.returns_tuple,
        "workloads": [w.model_dump(mode="json", include={"name", "arguments"}) for w in shown],
        "backend": backend.value,
        "varying": varying_dimensions(problem),
        "constructor": problem.entry.constructor,
    }


def _parsed(line: bytes) -> EmitterReply | None:
    try:
        message = json.loads(line)
    except ValueError:
        return None
    if not isinstance(message, dict):
        return None
    if message.get("done") is True:
        return EmitterReply(is_last=True)
    if isinstance(message.get("failure"), str):
        return EmitterReply(failure=message["failure"][:4000])
    if "graphs" in message:
        return EmitterReply(graphs=message["graphs"])
    variant = message.get("variant")
    if isinstance(variant, dict) and all(
        isinstance(variant.get(k), str) for k in ("source", "description")
    ):
        return EmitterReply(source=variant["source"], description=variant["description"][:200])
    return None
