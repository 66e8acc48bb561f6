"""All Triton variants of a problem: one trace per group, one module per Inductor setting."""

from __future__ import annotations

from collections.abc import Iterator

from .emission import inductor_source
from .fake_cuda import DEVICE, cuda_target
from .guards import conditions_on_symbols, holds_for
from .inductor_module import kernel_meta
from .normal_form import normal_form
from .reference import FlatFunction, flat_function
from .settings import TRITON_SETTINGS, Setting
from .tracing import TracedGraph, holds_for_one, trace_group
from .triton_module import GroupSource, triton_module
from .workloads import EmissionFailed, Group, Request, Variant, group_workloads, static_groups


def emit_triton(request: Request) -> Iterator[Variant | EmissionFailed]:
    """Yield a variant for each setting that gives a program not yielded before.

    A setting that Inductor or the cleaning cannot serve yields the failure instead.

    Raises:
        EmissionFailed: the reference cannot be loaded or traced at all.
    """
    function = flat_function(request)
    with cuda_target():
        plan = _plan(function, group_workloads(request.workloads))
        seen: set[str] = set()
        for setting in TRITON_SETTINGS:
            try:
                variant = _variant(request, function, plan, setting)
            except EmissionFailed as failure:
                yield EmissionFailed(f"{setting.description}: {failure}")
                continue
            form = normal_form(variant.source)
            if form not in seen:
                seen.add(form)
                yield variant


def _plan(function: FlatFunction, groups: list[Group]) -> list[Group]:
    """The groups to trace: workloads that a symbolic trace does not cover get one of their own."""
    plan: list[Group] = []
    for group in groups:
        if not group.is_dynamic:
            plan.append(group)
            continue
        traced = trace_group(function, group, DEVICE)
        conditions = _conditions(function, traced)
        count = len(group.workloads)
        outside = [i for i in range(count) if not holds_for(conditions, group, i)]
        if len(outside) < count:
            plan.append(group)
        singles = static_groups(group)
        names = {group.workloads[i].name for i in outside}
        plan += [g for g in singles if g.workloads[0].name in names]
    return plan


def _conditions(function: FlatFunction, traced: TracedGraph) -> list[object]:
    if not traced.group.is_dynamic:
        return []
    one_is_fine = holds_for_one(function, traced, DEVICE)
    return list(conditions_on_symbols(traced, one_is_fine=one_is_fine))


def _variant(
    request: Request, function: FlatFunction, plan: list[Group], setting: Setting
) -> Variant:
    groups: list[GroupSource] = []
    for group in plan:
        traced = trace_group(function, group, DEVICE)
        source = inductor_source(traced, setting.patches, gemm_template=setting.gemm_template)
        # Lowering may have added conditions, so they are read after it.
        groups.append(GroupSource(traced, source, _conditions(function, traced)))
    text = triton_module(
        request,
        groups,
        title=f"{request.candidate_function}: {setting.description}.",
        meta_of=kernel_meta,
        config_index=setting.config_index,
    )
    return Variant(text, f"TorchInductor, {setting.description}")
