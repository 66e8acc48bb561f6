"""Workloads that nobody was shown, derived from the declared ones.

Shapes: extents that differ between declared workloads are evidently dynamic. They take other
values, together over all arguments and scalars that hold them: between the declared ones, 1,
beyond the largest, and 0. A candidate must be right between the declared extents (and where
what they share as a divisor is kept) and may refuse elsewhere; silently wrong it may never be.
Values: zeros, ties, equal rows, large, tiny, several scales, infinities, in arguments that are
drawn without bounds. Layouts: strides that were not declared, which may be refused as well.
The caller keeps those that the reference itself runs. Pure functions; no randomness, since
the values come from secret seeds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from evaluator.problem import Contract
from evaluator.workload import (
    ArgumentValue,
    DerivedWorkload,
    TensorSpec,
    Twist,
    ValueKind,
    Values,
    Variation,
    Workload,
)

Place = tuple[str, int | str]
"""An argument and a dimension of it, ``high`` for the bound of its values, or ``scalar``."""

_HIGH = "high"
_SCALAR = "scalar"

STRESSES = (
    Twist.LARGE,
    Twist.TINY,
    Twist.MINUS_INFINITY,
    Twist.ZEROS,
    Twist.TIES,
    Twist.SCALES,
    Twist.EQUAL_ROWS,
    Twist.PLUS_INFINITY,
)
"""Most telling first: a policy may ask for fewer."""


@dataclass(frozen=True)
class Axis:
    """Extents that vary together: each is ``factor`` times the axis's value plus ``shift``."""

    values: tuple[int, ...]
    """In each declared workload of the family."""
    places: tuple[tuple[Place, int, int], ...]
    """Place, factor, shift."""

    @property
    def divisor(self) -> int:
        """What all declared values share."""
        return math.gcd(*self.values)

    @property
    def has_scalar(self) -> bool:
        """Whether a scalar argument holds it, on which code may be specialised."""
        return any(place[1] == _SCALAR for place, _, _ in self.places)


def derived_shapes(workloads: Sequence[Workload], *, most: int) -> list[DerivedWorkload]:
    """Up to ``most`` variants of the family with the most workloads; none of a single one."""
    family = max(_families(workloads), key=len)
    axes = _axes(family)
    if not axes:
        return []
    base = min(family, key=_elements)
    declared = set(zip(*(a.values for a in axes), strict=True))
    plans = dict.fromkeys([_between(axes), _ones(axes), _beyond(axes), *_empties(axes)])
    wanted = [p for p in plans if p not in declared and not _may_miss(base, axes, p)]
    return [_resized(base, axes, sizes, number) for number, sizes in enumerate(wanted[:most])]


def derived_values(workload: Workload) -> Iterator[DerivedWorkload]:
    """Variants of ``workload`` with extreme values, the most telling first.

    Infinities come for one argument at a time, since two at once are NaN.
    """
    free = [n for n, t in workload.tensors.items() if _is_unbounded(t)]
    for twist in STRESSES:
        infinite = twist in (Twist.MINUS_INFINITY, Twist.PLUS_INFINITY)
        for names in [[n] for n in free] if infinite else [free] * bool(free):
            yield _derive(
                workload,
                f"{twist.value}-{names[0]}"[:60],
                Variation.VALUES,
                twists=dict.fromkeys(names, twist),
            )


def derived_layouts(workload: Workload, contract: Contract) -> list[DerivedWorkload]:
    """Variants with strides that were not declared; arguments that are written keep theirs."""
    bound = {*contract.writes, *(o.alias_of for o in contract.outputs)}
    bound |= {t.alias_of for t in workload.tensors.values()}
    free = {
        n: t
        for n, t in workload.tensors.items()
        if n not in bound and t.strides is None and t.alias_of is None and t.numel > 1
    }
    found = []
    for number, layout in enumerate((_sliced, _transposed, _expanded)):
        changed = {n: layout(t) for n, t in free.items()}
        kept = {n: t for n, t in changed.items() if t is not None}
        if kept:
            found.append(
                _derive(
                    workload,
                    f"layouts-{number}",
                    Variation.LAYOUTS,
                    arguments={**workload.arguments, **kept},
                    may_refuse=True,
                )
            )
    return found


