"""Which exit code each expected exception means; one table for all commands."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What a command's exit status says (design.md section 8)."""

    DONE = 0
    NO = 1
    WRONG_USE = 2
    MACHINE_CANNOT = 3
    INTERRUPTED = 130


def exit_code_of(error: Exception) -> ExitCode | None:
    """Return the exit code for an expected failure, None for a bug."""
    from evaluator.errors import (
        BackendUnavailable,
        EvaluatorError,
        ProblemError,
        ReferenceFailed,
        SandboxUnavailable,
    )
    from evolver.errors import MachineTrouble, RunDamaged, RunUnwritable, SearchError
    from integrations.errors import IntegrationError, ProblemUnwritable, Refused
    from integrations.patch.errors import BranchExists, PatchError, RepositoryUnfit

    table: list[tuple[type[Exception], ExitCode]] = [
        (SandboxUnavailable, ExitCode.MACHINE_CANNOT),
        (BackendUnavailable, ExitCode.MACHINE_CANNOT),
        (ProblemError, ExitCode.WRONG_USE),
        (ReferenceFailed, ExitCode.NO),
        (EvaluatorError, ExitCode.MACHINE_CANNOT),
        (RunUnwritable, ExitCode.MACHINE_CANNOT),
        (RunDamaged, ExitCode.MACHINE_CANNOT),
        (MachineTrouble, ExitCode.MACHINE_CANNOT),
        (SearchError, ExitCode.WRONG_USE),
        (RepositoryUnfit, ExitCode.WRONG_USE),
        (BranchExists, ExitCode.WRONG_USE),
        (PatchError, ExitCode.NO),
        (Refused, ExitCode.NO),
        (ProblemUnwritable, ExitCode.MACHINE_CANNOT),
        (IntegrationError, ExitCode.WRONG_USE),
    ]
    return next((code for kind, code in table if isinstance(error, kind)), None)
