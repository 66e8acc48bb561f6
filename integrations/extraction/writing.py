"""Writing a problem: whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from evaluator.problem import PROBLEM_FILE, REFERENCE_FILE, Problem
from integrations.errors import OutputExists, ProblemUnwritable


def check_destination(directory: Path, *, force: bool) -> None:
    """Refuse a destination that may not be replaced, before any work is done.

    Raises:
        OutputExists: it is a file, or a folder that is not empty and ``force`` is not given,
            or a folder that does not look like a problem although ``force`` is given.
    """
    if not directory.exists():
        return
    if not directory.is_dir():
        raise OutputExists(f"{directory} is a file; name a folder with -o")
    if not any(directory.iterdir()):
        return
    if not force:
        raise OutputExists(f"{directory} is not empty; use --force to replace it, or another -o")
    if not (directory / PROBLEM_FILE).is_file():
        raise OutputExists(f"{directory} holds no {PROBLEM_FILE}; --force replaces problems alone")


def write_problem(directory: Path, problem: Problem, source: str) -> None:
    """Write both files beside ``directory``, then rename into place.

    Raises:
        ProblemUnwritable: the disk is full or the place cannot be written; nothing is left.
    """
    try:
        _write(directory, problem, source)
    except OSError as error:
        raise ProblemUnwritable(
            f"{directory} cannot be written: {error.strerror or error}; nothing was left behind. "
            "Free some space, or name another folder with -o"
        ) from error


def _write(directory: Path, problem: Problem, source: str) -> None:
    directory.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", dir=directory.parent))
    try:
        (staging / REFERENCE_FILE).write_text(source, encoding="utf-8")
        (staging / PROBLEM_FILE).write_text(problem.to_yaml(), encoding="utf-8")
        staging.chmod(0o755)
        _swap(staging, directory)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _swap(staging: Path, directory: Path) -> None:
    if not directory.exists():
        os.rename(staging, directory)
        return
    aside = staging.with_name(staging.name + ".old")
    os.rename(directory, aside)
    try:
        os.rename(staging, directory)
    except OSError:
        os.rename(aside, directory)
        raise
    shutil.rmtree(aside)
