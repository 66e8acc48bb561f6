"""``torch.compile`` of a problem against eager, freshly measured, whatever the search finds.

The evaluator times baselines beside a candidate, so the candidate is the reference itself,
under a policy that lets it pass: one correct call that is as fast as eager by construction.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.kernelbench.rows import Ratio
from evaluator.backends import language_of
from evaluator.candidate import BackendName, Candidate
from evaluator.errors import ReferenceFailed
from evaluator.evaluation import Baseline, Environment, Evaluation, Status
from evaluator.problem import LoadedProblem
from evaluator.supervisor import CompiledBaseline, LocalEvaluator
from evolver.errors import MachineTrouble
from policies.model import EvaluatorPolicy

_NO_KERNEL = """
SOURCE = 'extern "C" void nothing() {}'
SIGNATURES = {"nothing": ()}
"""
"""What a native candidate must have, and never calls here."""


@dataclass(frozen=True)
class Baselines:
    """What is known of a problem before anything is searched."""

    compiled: Ratio | None
    """``torch.compile`` over eager; None where it does not compile or could not be timed."""
    degenerate: tuple[str, ...]
    """What the intake probe found that would pass without computing anything."""
    environment: Environment


def measure_baselines(
    loaded: LoadedProblem, backend: BackendName, policy: EvaluatorPolicy
) -> Baselines:
    """Time ``torch.compile`` beside eager.

    Raises:
        ReferenceFailed: the reference does not pass as a candidate of its own.
        MachineTrouble: the machine was disturbed.
        EvaluatorError: the machine or the sandbox fails.
    """
    lax, always = lenient(policy), CompiledBaseline.ALWAYS
    with LocalEvaluator(loaded, backend, policy=lax, compiled=always) as evaluator:
        evaluation = evaluator.screen(reference_as_candidate(loaded, backend))
        _require_ok(evaluation)
        return Baselines(
            compiled=compiled_ratio(evaluation, policy.verdict.faster_threshold),
            degenerate=tuple(
                dict.fromkeys(f.evidence for f in evaluator.intake.flags if f.rule == "degenerate")
            ),
            environment=evaluator.environment(),
        )


def _require_ok(evaluation: Evaluation) -> None:
    """A time that is missing by the machine's fault must not read as one that cannot be had."""
    if evaluation.status.is_candidates_fault:
        raise ReferenceFailed(
            f"the reference does not pass as a candidate of its own: {evaluation.status.value}, "
            f"{evaluation.message}"
        )
    if evaluation.status is not Status.OK:
        raise MachineTrouble(f"the baselines could not be timed: {evaluation.message}")


def compiled_ratio(evaluation: Evaluation, threshold: float) -> Ratio | None:
    """``torch.compile`` over eager, from the reference's own evaluation.

    The reference took its own time beside both; eager's interval, which lies around 1, is the
    noise of the comparison, and ``torch.compile``'s is told against the reference.
    """
    speedup = evaluation.speedup(Baseline.COMPILED)
    if speedup is None:
        return None
    return Ratio.of(speedup, confirmed=False).inverse(threshold)


def reference_as_candidate(loaded: LoadedProblem, backend: BackendName) -> Candidate:
    """The reference under the candidate's name."""
    entry = loaded.problem.entry
    alias = f"\n\n{entry.candidate_function} = {entry.class_name or entry.function}\n"
    native = _NO_KERNEL if language_of(backend).native else ""
    return Candidate.create(
        loaded.reference_source + alias + native, backend=backend, proposer="baseline"
    )


def lenient(policy: EvaluatorPolicy) -> EvaluatorPolicy:
    """``policy`` for a reference: nothing forbidden or counted, nothing derived, full timing."""
    derived = policy.correctness.derived.model_copy(
        update={"shapes": 0, "values": 0, "layouts_tried": 0}
    )
    budget = policy.timing.confirm.model_copy(update={"process_pairs": 1})
    return policy.model_copy(
        update={
            "source": policy.source.model_copy(update={"enforced": False}),
            "census": policy.census.model_copy(update={"enabled": False}),
            "correctness": policy.correctness.model_copy(update={"derived": derived}),
            "timing": policy.timing.model_copy(update={"screen": budget}),
        }
    )
