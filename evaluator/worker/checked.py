"""Calls whose correctness is checked: fresh memory each time, and what can be seen around them.

Arguments and outputs of a call live on until the next call's arguments exist, so that no
address comes twice in a row. Beside outputs and arguments the reply holds the guard zones,
the outputs of the call before as they are now, what changed after the stream that
the caller waits on had ended, and how many threads there are. Nothing is judged here.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import Any

import torch

from . import interpreter
from .arena import Arena, poison_freed_memory
from .calls import (
    Target,
    as_json,
    describe_call,
    describe_tensors,
    held,
    in_memory,
    lift,
    output_tensors,
)
from .inputs import generate, jittered
from .lifting import Float64Mode
from .protocol import BlobList, Frame


class CheckedCalls:
    """Runs one call at a time and remembers the one before."""

    def __init__(self) -> None:
        self._previous: tuple[Mapping[str, Any], Any] = ({}, ())

    def run(self, target: Target, module: Mapping[str, Any], request: Mapping[str, Any]) -> Frame:
        """Call once on the inputs of the request's seed; ``lifted`` computes in float64.

        Raises:
            BrokenContract: something other than None, a tensor or a tuple of tensors was returned.
        """
        device, lifted = request["device"], request["lifted"]
        interpreter.record_launches(request["declared"])
        arena = Arena()
        values = generate(
            request["arguments"], seed=request["seed"], device=device, place=arena.place
        )
        if lifted:
            values = lift(values)
        if request["jitter"]:
            values = jittered(values, amplitude=request["jitter"], seed=request["jitter_number"])
        bound = target.bind(module, values)
        before = held(values)
        poison_freed_memory(request["poison"], device)
        threads = _threads()
        if lifted:
            with Float64Mode():
                returned = bound()
        else:
            returned = bound()
        values = in_memory(values, before)
        late = _late(returned, {n: values[n] for n in target.writes}, device)
        blobs = BlobList()
        facts = describe_call(returned, values, blobs, lifted=lifted)
        message = {
            "call": as_json(facts),
            "zones": {name: blobs.add(zone) for name, zone in arena.zones().items()},
            "threads": [threads, _threads()],
            "late": late,
        }
        if request["recall"]:
            message["earlier"] = describe_tensors(output_tensors(self._previous[1]), blobs)
        self._previous = (values, returned)
        return Frame(message, blobs.blobs)


def _late(returned: Any, written: Mapping[str, torch.Tensor], device: str) -> list[str]:
    """Names of the outputs and written arguments that differ once the whole device is idle.

    The copies are queued where the caller would use them: behind the call, on the
    current stream.
    """
    if not device.startswith("cuda"):
        return []
    named = {f"output {i}": t for i, t in enumerate(output_tensors(returned))}
    named |= {f"argument {n}": t for n, t in written.items()}
    early = {name: torch.Tensor.detach(t).clone() for name, t in named.items()}
    torch.cuda.synchronize()
    return [n for n, was in early.items() if not torch.equal(_bits(was), _bits(named[n]))]


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return torch.Tensor.detach(tensor).reshape(-1).view(torch.uint8)


def _threads() -> dict[str, int]:
    """Threads that Python knows, and all threads of this process."""
    return {"python": threading.active_count(), "all": len(os.listdir("/proc/self/task"))}
