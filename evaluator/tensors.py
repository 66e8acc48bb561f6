"""What a worker reported of a call, as numpy arrays: raw bytes interpreted on our side.

bfloat16 has no numpy type and becomes float32 exactly. Facts that do not fit the bytes
that came with them are a broken protocol, not a wrong answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from evaluator.worker.protocol import NOTHING, CallFacts, ProtocolError, TensorFacts
from evaluator.workload import DerivedWorkload, DType, TensorSpec, Workload

Array = npt.NDArray[Any]

PLAIN_TENSOR = "torch.Tensor"

GUARD_BYTE = 0xFF
"""As in ``evaluator/worker/arena.py``."""

_NUMPY_TYPES: Mapping[str, str] = {
    DType.FLOAT64: "<f8",
    DType.FLOAT32: "<f4",
    DType.FLOAT16: "<f2",
    DType.BFLOAT16: "<u2",
    DType.INT64: "<i8",
    DType.INT32: "<i4",
    DType.INT16: "<i2",
    DType.INT8: "i1",
    DType.UINT8: "u1",
    DType.BOOL: "u1",
}


@dataclass(frozen=True)
class Snapshot:
    """A tensor's facts and its storage as it was after the call."""

    facts: TensorFacts
    storage: bytes

    @property
    def is_known_dtype(self) -> bool:
        """Whether the element type is one that problems may use."""
        return self.facts.dtype in _NUMPY_TYPES

    @property
    def itemsize_bytes(self) -> int:
        """Bytes per element."""
        return np.dtype(_NUMPY_TYPES[self.facts.dtype]).itemsize

    def array(self) -> Array:
        """Return the logical elements, not to be written; bfloat16 as float32, booleans as 0 and 1.

        Raises:
            ProtocolError: the shape and strides reach beyond the storage.
        """
        facts = self.facts
        if len(self.storage) % self.itemsize_bytes:
            raise ProtocolError(f"{facts.name} ends amid an element")
        flat = np.frombuffer(self.storage, dtype=_NUMPY_TYPES[facts.dtype])
        reach = sum((s - 1) * step for s, step in zip(facts.shape, facts.strides, strict=True))
        if 0 in facts.shape:
            return np.zeros(facts.shape, dtype=np.float32)
        if facts.offset < 0 or min(facts.strides, default=0) < 0:
            raise ProtocolError(f"{facts.name} has a negative offset or stride")
        if facts.offset + reach >= flat.size:
            raise ProtocolError(f"{facts.name} reaches beyond its storage")
        view = np.lib.stride_tricks.as_strided(
            flat[facts.offset :],
            facts.shape,
            tuple(step * flat.itemsize for step in facts.strides),
            writeable=False,
        )
        return widen(view, facts.dtype)

    def with_storage(self, storage: bytes) -> Snapshot:
        """The same tensor over other bytes."""
        return replace(self, storage=storage)


@dataclass(frozen=True)
class Substitute(Snapshot):
    """A snapshot whose elements were replaced by ours."""

    values: Array

    def array(self) -> Array:
        """Return the elements that stand in for those of the storage."""
        return self.values


@dataclass(frozen=True)
class CallResult:
    """One call: its container, outputs and the tensor arguments after it."""

    container: str
    outputs: tuple[Snapshot, ...]
    arguments: Mapping[str, Snapshot]
    zones: Mapping[str, bytes] = field(default_factory=dict)
    """The memory around each argument; it held ``GUARD_BYTE`` before the call."""
    earlier: tuple[Snapshot, ...] | None = None
    """The outputs of the call before as they were after this one, where that was asked."""
    late: tuple[str, ...] = ()
    """Outputs and written arguments that changed after the caller's stream was through."""
    new_threads: tuple[int, int] = (0, 0)
    """Threads that the call left behind: those that Python knows, and all."""


def widen(values: Array, dtype: str) -> Array:
    """Return bfloat16 bit patterns as float32, and anything else as it is."""
    if dtype == DType.BFLOAT16:
        return (values.astype(np.uint32) << 16).view(np.float32)
    return values


