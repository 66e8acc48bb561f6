"""The events of a trace that matter, as columns: numbers in arrays, texts interned.

Kernels, what launched them, operators, Python frames, annotations and forward-backward links
are kept, under the names of every schema since 2020; memory events, flows between host and
device and process names are not. A row costs about 50 bytes.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from integrations.traces.stream import Args, Event, Progress, TraceStream

Ints = NDArray[np.signedinteger[Any]]
Floats = NDArray[np.float64]


class Kind(IntEnum):
    """What an event is, whatever its schema calls it."""

    KERNEL = 0
    COPY = 1
    """Device memory copied or set."""
    LAUNCH = 2
    """A call of the CUDA or HIP runtime or driver."""
    OPERATOR = 3
    FRAME = 4
    """A Python function, or an nn.Module."""
    ANNOTATION = 5


_KINDS = {
    "kernel": Kind.KERNEL,
    "Kernel": Kind.KERNEL,
    "gpu_memcpy": Kind.COPY,
    "gpu_memset": Kind.COPY,
    "Memcpy": Kind.COPY,
    "Memset": Kind.COPY,
    "cuda_runtime": Kind.LAUNCH,
    "cuda_driver": Kind.LAUNCH,
    "Runtime": Kind.LAUNCH,
    "runtime": Kind.LAUNCH,
    "hip_runtime": Kind.LAUNCH,
    "hip_driver": Kind.LAUNCH,
    "xpu_runtime": Kind.LAUNCH,
    "cpu_op": Kind.OPERATOR,
    "Operator": Kind.OPERATOR,
    "python_function": Kind.FRAME,
    "user_annotation": Kind.ANNOTATION,
}
_ADDRESS = re.compile(r" (?:object )?at 0x[0-9a-fA-F]+")
_RANK_IN_NAME = re.compile(r"(?:\bTP|rank)[-_]?(\d+)", re.IGNORECASE)
_RAW_NAMES = 1 << 18
NONE = -1
_NO_ARGS = Args()
_DTYPES = (np.int8, np.int32, np.int32, np.float64, np.float64, np.int64, np.int64, np.int32)


class Interned:
    """Values, each with one small number."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._ids: dict[Any, int] = {}

    def __call__(self, value: Any) -> int:
        """Return the number of ``value``, a new one where it is new."""
        found = self._ids.get(value)
        if found is None:
            found = self._ids[value] = len(self.values)
            self.values.append(value)
        return found


@dataclass
class Trace:
    """One file in columns, a row an event; times in microseconds."""

    path: Path
    kind: NDArray[np.int8]
    name: NDArray[np.int32]
    track: NDArray[np.int32]
    start_us: Floats
    duration_us: Floats
    link: Ints
    """Correlation of kernels, copies and launches; sequence number of operators; Python id."""
    other: Ints
    """Graph node of kernels; kernel's name, interned, of launches; forward thread of operators;
    Python id of a frame's caller. -1 where the file has none."""
    shape: NDArray[np.int32]
    """Of operators: their dims and types, interned as JSON; -1 where none were recorded."""
    names: list[str]
    tracks: list[tuple[Any, Any]]
    """(pid, tid) as the file spells them."""
    shapes: list[tuple[bytes, bytes]]
    links: dict[int, list[tuple[int, float]]] = field(default_factory=dict)
    """Forward to backward: id to the (track, time) of both ends, the forward one first."""
    metadata: dict[str, Any] = field(default_factory=dict)
    damaged_events: int = 0
    total_events: int = 0
    end: str | None = None

    def rows(self, *kinds: Kind) -> Ints:
        """The rows of these kinds, in the order of the file."""
        return np.flatnonzero(np.isin(self.kind, kinds))

    @property
    def rank(self) -> str:
        """The rank as the file says, or its name; empty where nothing says."""
        info = self.metadata.get("distributedInfo")
        if isinstance(info, dict) and isinstance(info.get("rank"), int):
            return str(info["rank"])
        found = _RANK_IN_NAME.search(self.path.name)
        return found.group(1) if found else ""

    @property
    def devices(self) -> list[str]:
        """Names of the devices."""
        listed = self.metadata.get("deviceProperties")
        items = listed if isinstance(listed, list) else []
        return [str(d["name"]) for d in items if isinstance(d, dict) and "name" in d]


def read_trace(path: Path, progress: Progress = lambda _: None) -> Trace:
    """Read ``path``.

    Raises:
        TraceError: it is no chrome trace.
        OSError: the file cannot be read.
    """
    stream = TraceStream(path, progress)
    builder = _Builder()
    for batch in stream.batches():
        builder.add(batch)
    trace = builder.built(path)
    trace.metadata = stream.metadata
    trace.damaged_events += stream.damaged_events
    trace.end = stream.end
    return trace


class _Numbers(dict[Any, int]):
    """Numbers of keys, asked for once each."""

    def __init__(self, number: Callable[[Any], int]) -> None:
        self._number = number

    def __missing__(self, key: Any) -> int:
        found = self[key] = self._number(key)
        return found


