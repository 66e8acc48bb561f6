"""Calls made of numpy arrays, as a worker would have reported them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from evaluator.correctness.expected import Expected
from evaluator.tensors import CallResult, Snapshot
from evaluator.worker.protocol import TensorFacts


def make_snapshot(name: str, values: Any, **changes: Any) -> Snapshot:
    """A contiguous tensor of its own; ``changes`` replace facts."""
    array = np.ascontiguousarray(values)
    facts = TensorFacts(
        name=name,
        type_name="torch.Tensor",
        dtype=str(array.dtype),
        shape=array.shape,
        strides=tuple(s // array.itemsize for s in array.strides),
        offset=0,
        device="cpu",
        blob=0,
    )
    return Snapshot(replace(facts, **changes), array.tobytes())


def make_call(
    outputs: Sequence[Any], arguments: Mapping[str, Any] | None = None, *, container: str = "tuple"
) -> CallResult:
    """A call that returned ``outputs``: arrays, or snapshots made before."""
    made = [
        o if isinstance(o, Snapshot) else make_snapshot(f"output {i}", o)
        for i, o in enumerate(outputs)
    ]
    given = {n: make_snapshot(n, v) for n, v in (arguments or {}).items()}
    return CallResult(container=container, outputs=tuple(made), arguments=given)


def make_expected(
    native: CallResult, lifted: CallResult | None, *, reduction_length: int = 1
) -> Expected:
    """Expectations whose inputs are what the native call left (nothing was written)."""
    return Expected(
        native=native,
        lifted=lifted,
        inputs={n: s.storage for n, s in native.arguments.items()},
        reduction_length=reduction_length,
    )
