"""All Triton variants of a problem: one trace per group, one module per Inductor setting."""

from __future__ import annotations

from collections.abc import Iterator

from .emission import inductor_source
from .fake_cuda import DEVICE, cuda_target
from .guards import holds_for
from .inductor_module import kernel_meta
from .normal_form import normal_form
from .plan import Traces, groups_to_trace
from .reference import flat_function
from .settings import TRITON_SETTINGS, Setting
from .triton_module import GroupSource, triton_module
from .workloads import EmissionFailed, Group, Request, Variant, group_workloads


def emit_triton(request: Request) -> Iterator[Variant | EmissionFailed]:
    """Yield a variant for each setting that gives a program not yielded before.

    A setting that Inductor or the cleaning cannot serve yields the failure instead.

    Raises:
        EmissionFailed: the reference cannot be loaded or traced at all.
    """
    function = flat_function(request)
    with cuda_target():
        traces = Traces(function, DEVICE)
        plan = groups_to_trace(traces, group_workloads(request.workloads, request.varying))
        seen: set[str] = set()
        for setting in TRITON_SETTINGS:
            try:
                variant = _variant(request, traces, plan, setting)
            except EmissionFailed as failure:
                yield EmissionFailed(f"{setting.description}: {failure}")
                continue
            form = normal_form(variant.source)
            if form not in seen:
                seen.add(form)
                yield variant


def _variant(request: Request, traces: Traces, plan: list[Group], setting: Setting) -> Variant:
    eager_rounding = bool(setting.patches.get("emulate_precision_casts", True))
    groups: list[GroupSource] = []
    for group in traces.static(plan) if setting.static_shapes else plan:
        traced = traces.get(group, eager_rounding=eager_rounding)
        source = inductor_source(
            traced,
            setting.patches,
            whole_rows=setting.whole_rows,
            gemm_template=setting.gemm_template,
        )
        # Lowering may have added conditions, so they are read after it.
        conditions = traces.conditions(traced)
        if not all(holds_for(conditions, group, i) for i in range(len(group.workloads))):
            raise EmissionFailed("the lowering does not hold for the sizes of every workload")
        groups.append(GroupSource(traced, source, conditions))
    text = triton_module(
        request,
        groups,
        title=f"{request.candidate_function}: {setting.description}.",
        meta_of=kernel_meta,
        config_index=setting.config_index,
    )
    return Variant(text, f"TorchInductor, {setting.description}")