def read_call(
    message: Mapping[str, Any], blobs: Sequence[bytes], *, writes: Sequence[str] = ()
) -> CallResult:
    """Build the result from a worker's reply; where None was returned, ``writes`` are the outputs.

    Raises:
        ProtocolError: the reply does not describe a call.
    """
    facts = CallFacts.read(message.get("call", {}))
    arguments = {t.name: _snapshot(t, blobs) for t in facts.arguments}
    result = CallResult(
        container=facts.container,
        outputs=tuple(_snapshot(t, blobs) for t in facts.outputs),
        arguments=arguments,
        **_observations(message, blobs),
    )
    if facts.container != NOTHING:
        return result
    if facts.outputs or not {*writes} <= arguments.keys():
        raise ProtocolError("a call that returned None, with outputs or without its arguments")
    return returning_arguments(result, writes)


def returning_arguments(result: CallResult, names: Sequence[str]) -> CallResult:
    """``result`` as if it had returned these of its arguments; its container stays what it is."""
    return replace(result, outputs=tuple(_as_output(n, result.arguments[n]) for n in names))


def _as_output(name: str, argument: Snapshot) -> Snapshot:
    shares = (name, *argument.facts.shares)
    facts = replace(argument.facts, name=f"argument {name}", shares=shares)
    return replace(argument, facts=facts)


def _observations(message: Mapping[str, Any], blobs: Sequence[bytes]) -> dict[str, Any]:
    """What was seen around a checked call; a timed one's reply has none of it."""
    try:
        earlier = message.get("earlier")
        before, after = message.get("threads", ({"python": 0, "all": 0},) * 2)
        return {
            "zones": {str(n): blobs[int(at)] for n, at in message.get("zones", {}).items()},
            "earlier": None
            if earlier is None
            else tuple(_snapshot(TensorFacts.read(t), blobs) for t in earlier),
            "late": tuple(str(name) for name in message.get("late", ())),
            "new_threads": tuple(int(after[k]) - int(before[k]) for k in ("python", "all")),
        }
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise ProtocolError(f"not what is seen around a call: {error!r}") from error


def plain_arguments(workload: Workload) -> dict[str, Any]:
    """Return the workload's arguments as the worker's ``inputs.generate`` takes them."""
    plain: dict[str, Any] = {
        name: value.model_dump(mode="json") if isinstance(value, TensorSpec) else value
        for name, value in workload.arguments.items()
    }
    if isinstance(workload, DerivedWorkload):
        for name, twist in workload.twists.items():
            plain[name] |= {"twist": twist.value}
    return plain


def input_storages(workload: Workload, seed: int) -> dict[str, bytes]:
    """Return the storage of each tensor argument before the call, drawn by ourselves."""
    from evaluator.worker.inputs import generate

    values = generate(plain_arguments(workload), seed=seed)
    return {name: _storage_bytes(values[name]) for name in workload.tensors}


def rounded_like(result: CallResult, native: CallResult) -> CallResult:
    """A call in float64 as if it had been made in the types of ``native``, memory included."""
    outputs = tuple(_rounded(o, n) for o, n in zip(result.outputs, native.outputs, strict=True))
    arguments = {n: _rounded(a, native.arguments[n]) for n, a in result.arguments.items()}
    return replace(native, outputs=outputs, arguments=arguments)


def _rounded(wide: Snapshot, native: Snapshot) -> Substitute:
    import torch

    dtype = getattr(torch, native.facts.dtype)
    values = torch.from_numpy(np.array(wide.array(), order="C")).to(dtype)
    shown = values.float() if dtype is torch.bfloat16 else values
    return Substitute(native.facts, native.storage, shown.numpy().reshape(native.facts.shape))


def storage_sizes(result: CallResult) -> list[int]:
    """Bytes of the outputs' storages, as an allocator sees them."""
    return sorted({len(o.storage) for o in result.outputs if o.storage})


def _storage_bytes(tensor: Any) -> bytes:
    import torch

    flat = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())
    return bytes(flat.numpy().tobytes())


def _snapshot(facts: TensorFacts, blobs: Sequence[bytes]) -> Snapshot:
    if not isinstance(facts.blob, int) or not 0 <= facts.blob < len(blobs):
        raise ProtocolError(f"{facts.name} names a blob that was not sent")
    if len(facts.shape) != len(facts.strides):
        raise ProtocolError(f"{facts.name} has {len(facts.strides)} strides for {facts.shape}")
    return Snapshot(facts, blobs[facts.blob])