def _derive(
    workload: Workload,
    name: str,
    variation: Variation,
    *,
    arguments: Mapping[str, ArgumentValue] | None = None,
    twists: Mapping[str, Twist] | None = None,
    may_refuse: bool = False,
) -> DerivedWorkload:
    return DerivedWorkload(
        name=name,
        arguments=dict(workload.arguments if arguments is None else arguments),
        variation=variation,
        twists=dict(twists or {}),
        may_refuse=may_refuse,
    )


def _is_unbounded(spec: TensorSpec) -> bool:
    """Whether values of any size are among those that the problem declares."""
    kinds = (ValueKind.NORMAL, ValueKind.TIES)
    return spec.dtype.is_floating and spec.values.kind in kinds and spec.alias_of is None


# Shapes


def _families(workloads: Sequence[Workload]) -> list[list[Workload]]:
    """Workloads that differ in numbers alone, as ``integrations/patch/guard.py`` groups them."""
    families: dict[tuple[object, ...], list[Workload]] = {}
    for workload in workloads:
        key = tuple((name, _form(value)) for name, value in workload.arguments.items())
        families.setdefault(key, []).append(workload)
    return list(families.values())


def _form(value: ArgumentValue) -> tuple[object, ...]:
    if isinstance(value, TensorSpec):
        strided = value.shape + value.strides if value.strides is not None else None
        values = value.values
        return (value.dtype, len(value.shape), strided, value.alias_of, values.kind, values.data)
    if type(value) is int:
        return ("int",)
    return (type(value).__name__, value)


def _axes(family: Sequence[Workload]) -> list[Axis]:
    """The dynamic extents, those of tensors first; scalars and bounds only join one."""
    places = [(p, v) for p, v in _numbers(family) if len(set(v)) > 1]
    roots = sorted((pv for pv in places if isinstance(pv[0][1], int)), key=lambda pv: sum(pv[1]))
    tied: list[tuple[tuple[int, ...], list[tuple[Place, int, int]]]] = []
    for place, values in [*roots, *(pv for pv in places if not isinstance(pv[0][1], int))]:
        found = next(
            ((k, tie) for k, (base, _) in enumerate(tied) if (tie := _tie(base, values))), None
        )
        if found is not None:
            tied[found[0]][1].append((place, *found[1]))
        elif isinstance(place[1], int):
            tied.append((values, [(place, 1, 0)]))
    return [Axis(values, tuple(held)) for values, held in tied]


def _numbers(family: Sequence[Workload]) -> Iterator[tuple[Place, tuple[int, ...]]]:
    for name, value in family[0].arguments.items():
        if type(value) is int:
            yield (name, _SCALAR), tuple(int(w.arguments[name]) for w in family)  # type: ignore[arg-type]
        if not isinstance(value, TensorSpec) or value.strides is not None:
            continue
        specs = [s for w in family if isinstance(s := w.arguments[name], TensorSpec)]
        for dim in range(len(value.shape)):
            yield (name, dim), tuple(s.shape[dim] for s in specs)
        if value.values.kind is ValueKind.INTEGERS:
            yield (name, _HIGH), tuple(int(s.values.high) for s in specs)


def _tie(base: tuple[int, ...], values: tuple[int, ...]) -> tuple[int, int] | None:
    """Factor and shift that make ``values`` of ``base``: equal, a multiple, or one more or less."""
    for shift in (0, 1, -1):
        factors = {
            (v - shift) // b if b and (v - shift) % b == 0 else 0
            for b, v in zip(base, values, strict=True)
        }
        if len(factors) == 1 and (factor := factors.pop()) > 0 and (shift == 0 or factor == 1):
            return factor, shift
    return None


def _between(axes: Sequence[Axis]) -> tuple[int, ...]:
    """Inside what was declared: prime multiples of the shared divisor where there are any."""
    return tuple(_inside(axis) for axis in axes)


