"""The worker's requests as typed calls: what the supervisor may ask of a session."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from typing import Any

from pydantic import JsonValue, ValidationError

from evaluator.backends import KernelTarget, NativeBuild
from evaluator.census.findings import RawCensus
from evaluator.device import Device
from evaluator.evaluation import Clock, KernelResources
from evaluator.records import complaint
from evaluator.session import RequestFailed, Session, WorkerCrashed
from evaluator.tensors import CallResult, plain_arguments, read_call
from evaluator.worker.protocol import ProtocolError
from evaluator.workload import DerivedWorkload, Workload

_MIN_REPLY_BYTES = 64 << 20
_SHOWN_CHARACTERS = 1000
_REPLY_FACTOR = 16
"""Outputs may be this many times larger than the inputs; float64 alone takes four."""

_LEAST_NS = 0.01
"""No call takes less; other claims would overflow a ratio."""


@dataclass(frozen=True)
class Call:
    """What to call, and how its parameters are named."""

    function: str
    class_name: str | None
    arguments: tuple[str, ...]
    state: tuple[str, ...]
    constructor: tuple[JsonValue, ...] | None = None
    writes: tuple[str, ...] = ()
    """Written arguments; where None is returned, they stand for what is returned."""


@dataclass(frozen=True)
class BlockTime:
    """One timed block: the worker's claim and the supervisor's bound."""

    claimed_ns: float
    wall_ns: int
    calls: int
    waited_ns: int = 0
    """How long the worker's threads waited for a core meanwhile; 0 where nobody can tell."""
    until_idle_ns: float = 0.0
    """The worker's claim of the time until the whole device was idle."""
    clocks_mhz: tuple[int, int] | None = None
    """The device's clock right before and right after; None where nobody can tell."""

    @property
    def per_call_ns(self) -> float:
        """Claimed time per call."""
        return self.claimed_ns / self.calls


@dataclass(frozen=True)
class ObservedTraffic:
    """Per argument: its bytes, how many sampled elements mattered, how many were sampled."""

    readings: Mapping[str, tuple[int, int, int]]
    written_bytes: float


