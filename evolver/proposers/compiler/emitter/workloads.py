"""The request that our side sends, and how its workloads fall into groups that one trace can serve.

A trace burns in scalars, dtypes, ranks and layouts, so workloads are grouped by these; within
a group, dimensions that differ between workloads become symbols and all others stay numbers.
Two dimensions share a symbol when they agree in every workload of the group. Nothing here
imports torch.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Scalar = bool | int | float | str | None


class EmissionFailed(Exception):
    """The compiler cannot serve this problem; the message says why, in words for people."""


@dataclass(frozen=True)
class TensorInput:
    """One tensor argument of one workload; strides in elements."""

    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...]
    alias_of: str | None = None

    @property
    def is_contiguous(self) -> bool:
        """Whether the strides are those of a freshly allocated tensor."""
        return self.strides == contiguous_strides(self.shape)


@dataclass(frozen=True)
class Input:
    """One workload: a tensor or a scalar for each parameter, in the order of the parameters."""

    name: str
    values: Mapping[str, TensorInput | Scalar]


@dataclass(frozen=True)
class Request:
    """What to emit. ``parameters`` are the entry's: call arguments, then state attributes."""

    reference_source: str
    function: str
    class_name: str | None
    candidate_function: str
    arguments: tuple[str, ...]
    state: tuple[str, ...]
    returns_tuple: bool
    workloads: tuple[Input, ...]
    backend: str
    varying: tuple[tuple[tuple[str, int], ...], ...] = ()
    """Which dimensions (parameter, position) vary over all workloads, those not shown included;
    dimensions that vary together stand together."""
    constructor: tuple[Any, ...] | None = None
    """What the class is constructed with; None makes its instance from the state alone."""
    wants_graphs: bool = False
    """Whether the traced graphs are asked for, rather than Inductor's programs."""

    @property
    def parameters(self) -> tuple[str, ...]:
        """Parameters of the entry function of a candidate."""
        return self.arguments + self.state


@dataclass(frozen=True)
class Variant:
    """One module that the compiler offers."""

    source: str
    description: str


def request_from_json(raw: Mapping[str, Any]) -> Request:
    """Rebuild the request that our side made with ``Request`` fields as JSON.

    Each entry of ``workloads`` has ``name`` and ``arguments`` as ``Workload`` dumps them.

    Raises:
        KeyError: a field is missing.
    """
    parameters = (*raw["arguments"], *raw["state"])
    workloads = tuple(
        Input(w["name"], {p: _value(w["arguments"][p]) for p in parameters})
        for w in raw["workloads"]
    )
    return Request(
        reference_source=raw["reference_source"],
        function=raw["function"],
        class_name=raw.get("class_name"),
        candidate_function=raw["candidate_function"],
        arguments=tuple(raw["arguments"]),
        state=tuple(raw["state"]),
        returns_tuple=raw["returns_tuple"],
        workloads=workloads,
        backend=raw["backend"],
        varying=tuple(tuple((n, int(d)) for n, d in each) for each in raw.get("varying", ())),
        constructor=None if raw.get("constructor") is None else tuple(raw["constructor"]),
        wants_graphs=bool(raw.get("wants_graphs", False)),
    )


def _value(raw: Any) -> TensorInput | Scalar:
    if not isinstance(raw, Mapping):
        return raw  # type: ignore[no-any-return]
    shape = tuple(raw["shape"])
    strides = raw.get("strides")
    return TensorInput(
        shape=shape,
        dtype=raw["dtype"],
        strides=contiguous_strides(shape) if strides is None else tuple(strides),
        alias_of=raw.get("alias_of"),
    )


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides of ``shape``, with torch's rule that an extent of 0 counts as 1."""
    strides: list[int] = []
    step = 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))


@dataclass(frozen=True)
class Dimension:
    """One extent of a group's tensor: a number, or a symbol with its values per workload."""

    size: int
    """The extent in the workload that the trace takes as its example."""
    symbol: str | None = None


@dataclass(frozen=True)
class GroupTensor:
    """One tensor parameter of a group. ``strides`` is None for contiguous tensors."""

    name: str
    dtype: str
    dimensions: tuple[Dimension, ...]
    strides: tuple[int, ...] | None
    alias_of: str | None


