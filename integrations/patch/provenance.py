"""What a kernel file and a commit say about where they come from and what was measured."""

from __future__ import annotations

from evaluator.candidate import Candidate
from evaluator.evaluation import Baseline, Environment, Evaluation, Speedup, WorkloadTiming
from evaluator.problem import Problem

_BASELINE_NAMES = {Baseline.EAGER: "eager PyTorch", Baseline.COMPILED: "torch.compile"}


def speedup_words(speedup: Speedup) -> str:
    """Such as ``1.83x faster than eager PyTorch (95 % interval 1.80 to 1.86)``."""
    return (
        f"{speedup.value:.2f}x as fast as {_BASELINE_NAMES[speedup.baseline]} "
        f"({speedup.confidence:.0%} interval {speedup.low:.2f} to {speedup.high:.2f})"
    )


def measured_lines(evaluation: Evaluation) -> list[str]:
    """The overall speedups, then one line for each workload."""
    lines = [f"{speedup_words(s)}, geometric mean over the inputs." for s in evaluation.speedups]
    return lines + [_workload_line(timing) for timing in evaluation.timings]


def _workload_line(timing: WorkloadTiming) -> str:
    parts = [f"kernel {timing.candidate_us:.4g} µs"]
    parts += [f"{b.value} {us:.4g} µs" for b, us in timing.baselines_us.items()]
    return f"- {timing.workload}: {', '.join(parts)}"


def environment_words(environment: Environment) -> str:
    """The machine and the versions in one sentence."""
    versions = [f"Python {environment.python}", f"torch {environment.torch}"]
    if environment.triton:
        versions.append(f"triton {environment.triton}")
    if environment.compiler:
        versions.append(environment.compiler)
    if environment.driver:
        versions.append(f"driver {environment.driver}")
    place = f"{environment.machine}, {environment.device}"
    return f"{place}, {environment.threads} threads; {', '.join(versions)}"


def provenance_lines(problem: Problem, candidate: Candidate, evaluation: Evaluation) -> list[str]:
    """Paragraph lines for the kernel file's docstring."""
    return [
        f"Measured ({evaluation.regime.value} time, confirmed in fresh processes):",
        *measured_lines(evaluation),
        f"Machine: {environment_words(evaluation.environment)}.",
        f"Problem {problem.id}, candidate {candidate.id[:12]} by {candidate.proposer};",
        "found and written by ksmith, a bot. Review it as you would any patch.",
    ]


def commit_message(problem: Problem, candidate: Candidate, evaluation: Evaluation) -> str:
    """Subject and body of the commit."""
    qualname = problem.origin.target.rpartition("::")[2]
    eager = evaluation.speedup(Baseline.EAGER)
    subject = f"Add a fused {evaluation.backend.value} kernel for {qualname}"
    if len(subject) > 72:
        subject = f"Add a fused kernel for {qualname.rsplit('.', 1)[-1]}"[:72]
    intro = (
        f"{problem.origin.target} keeps its code as the fallback; the kernel runs only for\n"
        "inputs like those that were tested (see can_use in the kernel file)."
    )
    measured = "\n".join(measured_lines(evaluation)) if eager is not None else "Not timed."
    machine = f"Machine: {environment_words(evaluation.environment)}."
    origin = f"Found and written by ksmith, a bot. Candidate {candidate.id[:12]}."
    return "\n\n".join((subject, intro, measured, machine, origin)) + "\n"
