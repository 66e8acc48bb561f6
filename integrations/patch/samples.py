"""Inputs for the generated test: tested sizes and odd ones between them, as plain data.

Every input lies inside the guard. Sizes are scaled through the case's free extents, so that
extents that were tied in the tests stay tied. Where integers index a tensor whose size
varies, only sizes that were tested are used: a smaller size could be out of bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from evaluator.workload import ArgumentValue, DType, TensorSpec, ValueKind, Workload
from integrations.patch.guard import Case, Extent, is_contiguous, proportion

_MOST_ELEMENTS = 1 << 21
_INDEX_TYPES = (DType.INT64, DType.INT32)


@dataclass(frozen=True)
class Sample:
    """One parametrised input of the generated test."""

    name: str
    arguments: dict[str, ArgumentValue]


def samples_of(cases: Sequence[Case]) -> tuple[Sample, ...]:
    """Small tested inputs and odd ones of every case; at least one a case."""
    found: list[Sample] = []
    for case in cases:
        tested = sorted(case.workloads, key=lambda w: w.total_bytes)
        found.append(Sample(tested[0].name, tested[0].arguments))
        found += [Sample(w.name, w.arguments) for w in tested[1:] if _is_small(w.arguments)][:2]
        odd = _scaled(case, "odd", _odd_between)
        if odd is not None and _is_small(odd.arguments):
            found.append(odd)
    return tuple(found)


def _is_small(arguments: dict[str, ArgumentValue]) -> bool:
    return sum(v.numel for v in arguments.values() if isinstance(v, TensorSpec)) <= _MOST_ELEMENTS


def outside_sample(cases: Sequence[Case]) -> Sample | None:
    """A small input that differs from a tested one only by a size that was not tested."""
    if len(cases) != 1:
        return None
    sample = _scaled(cases[0], "outside", _outside)
    return sample if sample is not None and _is_small(sample.arguments) else None


def _scaled(case: Case, prefix: str, choose: Callable[[Extent], int]) -> Sample | None:
    """The smallest tested input with each free extent replaced; None where that is not safe."""
    base = min(case.workloads, key=lambda w: w.total_bytes)
    position = case.workloads.index(base)
    varies = [e for e in case.free if not e.is_scalar]
    plain = all(is_contiguous(t) for t in base.tensors.values())
    if not varies or len(varies) != len(case.free) or not plain or _indexes_something(base):
        return None
    chosen = [(e, choose(e)) for e in varies]
    if all(extent.values[position] == value for extent, value in chosen):
        return None
    arguments = {name: _resized(case, base, name, chosen) for name in base.arguments}
    return Sample(f"{prefix}-{base.name}", arguments)


def _odd_between(extent: Extent) -> int:
    """An odd multiple of what all tested values share, inside the tested range."""
    low, high, step = min(extent.values), max(extent.values), math.gcd(*extent.values)
    small = min(high, low + 63 * step)
    steps = (low + small) // 2 // step
    odd = (steps | 1) * step
    return odd if low <= odd <= high else low


def _outside(extent: Extent) -> int:
    """A size just below the tested range, else just above it."""
    low, high, step = min(extent.values), max(extent.values), math.gcd(*extent.values)
    return low - step if low > step else high + step


def _indexes_something(workload: Workload) -> bool:
    return any(
        t.dtype in _INDEX_TYPES and t.values.kind is ValueKind.INTEGERS
        for t in workload.tensors.values()
    )


def _resized(
    case: Case, base: Workload, name: str, chosen: Sequence[tuple[Extent, int]]
) -> ArgumentValue:
    value = base.arguments[name]
    if not isinstance(value, TensorSpec):
        return value
    per_workload = [w.arguments[name] for w in case.workloads]
    specs = [v for v in per_workload if isinstance(v, TensorSpec)]
    shape = tuple(
        _resized_extent(tuple(s.shape[dim] for s in specs), chosen)
        for dim in range(len(value.shape))
    )
    return value.model_copy(update={"shape": shape, "strides": None})


def _resized_extent(values: tuple[int, ...], chosen: Sequence[tuple[Extent, int]]) -> int:
    """The new value of an extent that is constant or in proportion to a free one."""
    if len(set(values)) == 1:
        return values[0]
    for extent, size in chosen:
        ratio = proportion(extent.values, values)
        if ratio is not None:
            return int(ratio * size)
    raise AssertionError("an extent that varies is free or tied to a free one")