@dataclass(frozen=True)
class Group:
    """Workloads that one trace serves."""

    tensors: tuple[GroupTensor, ...]
    scalars: Mapping[str, Scalar]
    symbols: Mapping[str, tuple[int, ...]]
    """Per symbol its value in each workload."""
    workloads: tuple[Input, ...]

    @property
    def is_dynamic(self) -> bool:
        """Whether any extent is a symbol."""
        return bool(self.symbols)


Varying = Sequence[Sequence[tuple[str, int]]]


def group_workloads(workloads: Sequence[Input], varying: Varying = ()) -> list[Group]:
    """Split ``workloads`` into groups, in the order of their first workload.

    ``varying`` is as in ``Request``; a dimension that it does not name varies when the
    workloads of its group differ in it.
    """
    by_key: dict[Any, list[Input]] = {}
    for workload in workloads:
        by_key.setdefault(_key(workload), []).append(workload)
    return [_group(members, varying) for members in by_key.values()]


def static_groups(group: Group) -> list[Group]:
    """One group per distinct workload of ``group``, all extents numbers."""
    distinct = {tuple(w.values.items()): w for w in group.workloads}
    return [_group([w]) for w in distinct.values()]


def _key(workload: Input) -> Any:
    parts: list[Any] = []
    for name, value in workload.values.items():
        if isinstance(value, TensorInput):
            # Explicit strides stay numbers, so the shape must be the same too.
            layout = "contiguous" if value.is_contiguous else (value.strides, value.shape)
            empty = 0 in value.shape
            parts.append((name, value.dtype, len(value.shape), layout, value.alias_of, empty))
        else:
            parts.append((name, type(value).__name__, repr(value)))
    return tuple(parts)


def _group(members: Sequence[Input], varying: Varying = ()) -> Group:
    tensor_names = [n for n, v in members[0].values.items() if isinstance(v, TensorInput)]
    rows = {n: [_tensor(w, n) for w in members] for n in tensor_names}
    classes = {tuple(d): i for i, each in enumerate(varying) for d in each}
    symbols: dict[Any, str] = {}
    values: dict[str, tuple[int, ...]] = {}
    symbol_of: dict[tuple[str, int], str] = {}
    for name in tensor_names:
        if not rows[name][0].is_contiguous:
            continue
        for position, extents in enumerate(zip(*(t.shape for t in rows[name]), strict=True)):
            together = classes.get((name, position))
            if together is None and len(set(extents)) == 1:
                continue
            key = extents if together is None else (together, extents)
            symbol = symbols.setdefault(key, _symbol(len(symbols), members[0].values))
            symbol_of[name, position] = symbol
            values[symbol] = extents
    example = _example(list(values.values()), len(members))
    tensors = tuple(_group_tensor(n, rows[n], symbol_of, example) for n in tensor_names)
    scalars = {n: v for n, v in members[0].values.items() if not isinstance(v, TensorInput)}
    return Group(tensors, scalars, values, tuple(members))


def _symbol(number: int, taken: Container[str]) -> str:
    name = f"s{number}"
    while name in taken:
        name += "_"
    return name


def _example(vectors: Sequence[tuple[int, ...]], count: int) -> int:
    """The workload whose symbols are most distinct and largest: no size 0 or 1 if it can be."""

    def merit(i: int) -> tuple[bool, int, int]:
        sizes = [v[i] for v in vectors]
        return all(s >= 2 for s in sizes), len(set(sizes)), sum(sizes)

    return max(range(count), key=merit)


def _tensor(workload: Input, name: str) -> TensorInput:
    value = workload.values[name]
    assert isinstance(value, TensorInput)
    return value


def _group_tensor(
    name: str,
    row: Sequence[TensorInput],
    symbol_of: Mapping[tuple[str, int], str],
    example: int,
) -> GroupTensor:
    shape = row[example].shape
    dimensions = tuple(Dimension(size, symbol_of.get((name, i))) for i, size in enumerate(shape))
    first = row[0]
    strides = None if first.is_contiguous else first.strides
    return GroupTensor(name, first.dtype, dimensions, strides, first.alias_of)
