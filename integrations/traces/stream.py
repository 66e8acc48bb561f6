"""A chrome trace as batches of events, in bounded memory, whatever state the file is in.

The bytes are unpacked as they are read (plain or gzip) and cut between two events every few
megabytes; each piece is decoded by msgspec into the few fields that are needed. Measured on
216,000 events (54 MB): msgspec 0.22 s, orjson 0.79 s, ijson (yajl2_c) 0.82 s, json 0.99 s.
A cut is proved by the decoder: a piece that does not end between two events is not valid
JSON. What the decoder refuses is mended (NaN), or read event by event, and what is lost is
counted. A file that ends early gives the events that are whole.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from integrations.traces.errors import TraceError

Progress = Callable[[float], None]
"""Told the share of the file that has been read."""

_READ_BYTES = 1 << 18
_PIECE_BYTES = 4 << 20
_LONGEST_HEADER = 64 << 20
_TRIES = 3
_GZIP = b"\x1f\x8b"
_BETWEEN = re.compile(rb"\}\s*,\s*(?=\{)")
_ARRAY_END = re.compile(rb'\}\s*(\])\s*(?:,\s*"|\}|\Z)')
_EVENT_START = re.compile(rb'(?:(?<=,)|(?<=\[)|\A)\s*\{\s*"(?:ph|name|cat)"\s*:')
_HEADER = re.compile(rb'"traceEvents"\s*:\s*\[')
_NOT_A_NUMBER = re.compile(rb"(?<=[:\[,\s])(?:NaN|-?Infinity|-?nan|-?inf)(?=\s*[,}\]])")


class Args(
    msgspec.Struct,
    gc=False,
    rename={
        "node": "graph node id",
        "dims": "Input Dims",
        "types": "Input type",
        "sequence": "Sequence number",
        "forward_thread": "Fwd thread id",
        "python": "Python id",
        "python_parent": "Python parent id",
        "count": "bytes",
    },
):
    """The arguments of an event that anything here looks at; of any type, as files differ."""

    correlation: Any = None
    node: Any = None
    dims: msgspec.Raw = msgspec.Raw()
    types: msgspec.Raw = msgspec.Raw()
    sequence: Any = None
    forward_thread: Any = None
    python: Any = None
    python_parent: Any = None
    kernel: Any = None
    device: Any = None
    count: Any = None


class Event(msgspec.Struct, gc=False):
    """One event; times in microseconds."""

    ph: Any = None
    cat: Any = None
    name: Any = None
    pid: Any = None
    tid: Any = None
    ts: float | None = None
    dur: float | None = None
    id: Any = None
    args: Args | None = None


_DECODE = msgspec.json.Decoder(list[Event], strict=False).decode
_DECODE_ONE = msgspec.json.Decoder(Event, strict=False).decode
_SPLIT = msgspec.json.Decoder(list[msgspec.Raw]).decode


class TraceStream:
    """The events of one file, once; ``metadata`` and the counts are whole when they are read."""

    def __init__(self, path: Path, progress: Progress = lambda _: None) -> None:
        self.path = path
        self.metadata: dict[str, Any] = {}
        self.damaged_events = 0
        """Events that could not be read and were passed over."""
        self.end: str | None = None
        """How the file ended early; None where it is closed."""
        self._progress = progress

    def batches(self) -> Iterator[list[Event]]:
        """Yield the events in the order of the file, some thousands at a time.

        Raises:
            TraceError: it is no chrome trace.
            OSError: the file cannot be read.
        """
        blocks = self._blocks()
        head, buffer = self._header(blocks)
        closed = False
        while not closed:
            events, buffer, closed = self._piece(buffer, blocks)
            if events is None:
                break
            yield events
        tail = buffer if closed else b"]}"
        for block in blocks if closed else ():
            tail += block
            if len(tail) > _LONGEST_HEADER:
                break
        if not closed:
            self.end = self.end or "the list of events is not closed"
        self._read_metadata(head, tail)
        self._progress(1.0)

    # Bytes

    def _blocks(self) -> Iterator[bytes]:
        """Yield unpacked bytes; a file that breaks off ends them."""
        size = max(1, self.path.stat().st_size)
        with self.path.open("rb") as file:
            packed = file.read(2) == _GZIP
            file.seek(0)
            inflate = zlib.decompressobj(31)
            while raw := file.read(_READ_BYTES):
                self._progress(min(0.999, file.tell() / size))
                if not packed:
                    yield raw
                    continue
                try:
                    while raw:
                        yield inflate.decompress(raw)
                        raw = inflate.unused_data
                        if raw:  # several gzip files, one after the other
                            inflate = zlib.decompressobj(31)
                except zlib.error as error:
                    self.end = f"the gzip data is damaged: {error}"
                    return
        if packed and not inflate.eof:
            self.end = "the gzip data breaks off"

    def _header(self, blocks: Iterator[bytes]) -> tuple[bytes, bytes]:
        """Return what stands before the list of events, and what was read beyond it."""
        text = b""
        for block in blocks:
            text += block
            found = _HEADER.search(text)
            if found:
                return text[: found.end()], text[found.end() :]
            if text.lstrip()[:1] == b"[":
                start = text.index(b"[") + 1
                return b"", text[start:]
            if len(text) > _LONGEST_HEADER:
                break
        what = self.end or ("it is empty" if not text.strip() else 'it has no "traceEvents"')
        raise TraceError(
            f"{self.path} is not a trace of torch.profiler: {what}; "
            "give a file that export_chrome_trace or tensorboard_trace_handler wrote"
        )

    # Events

    def _piece(
        self, buffer: bytes, blocks: Iterator[bytes]
    ) -> tuple[list[Event] | None, bytes, bool]:
        """Return (events or None at the end, the rest, whether the list was closed)."""
        wanted, mended = _PIECE_BYTES, False
        while True:
            buffer, more = _filled(buffer, blocks, wanted)
            cuts = _cuts(buffer) if more else []
            for begin, end in cuts[: -_TRIES - 1 : -1]:
                events = _decoded(buffer[:begin])
                if events is not None:
                    return events, buffer[end:], False
            closed = _closed(buffer)
            if closed is not None:
                return closed[0], closed[1], True
            if not mended and _NOT_A_NUMBER.search(buffer):
                buffer, mended = _NOT_A_NUMBER.sub(b"null", buffer), True
            elif not more:
                return (self._one_by_one(buffer) if buffer.strip() else None), b"", False
            elif cuts:
                begin, end = cuts[-1]
                return self._one_by_one(buffer[:begin]), buffer[end:], False
            else:
                wanted *= 2  # one event is longer than the piece

    def _one_by_one(self, text: bytes) -> list[Event]:
        """Read what the decoder refuses as a whole; count what it refuses alone."""
        starts = [m.start() for m in _EVENT_START.finditer(text)]
        found = []
        for begin, end in pairwise([*starts, len(text)]):
            event = _one(text[begin:end].strip().rstrip(b",]").rstrip())
            if event is None:
                self.damaged_events += 1
            else:
                found.append(event)
        return found

    def _read_metadata(self, head: bytes, tail: bytes) -> None:
        try:
            found = msgspec.json.decode(_NOT_A_NUMBER.sub(b"null", head + tail))
        except (msgspec.DecodeError, RecursionError):
            try:
                found = msgspec.json.decode(_NOT_A_NUMBER.sub(b"null", head + b"]}"))
            except (msgspec.DecodeError, RecursionError):
                found = {}
        self.metadata = found if isinstance(found, dict) else {}
        self.metadata.pop("traceEvents", None)


def _filled(buffer: bytes, blocks: Iterator[bytes], wanted: int) -> tuple[bytes, bool]:
    """Return ``buffer`` filled up to ``wanted`` bytes, and whether there may be more."""
    parts, size = [buffer], len(buffer)
    while size < wanted:
        block = next(blocks, None)
        if block is None:
            return b"".join(parts), False
        parts.append(block)
        size += len(block)
    return b"".join(parts), True


def _closed(buffer: bytes) -> tuple[list[Event], bytes] | None:
    """Return the last events and what follows the list, where it ends in ``buffer``."""
    if buffer.lstrip()[:1] == b"]":
        return [], buffer.lstrip()
    ends = [m.start(1) for m in _ARRAY_END.finditer(buffer)]
    for end in dict.fromkeys([*ends[:_TRIES], *ends[-_TRIES:]]):
        events = _decoded(buffer[:end])
        if events is not None:
            return events, buffer[end:]
    return None


def _cuts(buffer: bytes) -> list[tuple[int, int]]:
    """Where ``buffer`` may be cut, near its end: (end of an event, start of the next)."""
    for offset in (max(0, len(buffer) - (1 << 16)), 0):
        found = [(m.start() + 1, m.end()) for m in _BETWEEN.finditer(buffer, offset)]
        if found:
            return found
    return []


def _decoded(text: bytes) -> list[Event] | None:
    try:
        return _DECODE(b"[" + text + b"]")
    except msgspec.ValidationError:
        try:
            raws = _SPLIT(b"[" + text + b"]")
        except msgspec.DecodeError:
            return None
        return [_one(raw) or Event() for raw in raws]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _one(text: bytes | msgspec.Raw) -> Event | None:
    try:
        return _DECODE_ONE(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
