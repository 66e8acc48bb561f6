"""The file that every benchmark writes under ``benchmarks/results/`` (design.md section 9).

A figure that was not measured is absent, never guessed; a figure carries its unit, its
interval where it has one, the number of samples and the machine it belongs to.
"""

from __future__ import annotations

import os
import shlex
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from pydantic import Field, model_validator

from evaluator.records import Record

RESULTS = Path(__file__).resolve().parent / "results"
COMMIT_VARIABLE = "KSMITH_COMMIT"
"""Names the commit where the code runs from a bundle without its git history."""


class Figure(Record):
    """One measured number."""

    name: str
    value: float
    unit: str
    low: float | None = None
    high: float | None = None
    n: int | None = None
    machine: str
    bar: str | None = None

    @model_validator(mode="after")
    def _value_lies_in_its_interval(self) -> Figure:
        if (
            self.low is not None
            and self.high is not None
            and not self.low <= self.value <= self.high
        ):
            raise ValueError(f"{self.name}: {self.value} outside [{self.low}, {self.high}]")
        return self


class BenchmarkResult(Record):
    """Everything that one benchmark has to say."""

    benchmark: str
    date: str
    command: str
    commit: str
    dirty: bool
    versions: dict[str, str]
    machines: dict[str, dict[str, Any]]
    figures: tuple[Figure, ...]
    details: dict[str, Any] = Field(default_factory=dict)

    @classmethod
    def create(
        cls,
        benchmark: str,
        *,
        figures: list[Figure],
        versions: dict[str, str],
        machines: dict[str, dict[str, Any]],
        details: dict[str, Any],
    ) -> Self:
        """Stamp figures with the date, the command and the commit."""
        commit, dirty = current_commit()
        program = Path(sys.argv[0]).name
        return cls(
            benchmark=benchmark,
            date=datetime.now(UTC).isoformat(timespec="seconds"),
            command=shlex.join([program, *sys.argv[1:]]),
            commit=commit,
            dirty=dirty,
            versions=versions,
            machines=machines,
            figures=tuple(figures),
            details=details,
        )

    def write(self, path: Path) -> None:
        """Write the result whole or not at all."""
        partial = path.with_suffix(".partial")
        partial.write_text(self.model_dump_json(indent=1, exclude_none=True) + "\n")
        os.replace(partial, path)


def current_commit() -> tuple[str, bool]:
    """Return (commit, dirty) of the code that runs; ``unknown`` where nothing tells."""
    named = os.environ.get(COMMIT_VARIABLE)
    if named:
        return named.removesuffix("+dirty"), named.endswith("+dirty")
    import git

    try:
        repository = git.Repo(RESULTS.parent.parent)
    except git.InvalidGitRepositoryError:
        return "unknown", True
    results = RESULTS.relative_to(RESULTS.parent.parent).as_posix()
    changed = repository.git.status("--porcelain", "--", ".", f":!{results}")
    return repository.head.commit.hexsha, bool(changed)


def require_gpu(command: str) -> None:
    """Go on only where there is an NVIDIA GPU.

    Raises:
        BackendUnavailable: there is none; the message names ``command``.
    """
    from evaluator import machine
    from evaluator.errors import BackendUnavailable

    if not machine.gpus():
        raise BackendUnavailable(
            f"{command} needs an NVIDIA GPU and its driver, and nvidia-smi shows none here "
            "(a container: --gpus all)"
        )
