"""The worker's requests as typed calls: what the supervisor may ask of a session."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from evaluator.device import Device
from evaluator.evaluation import Clock
from evaluator.session import RequestFailed, Session, WorkerCrashed
from evaluator.tensors import CallResult, plain_arguments, read_call
from evaluator.worker.protocol import ProtocolError
from evaluator.workload import Workload

_MIN_REPLY_BYTES = 64 << 20
_SHOWN_CHARACTERS = 1000
_REPLY_FACTOR = 16
"""Outputs may be this many times larger than the inputs; float64 alone takes four."""

_MOST_CALLS = 10**9
_LEAST_NS = 0.01
"""No block makes more calls and no call takes less; other claims would overflow a ratio."""


@dataclass(frozen=True)
class Call:
    """What to call, and how its parameters are named."""

    function: str
    class_name: str | None
    arguments: tuple[str, ...]
    state: tuple[str, ...]


@dataclass(frozen=True)
class BlockTime:
    """One timed block: the worker's claim and the supervisor's bound."""

    claimed_ns: float
    wall_ns: int
    calls: int
    waited_ns: int = 0
    """How long the worker's threads waited for a core meanwhile; 0 where nobody can tell."""

    @property
    def per_call_ns(self) -> float:
        """Claimed time per call."""
        return self.claimed_ns / self.calls


