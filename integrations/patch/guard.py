"""The guard: which arguments the kernel was tested for, derived from the workloads.

Workloads that agree in everything but numbers (kinds, dtypes, ranks, layouts, flags) form a
case. Within a case, each extent and each number becomes a condition: equal to its one
tested value; or equal (or in proportion) to an extent named before; or within the tested
range, and divisible by what all tested values share. Cases are alternatives. Nothing is
allowed that lies outside what was tested; sizes between two tested sizes are trusted, and
the generated test samples them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from evaluator.problem import Problem
from evaluator.workload import ArgumentValue, TensorSpec, Workload
from integrations.patch.errors import PatchError

Numbers = tuple[int, ...]


@dataclass(frozen=True)
class Extent:
    """One number of a case: a dimension or a stride of a tensor, as an expression."""

    expression: str
    values: Numbers
    """Its value in each workload of the case."""
    is_scalar: bool = False
    """Whether it is an argument of its own, of which only tested values are allowed."""


@dataclass(frozen=True)
class Case:
    """Workloads that differ in numbers alone, and the conditions that hold for all of them."""

    name: str
    workloads: tuple[Workload, ...]
    conditions: tuple[str, ...]
    free: tuple[Extent, ...]
    """The extents that vary and determine all others."""


def derive_cases(problem: Problem, tested: Sequence[Workload]) -> tuple[Case, ...]:
    """Group ``tested`` and derive each group's conditions, in the order of the workloads."""
    groups: dict[tuple[object, ...], list[Workload]] = {}
    for workload in tested:
        key = tuple(_kind(workload.arguments[p]) for p in problem.parameters)
        groups.setdefault(key, []).append(workload)
    return tuple(
        _case(problem, tuple(group), number) for number, group in enumerate(groups.values())
    )


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides in elements."""
    strides = [1] * len(shape)
    for dim in range(len(shape) - 2, -1, -1):
        strides[dim] = strides[dim + 1] * max(shape[dim + 1], 1)
    return tuple(strides)


def is_contiguous(spec: TensorSpec) -> bool:
    """Whether ``spec`` is row-major, as torch sees it: extents of one have any stride."""
    if spec.strides is None:
        return True
    expected = contiguous_strides(spec.shape)
    pairs = zip(spec.strides, expected, spec.shape, strict=True)
    return all(stride == want or extent == 1 for stride, want, extent in pairs)


def _kind(value: ArgumentValue) -> tuple[object, ...]:
    if isinstance(value, TensorSpec):
        return ("tensor", value.dtype, len(value.shape), is_contiguous(value), value.alias_of)
    if isinstance(value, bool | str) or value is None:
        return (type(value).__name__, value)
    return (type(value).__name__,)


def _case(problem: Problem, group: tuple[Workload, ...], number: int) -> Case:
    conditions: list[str] = []
    extents: list[Extent] = []
    for name in problem.parameters:
        values = [w.arguments[name] for w in group]
        specs = [v for v in values if isinstance(v, TensorSpec)]
        if specs:
            conditions += _tensor_conditions(name, specs[0])
            extents += _tensor_extents(name, specs)
        elif type(values[0]) is int:
            conditions.append(f"type({name}) is int")
            extents.append(Extent(name, tuple(int(v) for v in values if isinstance(v, int)), True))
        else:
            conditions.append(_scalar_condition(name, values))
    numeric, free = _extent_conditions(sorted(extents, key=lambda e: e.is_scalar))
    return Case(
        name=f"_fits_case_{number}",
        workloads=group,
        conditions=(*conditions, *numeric, *_overlap_conditions(problem, group[0])),
        free=free,
    )


def _tensor_conditions(name: str, spec: TensorSpec) -> list[str]:
    conditions = [
        f"type({name}) in _PLAIN_TENSORS",
        f"{name}.dtype is torch.{spec.dtype.value}",
        f"{name}.dim() == {len(spec.shape)}",
    ]
    return [*conditions, f"{name}.is_contiguous()"] if is_contiguous(spec) else conditions


def _tensor_extents(name: str, specs: list[TensorSpec]) -> list[Extent]:
    rank = len(specs[0].shape)
    extents = [Extent(f"{name}.shape[{d}]", tuple(s.shape[d] for s in specs)) for d in range(rank)]
    if is_contiguous(specs[0]):
        return extents
    strides = [s.strides or contiguous_strides(s.shape) for s in specs]
    return extents + [
        Extent(f"{name}.stride({d})", tuple(s[d] for s in strides)) for d in range(rank)
    ]


def _scalar_condition(name: str, values: Sequence[ArgumentValue]) -> str:
    """Flags and text are equal within a case; other numbers lie in their tested range."""
    first = values[0]
    if first is None or isinstance(first, bool):
        return f"{name} is {first}"
    if isinstance(first, str):
        return f"{name} == {first!r}"
    numbers = [float(v) for v in values if isinstance(v, int | float)]
    low, high = min(numbers), max(numbers)
    if not all(map(math.isfinite, numbers)):
        raise PatchError(f"argument {name!r} was tested with a number that is not finite")
    inside = f"{name} == {low!r}" if low == high else f"{low!r} <= {name} <= {high!r}"
    return f"type({name}) is float and {inside}"


def _extent_conditions(extents: Sequence[Extent]) -> tuple[list[str], tuple[Extent, ...]]:
    conditions: list[str] = []
    free: list[Extent] = []
    for extent in extents:
        if len(set(extent.values)) == 1:
            conditions.append(f"{extent.expression} == {extent.values[0]}")
            continue
        tied = next((c for known in free if (c := _tie(known, extent)) is not None), None)
        if tied is not None:
            conditions.append(tied)
            continue
        free.append(extent)
        conditions += _range_conditions(extent)
    return conditions, tuple(free)


def proportion(known: Numbers, values: Numbers) -> Fraction | None:
    """The one ratio of ``values`` to ``known``, None where there is none."""
    if values == known:
        return Fraction(1)
    if 0 in known:
        return None
    ratios = {Fraction(v, k) for k, v in zip(known, values, strict=True)}
    return ratios.pop() if len(ratios) == 1 else None


def _tie(known: Extent, extent: Extent) -> str | None:
    """The condition that ``extent`` keeps its proportion to ``known``, if it always did."""
    ratio = proportion(known.values, extent.values)
    if ratio is None:
        return None
    left, right = extent.expression, known.expression
    if ratio.denominator != 1:
        left = f"{left} * {ratio.denominator}"
    if ratio.numerator != 1:
        right = f"{right} * {ratio.numerator}"
    return f"{left} == {right}"


def _range_conditions(extent: Extent) -> list[str]:
    if extent.is_scalar:
        return [f"{extent.expression} in {tuple(sorted(set(extent.values)))}"]
    conditions = [f"{min(extent.values)} <= {extent.expression} <= {max(extent.values)}"]
    shared = math.gcd(*extent.values)
    return [*conditions, f"{extent.expression} % {shared} == 0"] if shared > 1 else conditions


def _overlap_conditions(problem: Problem, workload: Workload) -> list[str]:
    """Arguments share memory exactly where they did in the tests, as far as starts can tell."""
    tensors = workload.tensors
    conditions = [
        f"{name}.data_ptr() == {spec.alias_of}.data_ptr()"
        for name, spec in tensors.items()
        if spec.alias_of is not None
    ]
    seen: set[frozenset[str]] = set()
    for written in problem.contract.writes:
        for name in tensors:
            pair = frozenset((written, name))
            if written in tensors and len(pair) == 2 and pair not in seen:
                seen.add(pair)
                if _root(written, tensors) != _root(name, tensors):
                    conditions.append(f"{written}.data_ptr() != {name}.data_ptr()")
    return conditions


def _root(name: str, tensors: dict[str, TensorSpec]) -> str:
    alias = tensors[name].alias_of
    return name if alias is None else alias
