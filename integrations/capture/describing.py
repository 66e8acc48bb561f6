"""One form of calls as a workload: what can be told again, and why the rest cannot."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from evaluator.workload import DType, ValueKind, Values
from integrations.capture.seen import Form, SeenTensor, SeenValue
from integrations.kernelbench.values import Structured, fit_input, fit_state

_FEW = 64
"""Elements below which the integers of a call are kept, not only their range."""
Notes = list[str]


def reasons_against(form: Form, most_bytes: int) -> list[str]:
    """Return why no workload can be made of ``form``; empty where one can."""
    reasons = list(_faults_of_values(form))
    if sum(form.raised.values()) >= form.calls:
        reasons.append(f"every such call raised {', '.join(form.raised)}")
    reasons += [
        f"{name} and {owner} overlap in part"
        for name, (owner, how) in form.overlaps.items()
        if how != "whole"
    ]
    if reasons:
        return reasons
    size = sum(_bytes(t) for n, t in form.tensors.items() if n not in form.overlaps)
    if size > most_bytes:
        reasons.append(f"its tensors take {size >> 20} MB, more than {most_bytes >> 20}")
    return reasons


def _faults_of_values(form: Form) -> Iterator[str]:
    for name, value in form.values.items():
        if value.other == "str":
            yield f"{name} is a string that does not stand in the function's file, so not stored"
        elif value.other is not None:
            is_there = value.other != "nothing"
            yield f"{name} is a {value.other}, which is not stored" if is_there else f"no {name}"
    for name, tensor in form.tensors.items():
        if tensor.dtype not in set(DType):
            yield f"{name} is {tensor.dtype}, which no workload can be yet"
        elif _overlaps_itself(tensor):
            yield f"the rows of {name} overlap"
    for name, argument in (form.constructor or {}).items():
        if argument.other is not None:
            yield f"it was constructed with {name}, a {argument.other}, which is not stored"


def arguments_of(form: Form, known: Mapping[str, SeenTensor], notes: Notes) -> dict[str, Any]:
    """Return the form's arguments and state as the workloads file spells them.

    Args:
        form: calls without a reason against them.
        known: tensors with moments, for those of ``form`` that have none.
        notes: where it is said what was replaced by something drawn.
    """
    return {
        file_name(name): _spelled(name, value, form, known, notes)
        for name, value in form.values.items()
    }


def file_name(name: str) -> str:
    """Return what the workloads file calls ``self.norm.weight``: ``norm__weight``."""
    return name.removeprefix("self.").replace(".", "__")


def _spelled(
    name: str, value: SeenValue, form: Form, known: Mapping[str, SeenTensor], notes: Notes
) -> Any:
    if value.tensor is not None:
        return _tensor(name, value.tensor, form, known, notes)
    if value.list is not None:
        members = enumerate(value.list)
        return [_tensor(f"{name}_{i}", t, form, known, notes) for i, t in members]
    return value.scalar


def _tensor(
    name: str, tensor: SeenTensor, form: Form, known: Mapping[str, SeenTensor], notes: Notes
) -> dict[str, Any]:
    spelled: dict[str, Any] = {"shape": list(tensor.shape), "dtype": tensor.dtype}
    if tensor.strides is not None:
        spelled["strides"] = list(tensor.strides)
    if name in form.overlaps:
        owner = form.overlaps[name][0]
        if form.tensors[owner].shape != tensor.shape:  # a part needs strides to be told from a view
            spelled["strides"] = list(tensor.strides or _dense(tensor.shape))
        return spelled | {"alias_of": file_name(owner)}
    told = tensor if tensor.sample else known.get(name)
    if told is None or told.dtype != tensor.dtype:
        if tensor.numel:
            notes.append(f"{file_name(name)}: its elements were not read")
        return spelled
    # Weights and what calls write may be anything later; never a constant to rely on.
    is_state = name.startswith("self.") or name in form.writes
    values = _values(file_name(name), told, notes, is_state=is_state)
    shown = values.model_dump(mode="json", exclude_defaults=True)
    if DType(tensor.dtype).is_floating:
        shown = {k: v if k == "kind" else float(f"{v:.6g}") for k, v in shown.items()}
    return spelled | ({"values": shown} if shown else {})


def _values(name: str, tensor: SeenTensor, notes: Notes, *, is_state: bool) -> Values:
    try:
        if is_state and DType(tensor.dtype).is_floating:
            return fit_state(tensor, parameter=tensor.parameter)
        fitted = fit_input(tensor)
        if fitted.kind is not ValueKind.INTEGERS or len(tensor.sample) >= _FEW or not tensor.data:
            return fitted
    except Structured as error:
        if not tensor.data:
            nearest = _from_range(tensor)
            notes.append(f"{name} {error}; here it is {nearest.kind.value}")
            return nearest
    return Values(kind=ValueKind.CAPTURED, data=tensor.data)  # a few, or unlike any generator's


def _from_range(tensor: SeenTensor) -> Values:
    """What is nearest to elements that no generator draws."""
    if not DType(tensor.dtype).is_floating:
        if min(tensor.sample) == max(tensor.sample):
            return Values(kind=ValueKind.CONSTANT, low=tensor.sample[0])
        return Values(kind=ValueKind.INTEGERS, low=tensor.low, high=tensor.high + 1)
    values = np.asarray(tensor.sample, dtype=np.float64)
    values = values[np.abs(values) < 1e38]
    if not values.size:
        return Values()
    low, high, std = float(values.min()), float(values.max()), float(values.std())
    if low >= 0 and high > low:
        return Values(kind=ValueKind.UNIFORM, low=low, high=high)
    return Values(mean=float(values.mean()), std=std or 1.0)


def _dense(shape: Sequence[int]) -> Iterator[int]:
    """Strides of a contiguous tensor."""
    return (math.prod(shape[dim + 1 :]) for dim in range(len(shape)))


def _bytes(tensor: SeenTensor) -> int:
    extent = tensor.numel
    if tensor.strides is not None and tensor.numel:
        steps = zip(tensor.shape, tensor.strides, strict=True)
        extent = 1 + sum((n - 1) * s for n, s in steps)
    return extent * DType(tensor.dtype).itemsize_bytes


def _overlaps_itself(tensor: SeenTensor) -> bool:
    """Whether two of its elements are one, other than by expansion (a stride of 0)."""
    reach = 0
    for step, extent in sorted(zip(tensor.strides or (), tensor.shape, strict=False)):
        if step and extent > 1:
            if step <= reach:
                return True
            reach += (extent - 1) * step
    return False
