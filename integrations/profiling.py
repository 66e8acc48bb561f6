"""Traces of a repository's own command, recorded from outside (``integrations/injection.py``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import NonNegativeInt

from evaluator.records import Record
from integrations.errors import IntegrationError
from integrations.injection import CommandEnd, is_ours, run_here, run_in_sandbox


class ProfileFailed(IntegrationError):
    """The command left no trace; the message says what happened instead."""


@dataclass(frozen=True)
class ProfileSettings:
    """What to record."""

    warmup: int = 3
    steps: int = 3
    step: str = ""
    """``path/to/file.py::qualname`` of the step; outermost module calls where empty."""
    own: bool = False
    """The command profiles itself; stacks and shapes are added to that."""

    def environment(self, out: str) -> dict[str, str]:
        """Variables for the command's processes, which write to the folder ``out``."""
        return {
            "KSMITH_PROFILE_OUT": out,
            "KSMITH_PROFILE_WARMUP": str(self.warmup),
            "KSMITH_PROFILE_STEPS": str(self.steps),
            "KSMITH_PROFILE_STEP": self.step,
            "KSMITH_PROFILE_OWN": "1" if self.own else "0",
        }


class ProcessReport(Record):
    """What one process of the command did, as it says itself."""

    pid: int
    argv: tuple[str, ...]
    seen: NonNegativeInt
    recorded: NonNegativeInt
    trace: str | None
    error: str | None


class ProfileResult(Record):
    """Traces, and the processes that wrote them."""

    command: tuple[str, ...]
    status: int | None
    """Exit status of the command."""
    seconds: float
    traces: tuple[Path, ...]
    processes: tuple[ProcessReport, ...]


def profile_in_sandbox(
    repository: Path,
    command: Sequence[str],
    settings: ProfileSettings,
    output: Path,
    *,
    seconds: float,
    threads: int,
    gpu: bool,
) -> ProfileResult:
    """Run ``command`` on a copy of HEAD inside the sandbox.

    Raises:
        RepositoryUnfit: it is no git repository.
        SandboxUnavailable: nothing is run without a sandbox.
        ProfileFailed: there is no trace.
        NotRun: what came out of the sandbox makes no sense.
        WorkerLost: the sandbox died.
    """
    if settings.own:
        raise ProfileFailed("a command that profiles itself keeps its trace; use --no-sandbox")
    _prepare(output)
    end = run_in_sandbox(
        repository,
        command,
        settings.environment,
        output,
        seconds=seconds,
        threads=threads,
        gpu=gpu,
    )
    return _result(end, output)


def profile_here(
    repository: Path, command: Sequence[str], settings: ProfileSettings, output: Path
) -> ProfileResult:
    """Run ``command`` in ``repository`` with the user's own environment and rights.

    Raises:
        NotRun: it cannot be started.
        ProfileFailed: there is no trace.
    """
    _prepare(output)
    end = run_here(repository, command, settings.environment, output)
    return _result(end, output, settings.own)


def _prepare(output: Path) -> None:
    output.mkdir(parents=True, exist_ok=True)
    for left in output.glob("*.status"):  # by a recording that was stopped
        left.unlink()


def _result(end: CommandEnd, output: Path, own: bool = False) -> ProfileResult:
    processes = []
    for path in sorted(output.glob("*.status")):
        try:
            processes.append(ProcessReport.model_validate_json(path.read_bytes()))
        except ValueError as error:
            raise ProfileFailed(f"{path} is not readable: {error}") from error
        path.unlink()
    names = [p.trace for p in processes if p.trace]
    traces = tuple(output / n for n in names if is_ours(n) and (output / n).is_file())
    if not traces and not own:
        raise ProfileFailed(_why(end, processes))
    return ProfileResult(
        command=end.command,
        status=end.status,
        seconds=end.seconds,
        traces=traces,
        processes=tuple(processes),
    )


def _why(end: CommandEnd, processes: list[ProcessReport]) -> str:
    errors = [p.error for p in processes if p.error]
    if errors:
        return f"{end.told}, and nothing was recorded: {errors[0]}{end.tail}"
    if not processes:
        return f"{end.told}, and no Python process of it imported torch{end.tail}"
    most = max(p.seen for p in processes)
    return (
        f"{end.told} after {most} steps, and the warm-up was not over: lower --warmup, let it "
        f"run longer, or name a function that it imports and calls with --step{end.tail}"
    )
