"""Emitters: from row programs and a genome's plans to the source of a candidate, purely.

A kernel is written by demand from what it stores (``cpp_values.py``, ``triton_values.py``):
moves are folded into places (``places.py``), what elements meet in becomes a stage. Whatever
cannot be written is an ``EmitError`` that says what and why; nothing is written that may be
wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from evaluator.candidate import BackendName
from evaluator.problem import LoadedProblem
from evolver.proposers.compiler.constructed import as_candidate, emitted_function
from evolver.proposers.synth.aten import AtenGroup
from evolver.proposers.synth.emit.cpp import cpp_module
from evolver.proposers.synth.emit.dispatch import Variant
from evolver.proposers.synth.emit.reference import Reference
from evolver.proposers.synth.emit.scopes import EmitError
from evolver.proposers.synth.emit.triton import triton_module
from evolver.proposers.synth.plan import Plan

__all__ = ["EMITTERS", "EmitError", "Variant", "emit", "emit_source"]

Emitter = Callable[[Sequence[Variant], Reference], str]

EMITTERS: Mapping[BackendName, Emitter] = {
    BackendName.CPP: cpp_module,
    BackendName.TRITON: triton_module,
}
"""By backend: from one variant per group of workloads to a module."""


def emit(
    loaded: LoadedProblem, variants: Sequence[tuple[AtenGroup | None, Plan]], backend: BackendName
) -> str:
    """Return the source of a candidate for ``loaded``.

    Args:
        loaded: the problem; its reference gives names and comments.
        variants: the plan of each group of workloads, and the group; None where there is one.
        backend: what to write in.

    Raises:
        EmitError: the backend has no emitter, or something of a plan cannot be written in it.
    """
    problem = loaded.problem
    reference = Reference(loaded.reference_source, problem.parameters, emitted_function(problem))
    made = [Variant(plan, group) for group, plan in variants]
    return as_candidate(emit_source(made, reference, backend), problem)


def emit_source(variants: Sequence[Variant], reference: Reference, backend: BackendName) -> str:
    """Return a module with ``reference.function``.

    Raises:
        EmitError: as for ``emit``.
    """
    emitter = EMITTERS.get(backend)
    if emitter is None:
        raise EmitError(f"synth writes no {backend}; it writes {', '.join(sorted(EMITTERS))}")
    return emitter(variants, reference)
