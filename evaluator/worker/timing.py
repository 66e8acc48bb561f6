"""Timed blocks: many calls over rotated buffers, one number back.

A block restores the arguments that are written in place, then times ``calls`` calls and
nothing else. On a CPU the clock is ``perf_counter_ns``; on CUDA a graph of one call per
buffer is replayed between events, or, where capture fails or launches are to count, the
calls are launched between events. The supervisor bounds what is claimed here with its own clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .calls import BoundCall, Target
from .inputs import generate

WALL_PINNED = "wall_pinned"
GRAPH_REPLAY = "graph_replay"
STREAM_EVENTS = "stream_events"
_GRAPH_MIN_CALLS = 16
_WARM_UP_CALLS = 3


@dataclass
class BufferSet:
    """One input of the rotation: a bound call, and the bytes that its writes destroy."""

    values: dict[str, Any]
    call: BoundCall
    saved: Sequence[tuple[torch.Tensor, torch.Tensor]]

    def restore(self) -> None:
        """Undo what earlier calls wrote."""
        for live, pristine in self.saved:
            live.copy_(pristine)


def storage_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The whole storage of ``tensor`` as one flat uint8 tensor that shares it."""
    flat = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return flat.set_(tensor.untyped_storage())


class TimedTarget:
    """A target bound to rotated buffers, ready to be timed block by block."""

    def __init__(
        self,
        target: Target,
        module: Mapping[str, Any],
        arguments: Mapping[str, Any],
        *,
        seeds: Sequence[int],
        writes: Sequence[str],
        device: str,
        clock: str,
        compiled: bool,
    ) -> None:
        self._arguments = arguments
        self._device = device
        self._sets = [
            _buffer_set(target, module, generate(arguments, seed=s, device=device), writes)
            for s in seeds
        ]
        if compiled:
            _compile(self._sets)
        self.clock = clock
        self.last_index = 0
        self.last_output: Any = None
        self._graph: torch.cuda.CUDAGraph | None = None
        self._graph_outputs: list[Any] = []
        self._warm_up()
        if clock == GRAPH_REPLAY:
            self._capture()

    def block(self, calls: int) -> tuple[float, int]:
        """Time a block of at least ``calls`` calls; return (nanoseconds, calls made)."""
        for buffers in self._sets:
            buffers.restore()
        if self.clock == WALL_PINNED:
            return self._wall_block(calls), calls
        if self._graph is not None:
            return self._graph_block(calls)
        return self._stream_block(calls), calls

    def refill(self, seeds: Sequence[int]) -> None:
        """Write fresh content into the same buffers."""
        for buffers, seed in zip(self._sets, seeds, strict=True):
            fresh = generate(self._arguments, seed=seed, device=self._device)
            for name, value in buffers.values.items():
                if isinstance(value, torch.Tensor):
                    storage_bytes(value).copy_(storage_bytes(fresh[name]))
            for live, pristine in buffers.saved:
                pristine.copy_(live)

    def last_values(self) -> Mapping[str, Any]:
        """The arguments of the last call of the last block, as it left them."""
        return self._sets[self.last_index].values

    def _schedule(self, calls: int) -> list[tuple[Callable[..., Any], tuple[Any, ...]]]:
        count = len(self._sets)
        self.last_index = (calls - 1) % count
        bound = [(s.call.function, s.call.arguments) for s in self._sets]
        return [bound[i % count] for i in range(calls)]

    def _wall_block(self, calls: int) -> float:
        schedule = self._schedule(calls)
        output = None
        start = time.perf_counter_ns()
        for function, arguments in schedule:
            output = function(*arguments)
        elapsed = time.perf_counter_ns() - start
        self.last_output = output
        return float(elapsed)

    def _stream_block(self, calls: int) -> float:
        schedule = self._schedule(calls)
        start = _event()
        end = _event()
        torch.cuda.synchronize()
        start.record()
        for function, arguments in schedule:
            self.last_output = function(*arguments)
        end.record()
        torch.cuda.synchronize()
        return float(start.elapsed_time(end) * 1e6)

    def _graph_block(self, calls: int) -> tuple[float, int]:
        assert self._graph is not None
        in_graph = len(self._graph_outputs)
        replays = max(1, -(-calls // in_graph))
        start = _event()
        end = _event()
        torch.cuda.synchronize()
        start.record()
        for _ in range(replays):
            self._graph.replay()
        end.record()
        torch.cuda.synchronize()
        self.last_index = (in_graph - 1) % len(self._sets)
        self.last_output = self._graph_outputs[-1]
        return float(start.elapsed_time(end) * 1e6), replays * in_graph

    def _warm_up(self) -> None:
        """Call every buffer: kernels are compiled and allocators filled before a clock runs."""
        side = _stream() if self.clock != WALL_PINNED else None
        if side is None:
            for buffers in self._sets:
                self.last_output = buffers.call()
            return
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(_WARM_UP_CALLS):
                for buffers in self._sets:
                    self.last_output = buffers.call()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()

    def _capture(self) -> None:
        """Capture the rotation, or fall back to stream events where it cannot be captured."""
        graph = torch.cuda.CUDAGraph()
        in_place = any(buffers.saved for buffers in self._sets)
        calls = len(self._sets) if in_place else max(_GRAPH_MIN_CALLS, len(self._sets))
        try:
            with torch.cuda.graph(graph):
                outputs = [function(*arguments) for function, arguments in self._schedule(calls)]
        except RuntimeError as error:
            torch.cuda.synchronize()
            self.clock = STREAM_EVENTS
            print(f"graph capture failed: {error}")  # goes to the sandbox's log
            return
        self._graph, self._graph_outputs = graph, outputs
        graph.replay()
        torch.cuda.synchronize()


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def _stream() -> torch.cuda.Stream:
    return torch.cuda.Stream()  # type: ignore[no-untyped-call]


def _buffer_set(
    target: Target, module: Mapping[str, Any], values: dict[str, Any], writes: Sequence[str]
) -> BufferSet:
    saved = []
    for name in writes:
        live = storage_bytes(values[name])
        saved.append((live, live.clone()))
    return BufferSet(values, target.bind(module, values), saved)


def _compile(sets: Sequence[BufferSet]) -> None:
    """Replace each call's function by its ``torch.compile`` in the default mode.

    Shapes are static: one specialisation per workload, whatever ran before, which is the
    strongest form of this baseline.
    """
    compiled = torch.compile(sets[0].call.function, dynamic=False)
    for buffers in sets:
        buffers.call = BoundCall(compiled, buffers.call.arguments)
