"""How supervisor and worker speak: length-prefixed frames of JSON and raw bytes.

A frame is ``<u32 size of the JSON> <u32 number of blobs> <u64 size of each blob>``, the
JSON, then the blobs. Tensors travel as blobs of their storage, never pickled, so that
reading a reply cannot run anything. Both ends import this file; it needs the standard
library alone. Deadlines and size limits are the supervisor's (``evaluator/session.py``).
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

HEADER = struct.Struct("<II")
MAX_JSON_BYTES = 16 << 20
MAX_BLOBS = 4096
NOTHING = "none"
"""The container of a call that returned None."""
_LARGEST_NUMBER = 1 << 62
_REPLAY_MIN_CALLS = 16


class ProtocolError(Exception):
    """The other end sent what is no frame, or more than it may."""


@dataclass(frozen=True)
class Frame:
    """One message with its blobs."""

    message: dict[str, Any]
    blobs: Sequence[bytes] = ()


@dataclass(frozen=True)
class TensorFacts:
    """A tensor as the worker holds it; its storage's bytes are the blob number ``blob``.

    ``shape``, ``strides`` and ``offset`` are in elements. ``type_name`` is the exact Python
    type, qualified. ``shares`` names every other tensor of the call with the same storage.
    """

    name: str
    type_name: str
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    device: str
    blob: int
    shares: tuple[str, ...] = ()

    @classmethod
    def read(cls, fields: dict[str, Any]) -> TensorFacts:
        """Rebuild from JSON, whose lists become tuples.

        Raises:
            ProtocolError: the fields are not those of a tensor.
        """
        tuples = {"shape", "strides", "shares"}
        try:
            values: dict[str, Any] = {k: tuple(v) if k in tuples else v for k, v in fields.items()}
            facts = cls(**values)
        except (AttributeError, TypeError) as error:
            raise ProtocolError(f"not a tensor's facts: {error}") from error
        texts = (facts.name, facts.type_name, facts.dtype, facts.device, *facts.shares)
        numbers = (*facts.shape, *facts.strides, facts.offset, facts.blob)
        if not all(isinstance(text, str) for text in texts):
            raise ProtocolError(f"a tensor's facts with a name that is no text: {texts}")
        if not all(type(n) is int and abs(n) <= _LARGEST_NUMBER for n in numbers):
            raise ProtocolError(f"a tensor's facts with a number that is none: {numbers}")
        return facts


@dataclass(frozen=True)
class CallFacts:
    """What one call returned and left behind.

    ``container`` is the returned object's type: ``tensor``, ``tuple``, ``list``, ``none``.
    """

    container: str
    outputs: tuple[TensorFacts, ...]
    arguments: tuple[TensorFacts, ...]
    lifted: bool = False
    """Whether the call ran in float64."""

    @classmethod
    def read(cls, fields: dict[str, Any]) -> CallFacts:
        """Rebuild from JSON.

        Raises:
            ProtocolError: the fields are not those of a call.
        """
        try:
            return cls(
                container=str(fields["container"]),
                outputs=tuple(TensorFacts.read(t) for t in fields["outputs"]),
                arguments=tuple(TensorFacts.read(t) for t in fields["arguments"]),
                lifted=bool(fields["lifted"]),
            )
        except (AttributeError, KeyError, TypeError) as error:
            raise ProtocolError(f"not a call's facts: {error!r}") from error


@dataclass(frozen=True)
class Failure:
    """Why a request failed inside the worker.

    ``kind`` is ``exception``, ``compile``, ``out_of_memory`` or ``contract``.
    """

    kind: str
    type_name: str
    message: str
    line: int | None = None
    """The deepest line of the loaded module on the stack."""
    trace: str = ""

    def to_json(self) -> dict[str, Any]:
        """The reply that carries this failure."""
        return {"failure": asdict(self)}


@dataclass
class BlobList:
    """Collects the blobs of a frame that is being built."""

    blobs: list[bytes] = field(default_factory=list)

    def add(self, blob: bytes) -> int:
        """Append ``blob`` and return its number."""
        self.blobs.append(blob)
        return len(self.blobs) - 1


def calls_per_replay(buffers: int, *, in_place: bool) -> int:
    """How many calls a captured graph makes; both ends count calls by this.

    Where arguments are overwritten, each buffer is used once.
    """
    return buffers if in_place else max(_REPLAY_MIN_CALLS, buffers)


def encode(frame: Frame) -> list[bytes]:
    """Return the pieces to write for ``frame``, in order."""
    text = json.dumps(frame.message).encode("utf-8")
    sizes = struct.pack(f"<{len(frame.blobs)}Q", *(len(b) for b in frame.blobs))
    return [HEADER.pack(len(text), len(frame.blobs)) + sizes + text, *frame.blobs]


def decode(read_exactly: Callable[[int], bytes], *, max_blob_bytes: int) -> Frame:
    """Read one frame through ``read_exactly(size)``.

    Raises:
        ProtocolError: the frame is malformed or larger than allowed.
    """
    text_size, blob_count = HEADER.unpack(read_exactly(HEADER.size))
    if text_size > MAX_JSON_BYTES or blob_count > MAX_BLOBS:
        raise ProtocolError(f"a frame of {text_size} bytes of JSON and {blob_count} blobs")
    sizes = struct.unpack(f"<{blob_count}Q", read_exactly(8 * blob_count))
    if sum(sizes) > max_blob_bytes:
        raise ProtocolError(f"a frame of {sum(sizes)} bytes where {max_blob_bytes} are allowed")
    try:
        message = _loads(read_exactly(text_size))
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"a frame that is not JSON: {error}") from error
    if not isinstance(message, dict):
        raise ProtocolError("a frame that is not a JSON object")
    return Frame(message, [read_exactly(size) for size in sizes])


def _loads(text: bytes) -> Any:
    """Parse JSON; halves of surrogate pairs, which no file or terminal takes, become ``?``."""
    message = json.loads(text)
    if b"\\ud" in text.lower():
        message = json.loads(json.dumps(message, ensure_ascii=False).encode("utf-8", "replace"))
    return message