def _inside(axis: Axis) -> int:
    low, high, step = min(axis.values), max(axis.values), axis.divisor
    between = [
        n * step
        for n in (*range(2 * low // step, high // step), *range(low // step + 1, high // step))
        if _is_prime(n)
    ]
    return next((s for s in between if low < s < high and s not in axis.values), low)


def _ones(axes: Sequence[Axis]) -> tuple[int, ...]:
    return tuple(1 for _ in axes)


def _beyond(axes: Sequence[Axis]) -> tuple[int, ...]:
    """Above the largest declared extent of the first axis that is cheap to enlarge."""
    largest = min(range(len(axes)), key=lambda i: max(axes[i].values))
    return tuple(
        _next_prime(max(a.values)) if i == largest else min(a.values) for i, a in enumerate(axes)
    )


def _empties(axes: Sequence[Axis]) -> list[tuple[int, ...]]:
    """One axis at a time is empty."""
    return [
        tuple(0 if i == empty else min(a.values) for i, a in enumerate(axes))
        for empty in range(len(axes))
    ]


def _may_miss(base: Workload, axes: Sequence[Axis], sizes: tuple[int, ...]) -> bool:
    """Whether indices whose bound no axis holds could point beyond a smaller extent.

    On a GPU such a read would end the reference's process.
    """
    held = {place for axis in axes for place, _, _ in axis.places}
    bounds = [
        _bound(t.values)
        for n, t in base.tensors.items()
        if not t.dtype.is_floating
        and t.values.kind in (ValueKind.INTEGERS, ValueKind.CONSTANT, ValueKind.CAPTURED)
        and (n, _HIGH) not in held
    ]
    return any(
        size < bound <= min(axis.values)
        for axis, size in zip(axes, sizes, strict=True)
        for bound in bounds
        if bound > 1
    )


def _bound(values: Values) -> float:
    """One more than the largest integer of those ``values``."""
    if values.kind is ValueKind.CAPTURED:
        return max(values.data) + 1
    return values.high if values.kind is ValueKind.INTEGERS else values.low + 1


def _resized(
    base: Workload, axes: Sequence[Axis], sizes: tuple[int, ...], number: int
) -> DerivedWorkload:
    arguments = dict(base.arguments)
    for axis, size in zip(axes, sizes, strict=True):
        for (name, what), factor, shift in axis.places:
            arguments[name] = _with(arguments[name], what, max(0, factor * size + shift))
    inside = all(
        min(a.values) <= s <= max(a.values) and s % a.divisor == 0
        for a, s in zip(axes, sizes, strict=True)
    )
    specialised = any(a.has_scalar and s not in a.values for a, s in zip(axes, sizes, strict=True))
    return _derive(
        base,
        f"shapes-{number}",
        Variation.SHAPES,
        arguments=arguments,
        may_refuse=not inside or specialised,
    )


def _with(value: ArgumentValue, what: int | str, number: int) -> ArgumentValue:
    if not isinstance(value, TensorSpec):
        return number
    if isinstance(what, int):
        shape = (*value.shape[:what], number, *value.shape[what + 1 :])
        return value.model_copy(update={"shape": shape})
    high = max(number, int(value.values.low) + 1)
    return value.model_copy(update={"values": value.values.model_copy(update={"high": high})})


def _is_prime(number: int) -> bool:
    return number > 1 and all(number % d for d in range(2, math.isqrt(number) + 1))


def _next_prime(number: int) -> int:
    candidate = number + 1
    while not _is_prime(candidate):
        candidate += 1
    return candidate


def _elements(workload: Workload) -> int:
    return sum(t.numel for t in workload.tensors.values())


# Layouts

Layout = Callable[[TensorSpec], TensorSpec | None]


def _sliced(spec: TensorSpec) -> TensorSpec | None:
    """Rows of a wider tensor; a vector takes every second element."""
    if not spec.shape:
        return None
    if len(spec.shape) == 1:
        return spec.model_copy(update={"strides": (2,)})
    wide = (*spec.shape[:-1], spec.shape[-1] + 8)
    return spec.model_copy(update={"strides": _strides(wide)})


def _transposed(spec: TensorSpec) -> TensorSpec | None:
    """The last two dimensions lie the other way round in memory."""
    if len(spec.shape) < 2:
        return None
    *lead, rows, cols = spec.shape
    *strides, _, _ = _strides((*lead, cols, rows))
    return spec.model_copy(update={"strides": (*strides, 1, rows)})


def _expanded(spec: TensorSpec) -> TensorSpec | None:
    """One row stands for all."""
    if len(spec.shape) < 2 or spec.values.kind is ValueKind.PERMUTATION:
        return None
    strides = _strides((1, *spec.shape[1:]))
    return spec.model_copy(update={"strides": (0, *strides[1:])})


def _strides(shape: Sequence[int]) -> tuple[int, ...]:
    steps = [1]
    for extent in reversed(shape[1:]):
        steps.append(steps[-1] * max(extent, 1))
    return tuple(reversed(steps))
