"""Which groups of workloads are traced, and each trace but once."""

from __future__ import annotations

from collections.abc import Sequence

from .guards import conditions_on_symbols, holds_for
from .reference import FlatFunction
from .tracing import TracedGraph, holds_for_one, trace_group
from .workloads import EmissionFailed, Group, static_groups

_MOST_STATIC_GROUPS = 4


class Traces:
    """Traces each group once per way of rounding, for one device."""

    def __init__(self, function: FlatFunction, device: str) -> None:
        self._function = function
        self._device = device
        self._traced: dict[tuple[int, bool], TracedGraph] = {}
        self._one_is_fine: dict[int, bool] = {}
        self._static: dict[int, list[Group]] = {}

    def get(self, group: Group, *, eager_rounding: bool = True) -> TracedGraph:
        """The trace of ``group``. Raises ``EmissionFailed`` as ``trace_group`` does."""
        key = (id(group), eager_rounding)
        if key not in self._traced:
            self._traced[key] = trace_group(
                self._function, group, self._device, eager_rounding=eager_rounding
            )
        return self._traced[key]

    def static(self, groups: Sequence[Group]) -> list[Group]:
        """One group per distinct workload of ``groups``, then the symbolic ones for other sizes.

        Raises:
            EmissionFailed: there would be so many that a module of them helps nobody.
        """
        for group in groups:
            self._static.setdefault(id(group), static_groups(group))
        found = [g for group in groups for g in self._static[id(group)]]
        if len(found) > _MOST_STATIC_GROUPS:
            raise EmissionFailed(f"{len(found)} workloads are too many to give each its kernels")
        return [*found, *(g for g in groups if g.is_dynamic)]

    def conditions(self, traced: TracedGraph) -> list[str]:
        """What the trace, and what was lowered from it so far, assumes about sizes."""
        if not traced.group.is_dynamic:
            return []
        key = id(traced.group)
        if key not in self._one_is_fine:
            self._one_is_fine[key] = holds_for_one(self._function, traced, self._device)
        return conditions_on_symbols(traced, one_is_fine=self._one_is_fine[key])


def groups_to_trace(traces: Traces, groups: Sequence[Group]) -> list[Group]:
    """``groups``; workloads that a symbolic trace does not cover get a group of their own."""
    plan: list[Group] = []
    for group in groups:
        outside = _outside(traces, group) if group.is_dynamic else set()
        if len(outside) < len(group.workloads):
            plan.append(group)
        plan += [g for g in static_groups(group) if g.workloads[0].name in outside]
    return plan


def _outside(traces: Traces, group: Group) -> set[str]:
    """Names of the workloads whose sizes the symbolic trace of ``group`` does not hold for."""
    conditions = traces.conditions(traces.get(group))
    return {
        workload.name
        for i, workload in enumerate(group.workloads)
        if not holds_for(conditions, group, i)
    }
