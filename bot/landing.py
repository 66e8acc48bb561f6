"""From a run to a branch that the repository itself has judged: the last stages of the path.

``pipeline.py`` ends with a run directory; these stages read it, meet the repository and
write what they found beside it. Nothing here prints or exits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from evaluator.candidate import BackendName
from evaluator.evaluation import DeepCheck
from evaluator.problem import Problem
from evaluator.workload import TensorSpec
from evolver.run import Run, StoredAttempt
from integrations.patch import IntegrationResult, PatchError, integrate
from integrations.verify import Verification, verify


def deep_stage(
    run_path: Path, *, progress: Callable[[str], None] = lambda _: None
) -> tuple[DeepCheck, ...]:
    """Run the run's confirmed winner under its backend's memory checkers.

    Writes ``deep.json``, the confirmation with what they said, into the run.

    Raises:
        SearchError: there is no such run.
        PatchError: there is no winner, or a checker found a wrong access or a race.
        EvaluatorError: the sandbox, the backend or the reference fails.
    """
    from evaluator.supervisor import CompiledBaseline, LocalEvaluator

    with Run.open(run_path) as run:
        best, loaded = _winner(run), run.loaded
    with LocalEvaluator(
        loaded, best.candidate.backend, compiled=CompiledBaseline.NEVER, progress=progress
    ) as evaluator:
        checked = evaluator.check_deeply(best.candidate, best.evaluation)
    report = run_path / "deep.json"
    report.write_text(checked.model_dump_json(indent=2), encoding="utf-8")
    if checked.status is not best.evaluation.status:
        raise PatchError(f"the winner must not land: {checked.message} (whole: {report})")
    return checked.deep


def integrate_stage(
    run_path: Path, repository: Path, *, branch: str | None = None, replace: bool = False
) -> IntegrationResult:
    """Commit the run's confirmed winner to a new branch of ``repository``.

    Writes ``integration/result.json`` and ``integration/change.diff`` into the run.

    Raises:
        SearchError: there is no such run.
        IntegrationError: there is no winner, or the repository cannot take it.
    """
    with Run.open(run_path) as run:
        best = _winner(run)
        result = integrate(
            run.loaded,
            best.candidate,
            best.evaluation,
            repository,
            branch=branch,
            replace=replace,
            reextract=reference_now,
        )
    result.save(run_path)
    return result


def _winner(run: Run) -> StoredAttempt:
    best = run.best()
    if best is None:
        raise PatchError(
            f"{run.path} has no confirmed winner, so there is nothing to integrate: "
            f"{run.summary().message}; search on with `ksmith optimize ... --resume`"
        )
    return best


def reference_now(problem: Problem, repository: Path) -> str:
    """Extract the problem's target again, statically, and return the reference's source.

    Raises:
        IntegrationError: it cannot be found or extracted any more.
    """
    from integrations.extraction.folding import SOME_TENSOR
    from integrations.extraction.pipeline import extract_source

    known: dict[str, object] = {}
    for name in problem.parameters:
        values = [w.arguments[name] for w in problem.workloads]
        key = f"self.{name}" if name in problem.state else name
        if all(isinstance(v, TensorSpec) for v in values):
            known[key] = SOME_TENSOR
        elif all(type(v) is type(values[0]) and v == values[0] for v in values):
            known[key] = values[0]
    return extract_source(problem.origin.target, repository, known=known).source


def verify_stage(
    run_path: Path,
    repository: Path,
    *,
    latency_command: Sequence[str] = (),
    rounds: int = 8,
    latency_seconds: float = 900.0,
    whole_suite: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> Verification:
    """Run the repository's tests and latency command on the run's branch and on its base.

    Writes ``integration/verification.json`` into the run. The commands get as many threads
    as the winner was measured with.

    Raises:
        SearchError: there is no such run.
        IntegrationError: the run was not integrated, or its commits are not in ``repository``.
        EvaluatorError: there is no sandbox, or it died.
    """
    with Run.open(run_path) as run:
        best = run.best()
        threads = best.evaluation.environment.threads if best else 1
        gpu = run.config.backend is BackendName.TRITON
    verification = verify(
        IntegrationResult.load(run_path),
        repository,
        latency_command=latency_command,
        rounds=rounds,
        latency_seconds=latency_seconds,
        threads=max(threads, 1),
        whole_suite=whole_suite,
        gpu=gpu,
        progress=progress,
    )
    verification.save(run_path)
    return verification
