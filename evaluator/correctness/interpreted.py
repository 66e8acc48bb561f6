"""What can be said of a Triton candidate without a GPU: correctness, and what it would take.

The interpreter needs milliseconds per program, so only small workloads are checked; larger
ones are cut along the leading extent that their tensors share, where the reference accepts
that. Recorded launches are then compiled for the backend's target by triton's compiler in a worker
of its own. There is no time in any of this, and no speedup.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from evaluator.backends import KernelTarget
from evaluator.candidate import Candidate
from evaluator.client import Client
from evaluator.correctness.reference import Reference, candidate_call
from evaluator.errors import ReferenceFailed
from evaluator.evaluation import Flag, KernelResources, Severity
from evaluator.problem import Problem
from evaluator.workload import TensorSpec, Workload
from policies.model import CorrectnessPolicy, EvaluatorPolicy


def interpretable_workloads(
    reference: Reference, policy: CorrectnessPolicy, seed: int
) -> tuple[list[Workload], list[Flag]]:
    """Return workloads small enough for the interpreter, and what was left out or cut."""
    kept: list[Workload] = []
    notes: list[str] = []
    for workload in reference.problem.workloads:
        if _elements(workload) <= policy.interpreted_elements:
            kept.append(workload)
            continue
        smaller = shrink(workload, policy.interpreted_leading_extent)
        if smaller is None or not _accepted(reference, smaller, seed, policy):
            notes.append(f"{_shown(workload)} is too large for the interpreter and was not checked")
            continue
        kept.append(smaller)
        notes.append(f"{_shown(workload)} was checked with its leading extent cut")
    if not kept:
        kept = [min(reference.problem.workloads, key=_elements)]
        notes.append(f"{_shown(kept[0])} was checked although it is large")
    flags = [Flag(rule="interpreted", severity=Severity.NOTE, evidence=note) for note in notes]
    return kept, flags


def shrink(workload: Workload, extent: int) -> Workload | None:
    """Cut the leading extent that most tensors share to ``extent``; None where there is none.

    An extent that a scalar argument repeats is left alone: the two must agree.
    """
    leading = Counter(t.shape[0] for t in workload.tensors.values() if t.shape)
    scalars = {s for s in workload.scalars.values() if isinstance(s, int)}
    common = [e for e, _ in leading.most_common() if e > extent and e not in scalars]
    if not common:
        return None
    cut = {name: _cut(spec, common[0], extent) for name, spec in workload.tensors.items()}
    return workload.model_copy(update={"arguments": {**workload.arguments, **cut}})


def compile_resources(
    client: Client,
    candidate: Candidate,
    problem: Problem,
    launches: Sequence[dict[str, object]],
    target: KernelTarget,
    policy: EvaluatorPolicy,
) -> tuple[KernelResources, ...]:
    """Compile what the interpreter saw launched, for a device that need not be here.

    Raises:
        RequestFailed, WorkerLost: the kernel does not compile, or the worker fails.
    """
    limits = policy.limits
    client.session.ready(limits.start_seconds)
    client.load(candidate.source, candidate_call(problem), seconds=limits.import_seconds)
    return client.compile_kernels(
        launches, target=target, seconds=limits.compile_seconds * max(1, len(launches))
    )


def _accepted(
    reference: Reference, workload: Workload, seed: int, policy: CorrectnessPolicy
) -> bool:
    if _elements(workload) > policy.interpreted_elements:
        return False
    try:
        reference.expected(workload, seed)
    except ReferenceFailed:
        return False
    return True


def _cut(spec: TensorSpec, old: int, new: int) -> TensorSpec:
    if not spec.shape or spec.shape[0] != old:
        return spec
    return spec.model_copy(update={"shape": (new, *spec.shape[1:])})


def _elements(workload: Workload) -> int:
    return sum(t.numel for t in workload.tensors.values())


def _shown(workload: Workload) -> str:
    return "a held-out workload" if workload.held_out else f"workload {workload.name}"