class Client:
    """Typed requests on one session. Every method raises ``WorkerLost`` or ``RequestFailed``."""

    def __init__(
        self,
        session: Session,
        *,
        device: str,
        threads: int,
        cores: Sequence[int],
        reference_build: NativeBuild | None = None,
    ):
        self.session = session
        self.reference_build = reference_build
        self._device = device
        self._threads = threads
        self._cores = list(cores)
        self._next_handle = 0
        self._shared: Device | None = None
        self._compiled_for: set[str] = set()
        self._writes: tuple[str, ...] = ()

    def share(self, device: Device) -> None:
        """From now on take turns on ``device`` with the workers of other candidates."""
        self._shared = device

    def load(
        self,
        source: str,
        call: Call,
        *,
        seconds: float,
        build: NativeBuild | None = None,
        compile_seconds: float = 0,
    ) -> tuple[KernelResources, ...]:
        """Import ``source``; with ``build``, compile its SOURCE as well.

        Returns:
            What the compiler said of its kernels, where it compiles for a GPU.
        """
        self._writes = call.writes
        reply = self.session.request(
            {
                "kind": "load",
                "source": source,
                "entry": {
                    "function": call.function,
                    "class_name": call.class_name,
                    "arguments": list(call.arguments),
                    "state": list(call.state),
                    "constructor": call.constructor,
                    "writes": list(call.writes),
                },
                "build": None if build is None else asdict(build),
                "compile_seconds": compile_seconds,
                "threads": self._threads,
                "cores": self._cores,
            },
            timeout_seconds=seconds + (compile_seconds if build is not None else 0),
        )
        return self._resources(reply.message)

    def run(
        self,
        workload: Workload,
        seed: int,
        *,
        seconds: float,
        lifted: bool = False,
        jitter: tuple[float, int] = (0.0, 0),
        poison: Sequence[int] = (),
        recall: bool = False,
        device: str | None = None,
    ) -> CallResult:
        """Call once on the inputs of ``seed``, in memory that no call had before.

        Args:
            workload: what to call it on.
            seed: of the inputs.
            seconds: deadline.
            lifted: compute in float64.
            jitter: how far floating inputs move, relative, and by which of many draws.
            poison: sizes in bytes of freed memory to fill with a pattern before the call.
            recall: report the outputs of the call before, as they are now, as well.
            device: by default the client's.
        """
        with self._turn(workload):
            reply = self.session.request(
                {
                    "kind": "run",
                    "arguments": plain_arguments(workload),
                    "seed": seed,
                    "lifted": lifted,
                    "jitter": jitter[0],
                    "jitter_number": jitter[1],
                    "poison": list(poison),
                    "recall": recall,
                    "declared": not isinstance(workload, DerivedWorkload),
                    "device": device or self._device,
                },
                timeout_seconds=seconds,
                reply_bytes=_reply_bytes(workload),
            )
        result = self._call(reply.message, reply.blobs)
        if set(result.zones) != {n for n, t in workload.tensors.items() if t.alias_of is None}:
            raise self._nonsense("it does not report the zones around the arguments")
        return result

    def _turn(self, workload: Workload) -> AbstractContextManager[None]:
        """A first call compiles for its shapes, beside others; later ones have the device."""
        if self._shared is None:
            return nullcontext()
        if workload.name in self._compiled_for:
            return self._shared.running()
        self._compiled_for.add(workload.name)
        return self._shared.building()

    def exercise(self, workload: Workload, seed: int, *, seconds: float) -> None:
        """Call once and look at nothing; for a worker that runs under a memory checker."""
        self.session.request(
            {
                "kind": "exercise",
                "arguments": plain_arguments(workload),
                "seed": seed,
                "device": self._device,
            },
            timeout_seconds=seconds,
        )

    def prepare(
        self,
        workload: Workload,
        seeds: Sequence[int],
        *,
        writes: Sequence[str],
        clock: Clock,
        seconds: float,
        copies: int = 0,
        compiled: bool = False,
    ) -> tuple[int, Clock]:
        """Make a buffer per seed and so many copies of all; return handle and clock to be used."""
        handle = self._next_handle
        self._next_handle += 1
        reply = self.session.request(
            {
                "kind": "prepare",
                "handle": handle,
                "arguments": plain_arguments(workload),
                "seeds": list(seeds),
                "copies": copies,
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
        """Time one block of ``calls`` calls; the worker must have made just these."""
        before = self._waited_ns()
        reply = self.session.request(
            {"kind": "block", "handle": handle, "calls": calls}, timeout_seconds=seconds
        )
        after = self._waited_ns()
        waited = 0 if before is None or after is None else max(0, after - before)
        message = reply.message
        try:
            claimed, made = float(message["ns"]), int(message["calls"])
            until_idle = float(message.get("until_idle_ns", claimed))
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise self._nonsense(f"a block's reply makes no sense: {error!r}") from error
        if made != calls:
            raise self._nonsense(f"a block of {made} calls where {calls} were asked for")
        if not (math.isfinite(claimed) and claimed / made >= _LEAST_NS):
            raise self._nonsense(f"a block of {made} calls that took {claimed} ns")
        if not (math.isfinite(until_idle) and until_idle >= claimed):
            raise self._nonsense(f"a device idle after {until_idle} ns of {claimed} ns of work")
        return BlockTime(claimed, reply.wall_ns, made, waited, until_idle)

    def _waited_ns(self) -> int | None:
        """How long the worker's threads waited for a core; not asked where it does not matter."""
        return self.session.waited_ns() if self._device == "cpu" else None

    def refill(self, handle: int, index: int, seed: int, *, seconds: float) -> None:
        """Write fresh content into one of the rotated buffers."""
        self.session.request(
            {"kind": "refill", "handle": handle, "index": index, "seed": seed},
            timeout_seconds=seconds,
        )

    def last(
        self, handle: int, workload: Workload, index: int, pick: int, *, seconds: float
    ) -> tuple[CallResult, int]:
        """What a call of the last block on buffer ``index`` returned, and which it says it used.

        Without a graph there is the last call alone; within one, ``pick`` chooses.
        """
        reply = self.session.request(
            {"kind": "last", "handle": handle, "index": index, "pick": pick},
            timeout_seconds=seconds,
            reply_bytes=_reply_bytes(workload),
        )
        used = reply.message.get("index")
        if not isinstance(used, int):
            raise self._nonsense(f"a buffer's number that is none: {used!r}")
        return self._call(reply.message, reply.blobs), used

    def yardsticks(
        self, workload: Workload, seed: int, *, seconds: float, clocks: Sequence[str] = ()
    ) -> dict[str, float]:
        """Time one call by the clocks that others use; microseconds by the clock's name.

        Named ``clocks`` are the only ones; those that the device does not have are left out.
        """
        reply = self.session.request(
            {
                "kind": "yardsticks",
                "clocks": list(clocks),
                "arguments": plain_arguments(workload),
                "seed": seed,
                "device": self._device,
            },
            timeout_seconds=seconds,
        )
        return {str(name): float(us) for name, us in reply.message["us"].items()}

    def observe_traffic(
        self,
        workload: Workload,
        writes: Sequence[str],
        *,
        seeds: Sequence[int],
        samples: int,
        sampling_seconds: float,
        seconds: float,
    ) -> ObservedTraffic:
        """Which elements of the arguments matter, and how many bytes are written."""
        reply = self.session.request(
            {
                "kind": "traffic",
                "arguments": plain_arguments(workload),
                "writes": list(writes),
                "seeds": list(seeds),
                "device": self._device,
                "samples": samples,
                "seconds": sampling_seconds,
            },
            timeout_seconds=seconds,
        )
        try:
            return ObservedTraffic(
                readings={
                    str(name): (int(r["size_bytes"]), int(r["mattered"]), int(r["sampled"]))
                    for name, r in reply.message["readings"].items()
                },
                written_bytes=float(reply.message["written_bytes"]),
            )
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
            raise self._nonsense(f"its traffic makes no sense: {error!r}") from error

    def release(self, handle: int, *, seconds: float) -> None:
        """Free the buffers."""
        self.session.request({"kind": "release", "handle": handle}, timeout_seconds=seconds)

    def census(
        self,
        workload: Workload,
        seed: int,
        *,
        writes: Sequence[str],
        seconds: float,
        profile: bool = False,
    ) -> RawCensus:
        """Call on the inputs of ``seed`` and return what ran; ``profile`` asks CUPTI as well."""
        with self._turn(workload):
            reply = self.session.request(
                {
                    "kind": "census",
                    "arguments": plain_arguments(workload),
                    "seed": seed,
                    "writes": list(writes),
                    "device": self._device,
                    "profile": profile,
                },
                timeout_seconds=seconds,
            )
        try:
            return RawCensus.model_validate(reply.message.get("census"))
        except ValidationError as error:
            raise self._nonsense(f"its census makes no sense: {complaint(error)}") from error

    def launches(self, *, seconds: float) -> list[dict[str, Any]]:
        """The distinct Triton launches that the interpreter recorded."""
        reply = self.session.request({"kind": "launches"}, timeout_seconds=seconds)
        return self._list_of_objects(reply.message, "launches")

    def compile_kernels(
        self, launches: Sequence[Mapping[str, Any]], *, target: KernelTarget, seconds: float
    ) -> tuple[KernelResources, ...]:
        """Compile recorded launches for a GPU that need not be here."""
        reply = self.session.request(
            {"kind": "compile_kernels", "launches": list(launches), "target": asdict(target)},
            timeout_seconds=seconds,
        )
        return self._resources(reply.message)

    def _resources(self, message: Mapping[str, Any]) -> tuple[KernelResources, ...]:
        found = self._list_of_objects(message, "resources")
        try:
            return tuple(dict.fromkeys(KernelResources.model_validate(r) for r in found))
        except ValidationError as error:
            raise self._nonsense(f"its resources make no sense: {complaint(error)}") from error

    def _call(self, message: Mapping[str, Any], blobs: Sequence[bytes]) -> CallResult:
        try:
            return read_call(message, blobs, writes=self._writes)
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
    if failure.kind == "compile":
        first = first_error_line(failure.message)
    return f"{_plain(failure.type_name)}: {_plain(first)}{where}"


def first_error_line(message: str) -> str:
    """Return the line of a compiler's message that says what is wrong and where."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    return next((line for line in lines if "error" in line.casefold()), lines[0] if lines else "")


def _plain(text: str) -> str:
    """Shorten ``text`` and drop what would steer the terminal that it is shown on."""
    return "".join(c for c in text[:_SHOWN_CHARACTERS] if c.isprintable())
