"""Which exit code each expected exception means, and how a failure is told; for all commands."""

from __future__ import annotations

import errno
import json
import shutil
import sys
import traceback
from enum import IntEnum


class ExitCode(IntEnum):
    """What a command's exit status says (design.md section 8)."""

    DONE = 0
    NO = 1
    WRONG_USE = 2
    MACHINE_CANNOT = 3
    INTERRUPTED = 130


class Interrupted(Exception):
    """The user stopped a command that can be continued; the message says how."""


_REMEDIES = {
    errno.ENOSPC: "free some space there, then run it again",
    errno.EDQUOT: "free some of your quota there, then run it again",
    errno.EACCES: "mend the permissions, or name another place",
    errno.EPERM: "mend the permissions, or name another place",
    errno.EROFS: "name a place that can be written",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.EMFILE: "raise the limit on open files (`ulimit -n`)",
    errno.ENOMEM: "free some memory, then run it again",
}


def exit_code_of(error: Exception) -> ExitCode | None:
    """Return the exit code for an expected failure, None for a bug."""
    from evaluator.errors import (
        BackendUnavailable,
        EvaluatorError,
        ProblemError,
        ReferenceFailed,
        SandboxUnavailable,
    )
    from evolver.errors import (
        LibraryUnusable,
        LlmUnavailable,
        MachineTrouble,
        RunDamaged,
        RunUnwritable,
        SearchError,
    )
    from integrations.capture.seen import CaptureFailed
    from integrations.errors import IntegrationError, ProblemUnwritable, Refused
    from integrations.patch.errors import (
        BranchExists,
        BranchNameInvalid,
        PatchError,
        RepositoryUnfit,
    )

    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        return ExitCode.WRONG_USE
    table: list[tuple[type[Exception], ExitCode]] = [
        (SandboxUnavailable, ExitCode.MACHINE_CANNOT),
        (BackendUnavailable, ExitCode.MACHINE_CANNOT),
        (ProblemError, ExitCode.WRONG_USE),
        (ReferenceFailed, ExitCode.NO),
        (EvaluatorError, ExitCode.MACHINE_CANNOT),
        (RunUnwritable, ExitCode.MACHINE_CANNOT),
        (RunDamaged, ExitCode.MACHINE_CANNOT),
        (MachineTrouble, ExitCode.MACHINE_CANNOT),
        (LlmUnavailable, ExitCode.MACHINE_CANNOT),
        (LibraryUnusable, ExitCode.MACHINE_CANNOT),
        (SearchError, ExitCode.WRONG_USE),
        (RepositoryUnfit, ExitCode.WRONG_USE),
        (BranchExists, ExitCode.WRONG_USE),
        (BranchNameInvalid, ExitCode.WRONG_USE),
        (PatchError, ExitCode.NO),
        (Refused, ExitCode.NO),
        (CaptureFailed, ExitCode.NO),
        (ProblemUnwritable, ExitCode.MACHINE_CANNOT),
        (IntegrationError, ExitCode.WRONG_USE),
        (Interrupted, ExitCode.INTERRUPTED),
        (OSError, ExitCode.MACHINE_CANNOT),
    ]
    return next((code for kind, code in table if isinstance(error, kind)), None)


def tell_failure(error: Exception, *, as_json: bool) -> int:
    """Print what went wrong for people and, where asked, for machines; return the exit code.

    People read one message on standard error; a bug shows its traceback there. Machines
    read ``{"error": ..., "exit_code": ...}`` on standard output.
    """
    if hasattr(error, "format_message"):  # Typer's own: wrong use of the command line
        message, code = error.format_message(), int(getattr(error, "exit_code", 2))
        error.show()  # type: ignore[attr-defined]
    else:
        message, code = _message_and_code(error)
        print(f"ksmith: {message}", file=sys.stderr)
    if as_json:
        print(json.dumps({"error": message, "exit_code": code}))
    return code


def _message_and_code(error: Exception) -> tuple[str, int]:
    if isinstance(error, Interrupted):
        return str(error), ExitCode.INTERRUPTED  # at once: a second Ctrl-C may follow
    code = exit_code_of(error)
    if code is None:
        traceback.print_exception(error)
        message = f"a bug of ksmith, please report it: {type(error).__name__}: {error}"
        return message, ExitCode.MACHINE_CANNOT
    return _system_message(error) if isinstance(error, OSError) else str(error), code


def _system_message(error: OSError) -> str:
    """Return ``[Errno 28] ...`` as a sentence with the place and the remedy."""
    if isinstance(error, shutil.Error):  # of a copied folder: a list of (from, to, reason)
        return str(error.args[0][0][-1]) if error.args and error.args[0] else "a copy failed"
    place = f": {error.filename}" if error.filename is not None else ""
    remedy = _REMEDIES.get(error.errno or 0)
    return f"{error.strerror or error}{place}" + (f"; {remedy}" if remedy else "")
