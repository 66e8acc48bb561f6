"""Timed blocks: many calls over rotated buffers, one number back.

A block restores the arguments that are written in place, then times ``calls`` calls and
nothing else. On a CPU the clock is ``perf_counter_ns``; on CUDA a graph of one call per
buffer is replayed between events, or, where capture fails or launches are to count, the
calls are launched between events. A second reading, once the whole device is idle, shows what
runs on after the block's own stream has ended. The supervisor bounds what is claimed here with
its own clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any

import torch

from .calls import BoundCall, Target, held, in_memory
from .inputs import generate
from .protocol import calls_per_replay

WALL_PINNED = "wall_pinned"
GRAPH_REPLAY = "graph_replay"
STREAM_EVENTS = "stream_events"
_WARM_UP_CALLS = 3


@dataclass
class BufferSet:
    """One input of the rotation: a bound call, and the bytes that its writes destroy."""

    values: dict[str, Any]
    call: BoundCall
    saved: Sequence[tuple[torch.Tensor, torch.Tensor]]
    memory: Mapping[str, Any]
    """Handles of our own on the arguments."""

    def seen(self) -> Mapping[str, Any]:
        """The arguments as the caller's memory has them."""
        return in_memory(self.values, self.memory)

    def restore(self) -> None:
        """Undo what earlier calls wrote."""
        for live, pristine in self.saved:
            live.copy_(pristine)


def storage_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The whole storage of ``tensor`` as one flat uint8 tensor that shares it."""
    flat = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return flat.set_(tensor.untyped_storage())


@dataclass(frozen=True)
class Block:
    """What the clocks in here say of one block, in nanoseconds."""

    nanoseconds: float
    calls: int
    until_idle: float
    """From the start until the whole device was idle; the same as ``nanoseconds`` on a CPU."""


class TimedTarget:
    """A target bound to rotated buffers, ready to be timed block by block."""

    def __init__(
        self,
        target: Target,
        module: Mapping[str, Any],
        arguments: Mapping[str, Any],
        *,
        seeds: Sequence[int],
        copies: int,
        writes: Sequence[str],
        device: str,
        clock: str,
        compiled: bool,
    ) -> None:
        """Make one buffer per seed, and ``copies`` of all these at addresses of their own."""
        self._arguments = arguments
        self._device = device
        drawn = [generate(arguments, seed=s, device=device) for s in seeds]
        rotation = drawn + [twin(values) for _ in range(copies) for values in drawn]
        self._sets = [_buffer_set(target, module, values, writes) for values in rotation]
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

    def block(self, calls: int) -> Block:
        """Time a block of ``calls`` calls, rounded up to whole replays where a graph is used."""
        for buffers in self._sets:
            buffers.restore()
        if self.clock == WALL_PINNED:
            elapsed = self._wall_block(calls)
            return Block(elapsed, calls, elapsed)
        if self._graph is not None:
            return self._graph_block(calls)
        return self._stream_block(calls)

    def refill(self, index: int, seed: int) -> None:
        """Write fresh content into one of the buffers."""
        buffers = self._sets[index]
        fresh = generate(self._arguments, seed=seed, device=self._device)
        for name, value in buffers.values.items():
            if isinstance(value, torch.Tensor):
                storage_bytes(value).copy_(storage_bytes(fresh[name]))
        for live, pristine in buffers.saved:
            pristine.copy_(live)

    def outcome(self, index: int, pick: int) -> tuple[Any, Mapping[str, Any], int]:
        """What a call of the last block returned, its arguments, and the buffer that it used.

        Args:
            index: of the buffer; without a graph only the last call's outputs are there.
            pick: which of the calls on that buffer within a graph, modulo their number.
        """
        if self._graph is None:
            return self.last_output, self._sets[self.last_index].seen(), self.last_index
        outputs = self._graph_outputs[index :: len(self._sets)]
        return outputs[pick % len(outputs)], self._sets[index].seen(), index

    def _schedule(self, calls: int) -> Iterator[tuple[Callable[..., Any], tuple[Any, ...]]]:
        """The calls of one block; made as it is read, or time per call would pass outside it."""
        self.last_index = (calls - 1) % len(self._sets)
        bound = [(s.call.function, s.call.arguments) for s in self._sets]
        return islice(cycle(bound), calls)

    def _wall_block(self, calls: int) -> float:
        schedule = self._schedule(calls)
        output = None
        start = time.perf_counter_ns()
        for function, arguments in schedule:
            output = function(*arguments)
        elapsed = time.perf_counter_ns() - start
        self.last_output = output
        return float(elapsed)

    def _stream_block(self, calls: int) -> Block:
        schedule = self._schedule(calls)

        def launch() -> None:
            for function, arguments in schedule:
                self.last_output = function(*arguments)

        return _between_events(launch, calls)

    def _graph_block(self, calls: int) -> Block:
        graph = self._graph
        assert graph is not None
        in_graph = len(self._graph_outputs)
        replays = -(-calls // in_graph)

        def replay() -> None:
            for _ in range(replays):
                graph.replay()

        return _between_events(replay, replays * in_graph)

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
        calls = calls_per_replay(len(self._sets), in_place=in_place)
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


def twin(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``values`` with every storage copied to an address of its own; aliases stay so."""
    storages: dict[int, torch.UntypedStorage] = {}

    def copied(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        at = storage.data_ptr()
        if at not in storages:
            storages[at] = storage.clone()  # type: ignore[no-untyped-call]
        empty = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        return empty.set_(storages[at], tensor.storage_offset(), tensor.shape, tensor.stride())

    return {n: copied(v) if isinstance(v, torch.Tensor) else v for n, v in values.items()}


def _between_events(work: Callable[[], None], calls: int) -> Block:
    """Time ``work`` on its stream, and until nothing runs on any stream."""
    start, end, idle = _event(), _event(), _event()
    torch.cuda.synchronize()
    start.record()
    work()
    end.record()
    torch.cuda.synchronize()
    idle.record()
    idle.synchronize()
    return Block(start.elapsed_time(end) * 1e6, calls, start.elapsed_time(idle) * 1e6)


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
    return BufferSet(values, target.bind(module, values), saved, held(values))


def _compile(sets: Sequence[BufferSet]) -> None:
    """Replace each call's function by its ``torch.compile`` in the default mode.

    Shapes are static: one specialisation per workload, whatever ran before, which is the
    strongest form of this baseline.
    """
    compiled = torch.compile(sets[0].call.function, dynamic=False)
    for buffers in sets:
        buffers.call = BoundCall(compiled, buffers.call.arguments)
