"""The worker's loop: one request, one reply, until ``quit`` or the pipe closes.

It imports torch, says hello with its versions, imports the module that it is given, and
only then receives seeds. It compares nothing and decides nothing. Requests arrive on file
descriptor 3, replies leave on 4; whatever the module prints goes to the sandbox's log.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import torch

from . import interpreter, kernels, traffic
from .calls import Target, as_json, describe_call
from .census import take_census
from .checked import CheckedCalls
from .inputs import generate
from .integrity import Guard
from .module import describe_failure, import_source
from .native import compile_and_bind
from .protocol import BlobList, Frame, decode, encode
from .timing import TimedTarget

REQUEST_FD = 3
REPLY_FD = 4
MODULE_NAME = "candidate"
_MAX_REQUEST_BYTES = 64 << 20


class Worker:
    """Holds the loaded module and the prepared timings."""

    def __init__(self) -> None:
        self._guard = Guard()
        self._module: dict[str, Any] = {}
        self._target = Target("", None, (), ())
        self._checked = CheckedCalls()
        self._timed: dict[int, TimedTarget] = {}
        self._handlers: Mapping[str, Callable[[dict[str, Any]], Frame]] = {
            "load": self._load,
            "run": self._run,
            "exercise": self._exercise,
            "prepare": self._prepare,
            "block": self._block,
            "refill": self._refill,
            "last": self._last,
            "release": self._release,
            "traffic": self._traffic,
            "yardsticks": self._yardsticks,
            "census": self._census,
            "launches": self._launches,
            "compile_kernels": self._compile_kernels,
        }

    def handle(self, request: dict[str, Any]) -> Frame:
        """Answer one request; any failure of the module becomes a reply."""
        try:
            reply = self._handlers[request["kind"]](request)
            self._guard.check()
            return reply
        except BaseException as error:
            return Frame(describe_failure(error, MODULE_NAME).to_json())

    def _load(self, request: dict[str, Any]) -> Frame:
        if request["cores"]:
            os.sched_setaffinity(0, request["cores"])
        torch.set_num_threads(request["threads"])
        torch.set_grad_enabled(False)
        entry = request["entry"]
        self._target = Target(
            entry["function"],
            entry["class_name"],
            tuple(entry["arguments"]),
            tuple(entry["state"]),
            entry["constructor"],
            tuple(entry["writes"]),
        )
        module = import_source(request["source"], MODULE_NAME)
        self._module = module.__dict__
        said = ""
        if request["build"] is not None:
            module.native, said = compile_and_bind(  # type: ignore[attr-defined]
                self._module.get("SOURCE"),
                self._module.get("SIGNATURES"),
                request["build"],
                timeout_seconds=request["compile_seconds"],
            )
        return Frame({"resources": [asdict(r) for r in kernels.read_ptxas(said)]})

    def _run(self, request: dict[str, Any]) -> Frame:
        return self._checked.run(self._target, self._module, request)

    def _exercise(self, request: dict[str, Any]) -> Frame:
        """Call once on tensors without guard zones, so that a memory checker sees their ends."""
        device = request["device"]
        values = generate(request["arguments"], seed=request["seed"], device=device)
        self._target.bind(self._module, values)()
        if device.startswith("cuda"):
            torch.cuda.synchronize()
        return Frame({"exercised": True})

    def _prepare(self, request: dict[str, Any]) -> Frame:
        timed = TimedTarget(
            self._target,
            self._module,
            request["arguments"],
            seeds=request["seeds"],
            copies=request["copies"],
            writes=request["writes"],
            device=request["device"],
            clock=request["clock"],
            compiled=request["compiled"],
        )
        handle = request["handle"]
        self._timed[handle] = timed
        return Frame({"clock": timed.clock})

    def _block(self, request: dict[str, Any]) -> Frame:
        block = self._timed[request["handle"]].block(request["calls"])
        return Frame(
            {"ns": block.nanoseconds, "calls": block.calls, "until_idle_ns": block.until_idle}
        )

    def _refill(self, request: dict[str, Any]) -> Frame:
        self._timed[request["handle"]].refill(request["index"], request["seed"])
        return Frame({"refilled": True})

    def _last(self, request: dict[str, Any]) -> Frame:
        timed = self._timed[request["handle"]]
        output, values, index = timed.outcome(request["index"], request["pick"])
        blobs = BlobList()
        facts = describe_call(output, values, blobs, lifted=False)
        return Frame({"call": as_json(facts), "index": index}, blobs.blobs)

    def _release(self, request: dict[str, Any]) -> Frame:
        self._timed.pop(request["handle"], None)
        return Frame({"released": True})

    def _yardsticks(self, request: dict[str, Any]) -> Frame:
        from .yardsticks import yardsticks_us

        values = generate(request["arguments"], seed=request["seed"], device=request["device"])
        call = self._target.bind(self._module, values)
        return Frame({"us": yardsticks_us(call, request["device"], request["clocks"])})

    def _census(self, request: dict[str, Any]) -> Frame:
        found = take_census(
            self._target,
            self._module,
            request["arguments"],
            seed=request["seed"],
            writes=request["writes"],
            device=request["device"],
            profile=request["profile"],
        )
        return Frame({"census": found})

    def _traffic(self, request: dict[str, Any]) -> Frame:
        return Frame(
            traffic.observe(
                self._target,
                self._module,
                request["arguments"],
                request["writes"],
                seeds=request["seeds"],
                device=request["device"],
                samples=request["samples"],
                seconds=request["seconds"],
            )
        )

    def _launches(self, request: dict[str, Any]) -> Frame:  # noqa: ARG002 (one signature for all)
        return Frame({"launches": interpreter.recorded_launches()})

    def _compile_kernels(self, request: dict[str, Any]) -> Frame:
        resources = kernels.compile_launches(self._module, request["launches"], request["target"])
        return Frame({"resources": [asdict(r) for r in resources]})


def _hello() -> Frame:
    return Frame(
        {
            "hello": {
                "python": platform.python_version(),
                "torch": torch.__version__,
                "triton": interpreter.triton_version(),
            }
        }
    )


def _read_exactly(size: int) -> bytes:
    pieces = []
    while size > 0:
        piece = os.read(REQUEST_FD, min(size, 1 << 20))
        if not piece:
            raise EOFError
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def _send(frame: Frame) -> None:
    for piece in encode(frame):
        view = memoryview(piece)
        while view:
            view = view[os.write(REPLY_FD, view) :]


def main() -> None:
    """Serve requests until the supervisor says quit or goes away."""
    if os.environ.get("TRITON_INTERPRET") == "1":
        interpreter.install()
    _send(_hello())
    worker = Worker()
    while True:
        try:
            frame = decode(_read_exactly, max_blob_bytes=_MAX_REQUEST_BYTES)
        except EOFError:
            return
        if frame.message.get("kind") == "quit":
            return
        _send(worker.handle(frame.message))
