"""The ``cpp`` half of the compiler proposer: traced graphs to standalone C++ candidates.

Each setting lowers every graph with TorchInductor's CPU backend in its scalar form, cleans
what it generates and writes one module whose entry picks the graph that fits its arguments.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from .cpp_entry import GroupCode, conditions_of, write_entry
from .cpp_expression import Untranslatable
from .cpp_module import Piece, assemble
from .cpp_prelude import with_prelude
from .cpp_reductions import ParallelStyle
from .cpp_source import CleanStyle
from .cpp_wrapper import read_wrapper
from .emission import inductor_source
from .settings import COMMON, known_patches
from .tracing import TracedGraph
from .workloads import EmissionFailed, Request, Variant

_SCALAR_LOOPS: Mapping[str, Any] = {
    **COMMON,
    "allow_buffer_reuse": False,
    "cpp.dynamic_threads": True,
    "cpp.simdlen": 1,
    "cpp.use_two_step_variance_threshold": 1 << 30,
    "cpp.weight_prepack": False,
    "freezing": False,
    "inplace_buffers": False,
}
"""Scalar loops, which g++ vectorises, in place of ``at::vec``; every buffer under one name."""


@dataclass(frozen=True)
class CppSetting:
    """One way to lower and to write."""

    description: str
    style: CleanStyle
    patches: Mapping[str, Any] = field(default_factory=dict)


_SIMD = ParallelStyle()
_GRAIN = ParallelStyle(grain=1 << 15)

CPP_SETTINGS: tuple[CppSetting, ...] = (
    CppSetting("vectorised loops, polynomial exp and tanh", CleanStyle(_SIMD, fast_math=True)),
    CppSetting("vectorised loops", CleanStyle(_SIMD)),
    CppSetting(
        "serial below 32768 iterations",
        CleanStyle(_GRAIN, fast_math=True),
        {"cpp.min_chunk_size": 1 << 14},
    ),
    CppSetting("sums in source order", CleanStyle(ParallelStyle(simd=False))),
    CppSetting(
        "one loop nest per operator",
        CleanStyle(_SIMD, fast_math=True),
        {"max_fusion_size": 1},
    ),
    CppSetting(
        "intermediates not rounded to the input type",
        CleanStyle(_SIMD, fast_math=True),
        {"emulate_precision_casts": False},
    ),
)
"""In the order of offer."""


def cpp_variants(
    request: Request,
    traces: Sequence[TracedGraph],
    settings: Sequence[CppSetting] = CPP_SETTINGS,
) -> Iterator[Variant]:
    """Yield one module per setting that gives a module of its own.

    ``traces`` has one graph per group of workloads, traced for the CPU.

    Raises:
        EmissionFailed: no setting gave a module; the message has the first reason.
    """
    seen: set[str] = set()
    failures: list[str] = []
    for setting in settings:
        try:
            source = emit_cpp(request, traces, setting)
        except (EmissionFailed, Untranslatable) as failure:
            failures.append(f"{setting.description}: {failure}")
            continue
        body = source.split('"""', 2)[2]
        if body not in seen:
            seen.add(body)
            yield Variant(source, setting.description)
    if not seen:
        raise EmissionFailed(f"no C++ could be made: {failures[0]}")


def emit_cpp(request: Request, traces: Sequence[TracedGraph], setting: CppSetting) -> str:
    """Return the candidate's source under one setting.

    Raises:
        EmissionFailed: Inductor cannot lower a graph.
        Untranslatable: what it generated has no plain counterpart.
    """
    groups: list[GroupCode] = []
    for number, traced in enumerate(traces):
        prefix = f"case{number}_" if len(traces) > 1 else ""
        groups.append(_group(traced, request, setting, prefix))
    functions = [f for g in groups for f in g.piece.functions]
    source = with_prelude("\n".join(f.source for f in functions)) if functions else ""
    return write_entry(request, groups, source, _header(setting))


def _group(
    traced: TracedGraph, request: Request, setting: CppSetting, prefix: str
) -> GroupCode:
    from torch._inductor import config

    patches = known_patches({**_SCALAR_LOOPS, **setting.patches}, config)
    _name_operators(traced)
    wrapper = read_wrapper(inductor_source(traced, patches))
    symbols = _symbol_names(traced, request)
    names = dict(zip(wrapper.arguments, traced.input_names, strict=True))
    generated = {str(traced.symbols[s]): name for s, name in symbols.items()}
    piece: Piece = assemble(wrapper, {**names, **generated}, setting.style, prefix)
    return GroupCode(traced, piece, symbols, conditions_of(traced, symbols))


def _name_operators(traced: TracedGraph) -> None:
    """Tell Inductor which operator each node is, so that kernels get telling names."""
    for node in traced.module.graph.nodes:
        if node.op == "call_function":
            node.meta.setdefault("original_aten", node.target)


def _symbol_names(traced: TracedGraph, request: Request) -> dict[str, str]:
    """A name for each symbol of the group: ``rows``, or after the parameter that has it."""
    names: dict[str, str] = {}
    taken = set(request.parameters)
    for tensor in traced.group.tensors:
        for position, dimension in enumerate(tensor.dimensions):
            if dimension.symbol is None or dimension.symbol in names:
                continue
            plain = "rows" if position == 0 and "rows" not in names.values() else ""
            name = plain or f"{tensor.name}_size{position}"
            while name in taken:
                name += "_"
            taken.add(name)
            names[dimension.symbol] = name
    return names


def _header(setting: CppSetting) -> str:
    return (
        f"C++ loops from TorchInductor (torch {torch.__version__}), cleaned by ksmith.\n\n"
        f"Setting: {setting.description}. Bounds of indices are not checked.\n"
    )