class Client:
    """Typed requests on one session. Every method raises ``WorkerLost`` or ``RequestFailed``."""

    def __init__(self, session: Session, *, device: str, threads: int, cores: Sequence[int]):
        self.session = session
        self._device = device
        self._threads = threads
        self._cores = list(cores)
        self._next_handle = 0
        self._shared: Device | None = None
        self._compiled_for: set[str] = set()

    def share(self, device: Device) -> None:
        """From now on take turns on ``device`` with the workers of other candidates."""
        self._shared = device

    def load(
        self, source: str, call: Call, *, native: bool, compile_seconds: float, seconds: float
    ) -> None:
        """Import ``source``; with ``native``, compile its C++ as well."""
        self.session.request(
            {
                "kind": "load",
                "source": source,
                "entry": {
                    "function": call.function,
                    "class_name": call.class_name,
                    "arguments": list(call.arguments),
                    "state": list(call.state),
                },
                "native": native,
                "compile_seconds": compile_seconds,
                "threads": self._threads,
                "cores": self._cores,
            },
            timeout_seconds=seconds + (compile_seconds if native else 0),
        )

    def run(
        self,
        workload: Workload,
        seed: int,
        *,
        seconds: float,
        lifted: bool = False,
        device: str | None = None,
    ) -> CallResult:
        """Call once on the inputs of ``seed``; ``lifted`` computes in float64."""
        with self._turn(workload):
            reply = self.session.request(
                {
                    "kind": "run",
                    "arguments": plain_arguments(workload),
                    "seed": seed,
                    "lifted": lifted,
                    "device": device or self._device,
                },
                timeout_seconds=seconds,
                reply_bytes=_reply_bytes(workload),
            )
        return self._call(reply.message, reply.blobs)

    def _turn(self, workload: Workload) -> AbstractContextManager[None]:
        """A first call compiles for its shapes, beside others; later ones have the device."""
        if self._shared is None:
            return nullcontext()
        if workload.name in self._compiled_for:
            return self._shared.running()
        self._compiled_for.add(workload.name)
        return self._shared.building()

    def prepare(
        self,
        workload: Workload,
        seeds: Sequence[int],
        *,
        writes: Sequence[str],
        clock: Clock,
        seconds: float,
        compiled: bool = False,
    ) -> tuple[int, Clock]:
        """Make the rotated buffers; return the handle and the clock that will be used."""
        handle = self._next_handle
        self._next_handle += 1
        reply = self.session.request(
            {
                "kind": "prepare",
                "handle": handle,
                "arguments": plain_arguments(workload),
                "seeds": list(seeds),
                "writes": list(writes),
                "device": self._device,
                "clock": clock.value,
                "compiled": compiled,
            },
            timeout_seconds=seconds,
        )
        try:
            return handle, Clock(reply.message["clock"])
        except (KeyError, ValueError) as error:
            raise self._nonsense(f"it names no clock: {error!r}") from error

    def block(self, handle: int, calls: int, *, seconds: float) -> BlockTime:
        """Time one block of at least ``calls`` calls."""
        before = self.session.waited_ns()
        reply = self.session.request(
            {"kind": "block", "handle": handle, "calls": calls}, timeout_seconds=seconds
        )
        after = self.session.waited_ns()
        waited = 0 if before is None or after is None else max(0, after - before)
        try:
            claimed, made = float(reply.message["ns"]), int(reply.message["calls"])
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise self._nonsense(f"a block's reply makes no sense: {error!r}") from error
        plausible = math.isfinite(claimed) and 1 <= made <= _MOST_CALLS
        if not (plausible and claimed / made >= _LEAST_NS):
            raise self._nonsense(f"a block of {made} calls that took {claimed} ns")
        return BlockTime(claimed, reply.wall_ns, made, waited)

    def refill(self, handle: int, seeds: Sequence[int], *, seconds: float) -> None:
        """Write fresh content into the rotated buffers."""
        self.session.request(
            {"kind": "refill", "handle": handle, "seeds": list(seeds)}, timeout_seconds=seconds
        )

    def last(self, handle: int, workload: Workload, *, seconds: float) -> tuple[CallResult, int]:
        """What the last call of the last block returned, and which buffer it used."""
        reply = self.session.request(
            {"kind": "last", "handle": handle},
            timeout_seconds=seconds,
            reply_bytes=_reply_bytes(workload),
        )
        index = reply.message.get("index")
        if not isinstance(index, int):
            raise self._nonsense(f"a buffer's number that is none: {index!r}")
        return self._call(reply.message, reply.blobs), index

    def release(self, handle: int, *, seconds: float) -> None:
        """Free the buffers."""
        self.session.request({"kind": "release", "handle": handle}, timeout_seconds=seconds)

    def launches(self, *, seconds: float) -> list[dict[str, Any]]:
        """The distinct Triton launches that the interpreter recorded."""
        reply = self.session.request({"kind": "launches"}, timeout_seconds=seconds)
        return self._list_of_objects(reply.message, "launches")

    def compile_kernels(
        self, launches: Sequence[Mapping[str, Any]], *, capability: int, seconds: float
    ) -> list[dict[str, Any]]:
        """Compile recorded launches for a GPU that need not be here."""
        reply = self.session.request(
            {"kind": "compile_kernels", "launches": list(launches), "capability": capability},
            timeout_seconds=seconds,
        )
        return self._list_of_objects(reply.message, "resources")

    def _call(self, message: Mapping[str, Any], blobs: Sequence[bytes]) -> CallResult:
        try:
            return read_call(message, blobs)
        except ProtocolError as error:
            raise self._nonsense(f"its report makes no sense: {error}") from error

    def _list_of_objects(self, message: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
        found = message.get(name)
        if not isinstance(found, list) or not all(isinstance(f, dict) for f in found):
            raise self._nonsense(f"its {name} are no list of objects")
        return found

    def _nonsense(self, cause: str) -> WorkerCrashed:
        """Kill a worker whose answers cannot be read."""
        self.session.close()
        return WorkerCrashed(self.session.options.role, cause)


def _reply_bytes(workload: Workload) -> int:
    return max(_MIN_REPLY_BYTES, _REPLY_FACTOR * workload.total_bytes)


def describe(error: RequestFailed) -> str:
    """Return a failure in one line, with the line of the module where it happened."""
    failure = error.failure
    where = f" (line {failure.line})" if failure.line is not None else ""
    first = next(iter(failure.message.splitlines()), "")
    return f"{_plain(failure.type_name)}: {_plain(first)}{where}"


def _plain(text: str) -> str:
    """Shorten ``text`` and drop what would steer the terminal that it is shown on."""
    return "".join(c for c in text[:_SHOWN_CHARACTERS] if c.isprintable())
