"""From a run to a branch that the repository itself has judged: the last stages of the path.

``pipeline.py`` ends with a run directory; these stages read it, meet the repository and
write what they found beside it. Nothing here prints or exits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from evaluator.candidate import BackendName
from evolver.run import Run
from integrations.patch import IntegrationResult, PatchError, integrate
from integrations.verify import Verification, verify


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
        best = run.best()
        if best is None:
            raise PatchError(
                f"{run_path} has no confirmed winner, so there is nothing to integrate: "
                f"{run.summary().message}; search on with `ksmith optimize ... --resume`"
            )
        result = integrate(
            run.loaded,
            best.candidate,
            best.evaluation,
            repository,
            branch=branch,
            replace=replace,
        )
    result.save(run_path)
    return result


def verify_stage(
    run_path: Path,
    repository: Path,
    *,
    latency_command: Sequence[str] = (),
    rounds: int = 8,
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
        threads=max(threads, 1),
        whole_suite=whole_suite,
        gpu=gpu,
        progress=progress,
    )
    verification.save(run_path)
    return verification
