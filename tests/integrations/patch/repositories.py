"""Git repositories for tests, small and real."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from evaluator.candidate import BackendName, Candidate
from evaluator.evaluation import Evaluation
from evaluator.problem import LoadedProblem, Origin
from tests.builders import make_candidate, make_evaluation, make_problem

IDENTITY = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "Somebody"), ("EMAIL", "somebody@example.org"))
}

NORM_FILE = '''\
# Copyright (c) Somebody.
"""Norms."""
import torch

from . import shapes


def rms_norm(x, residual, weight, eps=1e-6):
    """Add, then normalise."""

    # The sum is the next residual.
    x = x + residual
    residual = x
    variance = x.to(torch.float32).pow(2).mean(dim=-1, keepdim=True)
    x = (x.to(torch.float32) * torch.rsqrt(variance + eps)).to(residual.dtype)
    return x * weight, residual
'''
ENGINE: dict[str, str | bytes] = {
    "engine/__init__.py": "",
    "engine/shapes.py": "",
    "engine/ops.py": NORM_FILE,
    "tests/test_ops.py": (
        "from engine.ops import rms_norm\n\n\ndef test_ok():\n    assert rms_norm\n"
    ),
}


def git(folder: Path, *arguments: str) -> str:
    """Run git and return what it printed, without the last newline."""
    done = subprocess.run(
        ["git", *arguments],
        cwd=folder,
        env={**os.environ, **IDENTITY},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.rstrip("\n")


def make_repository(folder: Path, files: Mapping[str, str | bytes] = ENGINE) -> Path:
    """A repository with one commit of ``files`` on the branch ``main``."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    git(folder, "init", "-q", "-b", "main")
    git(folder, "config", "core.autocrlf", "false")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "Begin")
    return folder


def winner_for(
    target: str = "engine/ops.py::rms_norm", name: str = "rms_norm", source: str | None = None
) -> tuple[LoadedProblem, Candidate, Evaluation]:
    """A sample problem with ``target``, a candidate and its confirmed evaluation."""
    loaded = make_problem(name, origin=Origin(repository="example/engine", target=target))
    candidate = make_candidate() if source is None else make_candidate(source)
    return loaded, candidate, confirmed(loaded, candidate)


def confirmed(loaded: LoadedProblem, candidate: Candidate) -> Evaluation:
    """An evaluation that says ``faster``."""
    return make_evaluation(candidate, problem=loaded.problem, confirmed=True)


def triton_winner(source: str) -> tuple[LoadedProblem, Candidate, Evaluation]:
    """As ``winner_for``, with a Triton candidate."""
    loaded = make_problem(
        origin=Origin(repository="example/engine", target="engine/ops.py::rms_norm")
    )
    candidate = make_candidate(source, backend=BackendName.TRITON)
    return loaded, candidate, confirmed(loaded, candidate)
