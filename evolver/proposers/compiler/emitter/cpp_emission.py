"""The ``cpp`` half of the compiler: TorchInductor's CPU loops as standalone C++ candidates.

Each setting lowers the graph of every group of workloads with Inductor's CPU backend in its
scalar form, cleans what it generates and writes one module, whose entry picks the group that
fits its arguments.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from .cpp_entry import GroupCode, write_module
from .cpp_expression import Untranslatable
from .cpp_module import assemble
from .cpp_prelude import with_prelude
from .cpp_reductions import ParallelStyle
from .cpp_source import CleanStyle
from .cpp_wrapper import read_wrapper
from .emission import inductor_source
from .normal_form import normal_form
from .plan import Traces, groups_to_trace
from .reference import flat_function
from .tracing import TracedGraph
from .workloads import EmissionFailed, Group, Request, Variant, group_workloads

DEVICE = "cpu"

_SCALAR_LOOPS: Mapping[str, Any] = {
    "allow_buffer_reuse": False,
    "cpp.dynamic_threads": True,
    "cpp.simdlen": 1,
    "cpp.threads": 2,  # for one it leaves out "omp single", though its region takes any number
    "cpp.use_two_step_variance_threshold": 1 << 30,
    "cpp.weight_prepack": False,
    "inplace_buffers": False,
}
"""Scalar loops, which g++ vectorises, in place of ``at::vec``; each buffer has one name; no
number of threads; the variance as two plain sums rather than Welford's recurrence."""


_FAST = CleanStyle(fast_math=True)


@dataclass(frozen=True)
class CppSetting:
    """One way to lower and to write."""

    description: str
    style: CleanStyle = _FAST
    patches: Mapping[str, Any] = field(default_factory=dict)
    eager_rounding: bool = True


CPP_SETTINGS: tuple[CppSetting, ...] = (
    CppSetting(
        "exp and tanh by polynomials, serial below 32768 iterations",
        CleanStyle(ParallelStyle(grain=1 << 15), fast_math=True),
        {"cpp.min_chunk_size": 1 << 15},
    ),
    CppSetting(
        "top-k in C++, exp and tanh by polynomials, serial below 32768 iterations",
        CleanStyle(ParallelStyle(grain=1 << 15), fast_math=True, own_topk=True),
        {"cpp.min_chunk_size": 1 << 15},
    ),
    CppSetting("exp and tanh by polynomials"),
    CppSetting("exp and tanh of libm", CleanStyle()),
    CppSetting("masks inside the loops", CleanStyle(fast_math=True, split_masks=False)),
    CppSetting("one loop nest per operator", patches={"max_fusion_size": 1}),
    CppSetting("sums in source order", CleanStyle(ParallelStyle(simd=False))),
    CppSetting("intermediates not rounded to the input type", eager_rounding=False),
)
"""In the order of offer: what is most likely to be fast and faithful first."""


def emit_cpp(request: Request) -> Iterator[Variant | EmissionFailed]:
    """Yield a variant for each setting that gives a program not yielded before.

    A setting that Inductor or the cleaning cannot serve yields the failure instead.

    Raises:
        EmissionFailed: the reference cannot be loaded or traced at all.
    """
    traces = Traces(flat_function(request), DEVICE)
    plan = groups_to_trace(traces, group_workloads(request.workloads, request.varying))
    seen: set[str] = set()
    for setting in CPP_SETTINGS:
        try:
            source = cpp_source(request, traces, plan, setting)
        except (EmissionFailed, Untranslatable) as failure:
            yield EmissionFailed(f"{setting.description}: {failure}")
            continue
        form = normal_form(source)
        if form not in seen:
            seen.add(form)
            yield Variant(source, f"TorchInductor's C++, {setting.description}")


def cpp_source(request: Request, traces: Traces, plan: Sequence[Group], setting: CppSetting) -> str:
    """Return the candidate's source under one setting.

    Raises:
        EmissionFailed: Inductor cannot lower a graph, or leaves it all to library functions.
        Untranslatable: what it generated has no plain counterpart.
    """
    several = len(plan) > 1
    groups = [
        _group(request, traces, g, setting, f"case{n}_" if several else "")
        for n, g in enumerate(plan)
    ]
    functions = [f for g in groups for f in g.piece.functions]
    if not functions:
        raise EmissionFailed("Inductor calls library functions alone here: no loop of its own")
    source = with_prelude("\n".join(f.source for f in functions))
    title = f"{request.candidate_function}: {setting.description}."
    return write_module(request, groups, source, _header(title))


def _group(
    request: Request, traces: Traces, group: Group, setting: CppSetting, prefix: str
) -> GroupCode:
    traced = traces.get(group, eager_rounding=setting.eager_rounding)
    patches = {
        **_SCALAR_LOOPS,
        "emulate_precision_casts": setting.eager_rounding,
        **setting.patches,
    }
    wrapper = read_wrapper(inductor_source(traced, patches))
    symbols = _symbol_names(group, request)
    names = dict(zip(wrapper.arguments, traced.input_names, strict=True))
    names |= {str(traced.symbols[s]): name for s, name in symbols.items()}
    piece = assemble(wrapper, names, setting.style, _operators(traced), prefix)
    # Lowering may have added conditions, so they are read after it.
    return GroupCode(traced, piece, symbols, traces.conditions(traced))


def _operators(traced: TracedGraph) -> frozenset[str]:
    """Names of the ATen operators of the graph, as Inductor puts them into kernel names."""
    found: set[str] = set()
    for node in traced.module.graph.nodes:
        operator = node.meta.get("original_aten", node.target)
        packet = getattr(operator, "_overloadpacket", operator)
        found.add(str(getattr(packet, "__name__", packet)))
    return frozenset(found)


def _symbol_names(group: Group, request: Request) -> dict[str, str]:
    """A name for each symbol of the group: ``rows``, or after the parameter that has it."""
    names: dict[str, str] = {}
    taken = set(request.parameters)
    for tensor in group.tensors:
        for position, dimension in enumerate(tensor.dimensions):
            if dimension.symbol is None or dimension.symbol in names:
                continue
            is_first = position == 0 and "rows" not in taken
            name = "rows" if is_first else f"{tensor.name}_size{position}"
            while name in taken:
                name += "_"
            taken.add(name)
            names[dimension.symbol] = name
    return names


def _header(title: str) -> str:
    return (
        f"{title}\n\nGenerated by TorchInductor of torch {torch.__version__} and cleaned into a\n"
        "standalone module. Indices into tensors are not checked against their bounds.\n"
    )