class _Builder:
    """Appends events to columns, a batch at a time and in it a kind at a time."""

    def __init__(self) -> None:
        # kind, name, track, start, duration, link, other, shape
        self.columns = [array(code) for code in "biiddqqi"]
        self.names, self.tracks, self.shapes = Interned(), Interned(), Interned()
        self.name_of = _Numbers(lambda raw: self.names(_ADDRESS.sub("", raw)))
        self.track_of = _Numbers(self.tracks)
        self.links: dict[int, list[tuple[int, float]]] = {}
        self.damaged = self.total = 0

    def add(self, batch: list[Event]) -> None:
        """Take what matters of ``batch``."""
        self.total += len(batch)
        if len(self.name_of) > _RAW_NAMES:  # addresses make every name its own
            self.name_of.clear()
        by_kind: dict[Kind, list[Event]] = {kind: [] for kind in Kind}
        kind_of = _KINDS.get
        for event in batch:
            if event.ph == "X":
                kind = kind_of(event.cat) if type(event.cat) is str else None
                if kind is not None:
                    by_kind[kind].append(event)
            elif event.ph is None:
                self.damaged += 1
            elif event.cat == "fwdbwd":
                self._add_link(event)
        for kind, events in by_kind.items():
            if events:
                self._add_kind(kind, events)

    def _add_kind(self, kind: Kind, events: list[Event]) -> None:
        start = np.array([e.ts for e in events], np.float64)
        good = np.isfinite(start)
        if not good.all():  # without a time there is no place for it
            events = [e for e, one in zip(events, good.tolist(), strict=True) if one]
            self.damaged += int((~good).sum())
            start = start[good]
        duration = np.array([e.dur for e in events], np.float64)
        duration[~(np.isfinite(duration) & (duration >= 0))] = 0.0
        link, other, shape = self._arguments(kind, [e.args or _NO_ARGS for e in events])
        name_of = self.name_of
        name = [name_of[e.name if type(e.name) is str else str(e.name)] for e in events]
        track = [self._track(e) for e in events]
        numbers = (np.full(len(events), kind), name, track, start, duration, link, other, shape)
        for column, values, dtype in zip(self.columns, numbers, _DTYPES, strict=True):
            column.frombytes(np.asarray(values, dtype).tobytes())

    def _arguments(self, kind: Kind, args: list[Args]) -> tuple[Ints, Ints, Ints]:
        """Return link, other and shape of events of one kind, as ``Trace`` explains them."""
        none = np.full(len(args), NONE)
        if kind is Kind.FRAME:
            return (
                _integers([a.python for a in args]),
                _integers([a.python_parent for a in args]),
                none,
            )
        if kind is Kind.ANNOTATION:
            return none, none, none
        if kind is Kind.OPERATOR:
            link = _integers([a.sequence for a in args])
            shapes = [
                self.shapes((bytes(a.dims), bytes(a.types))) if a.dims else NONE for a in args
            ]
            return link, _integers([a.forward_thread for a in args]), np.array(shapes)
        link = _integers([a.correlation for a in args])
        if kind is Kind.LAUNCH:
            kernels = [self.name_of[a.kernel] if type(a.kernel) is str else NONE for a in args]
            return link, np.array(kernels), none
        return link, _integers([a.node for a in args]), none

    def _track(self, event: Event) -> int:
        try:
            return self.track_of[event.pid, event.tid]
        except TypeError:  # neither numbers nor texts
            return self.track_of[str(event.pid), str(event.tid)]

    def _add_link(self, event: Event) -> None:
        end = self._track(event), event.ts or 0.0
        ends = self.links.setdefault(_integer(event.id), [])
        if event.ph == "s":
            ends.insert(0, end)
        else:
            ends.append(end)

    def built(self, path: Path) -> Trace:
        """The columns as numpy arrays over the same memory."""
        kind, name, track, start, duration, link, other, shape = (
            np.frombuffer(column, dtype)
            for column, dtype in zip(self.columns, _DTYPES, strict=True)
        )
        return Trace(
            path=path,
            kind=kind,
            name=name,
            track=track,
            start_us=start,
            duration_us=duration,
            link=link,
            other=other,
            shape=shape,
            names=self.names.values,
            tracks=self.tracks.values,
            shapes=self.shapes.values,
            links=self.links,
            damaged_events=self.damaged,
            total_events=self.total,
        )


def _integers(values: list[Any]) -> Ints:
    try:
        return np.array(values, np.int64)
    except (TypeError, ValueError, OverflowError):
        return np.array([_integer(value) for value in values], np.int64)


def _integer(value: Any) -> int:
    """Return a number of the file, -1 where it is none or does not fit."""
    if value is None:
        return NONE
    if type(value) is not int:
        try:
            value = int(value)
        except (TypeError, ValueError, OverflowError):
            return NONE
    return value if -(1 << 63) <= value < 1 << 63 else NONE
