"""What a model is told about an attempt: the evaluation without what is secret. Pure.

Held-out and derived workloads never appear: no name, no shape, no time, no error. What a
candidate printed while one of them ran could tell of it, so the log is shown only of an
attempt that failed before.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from evaluator.evaluation import Baseline, Evaluation, KernelResources, Speedup
from evaluator.problem import Problem
from evaluator.workload import TensorSpec, Workload
from evolver.proposers.base import Attempt
from evolver.proposers.llm.bottleneck import Bound, bound_of

LOG_CHARACTERS = 3000


@dataclass(frozen=True)
class WorkloadFeedback:
    """One shown workload: its times, or why it failed and where."""

    name: str
    passed: bool
    reason: str | None = None
    errors: tuple[str, ...] = ()
    candidate_us: float | None = None
    baseline_us: float | None = None
    bound: Bound | None = None
    """How near it comes to what the device can do, where it was timed."""


@dataclass(frozen=True)
class Feedback:
    """One attempt, as a prompt shows it."""

    source: str
    description: str
    status: str
    message: str
    speedup: Speedup | None
    workloads: tuple[WorkloadFeedback, ...]
    resources: tuple[KernelResources, ...]
    log: str

    def without_log(self) -> Feedback:
        """Return it shortened."""
        return replace(self, log="")


def feedback_on(attempt: Attempt, problem: Problem) -> Feedback:
    """Return what may be told about ``attempt``."""
    evaluation = attempt.evaluation
    return Feedback(
        source=attempt.candidate.source,
        description=attempt.candidate.description,
        status=evaluation.status.value,
        message=_discreet(evaluation.message, problem),
        speedup=evaluation.speedup(),
        workloads=_workloads(evaluation, problem),
        resources=evaluation.resources,
        log=_log(evaluation, problem),
    )


def shown_workloads(problem: Problem) -> tuple[Workload, ...]:
    """Return the workloads that proposers may see."""
    return tuple(w for w in problem.workloads if not w.held_out)


def signature_of(spec: object) -> str:
    """Return an argument in a few characters: ``float32[32, 256]``, or the value itself."""
    if not isinstance(spec, TensorSpec):
        return repr(spec)
    strides = f" strides {list(spec.strides)}" if spec.strides is not None else ""
    return f"{spec.dtype.value}{list(spec.shape)}{strides}"


def _workloads(evaluation: Evaluation, problem: Problem) -> tuple[WorkloadFeedback, ...]:
    found = []
    for workload in shown_workloads(problem):
        name = workload.name
        judged = next((c for c in evaluation.correctness if c.workload == name), None)
        timing = next((t for t in evaluation.timings if t.workload == name), None)
        if judged is None:
            continue
        found.append(
            WorkloadFeedback(
                name=name,
                passed=judged.passed,
                reason=judged.reason,
                errors=tuple(
                    f"{e.name}: largest error {e.max_abs_error:.3g} absolute, "
                    f"{e.max_rel_error:.3g} relative, {e.budget_used:.3g} times what is allowed"
                    + (f", at index {list(e.worst_index)}" if e.worst_index is not None else "")
                    for e in judged.errors
                    if not judged.passed
                ),
                candidate_us=timing.candidate_us if timing else None,
                baseline_us=timing.baselines_us.get(Baseline.EAGER) if timing else None,
                bound=bound_of(evaluation, timing, workload) if timing else None,
            )
        )
    return tuple(found)


def _log(evaluation: Evaluation, problem: Problem) -> str:
    passed = {c.workload for c in evaluation.correctness if c.passed}
    secrets_ran = passed >= {w.name for w in shown_workloads(problem)}
    return "" if secrets_ran else evaluation.log_tail[-LOG_CHARACTERS:].strip()


def _discreet(message: str, problem: Problem) -> str:
    """Return the message, but of one about a held-out workload that it failed there."""
    for workload in problem.workloads:
        named = rf"\bworkload ['\"]?{re.escape(workload.name)}(?![\w.-])"
        if workload.held_out and re.search(named, message):
            return "it failed on a held-out workload"
    return message
