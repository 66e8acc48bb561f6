"""Recording a repository's command from outside: steps, folders and what is said of failure."""

from __future__ import annotations

import base64
import importlib
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from integrations.injection import NotRun
from integrations.probe.packing import pack
from integrations.probe.startup import sitecustomize
from integrations.profiling import (
    ProfileFailed,
    ProfileSettings,
    profile_here,
    profile_in_sandbox,
)
from integrations.traces.ranking import rank_traces

MODEL = """import torch
from torch import nn


class Norm(nn.Module):
    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.linear = Norm(), nn.Linear(32, 32)

    def forward(self, x):
        return x + self.linear(self.norm(x))


model = nn.Sequential(Block(), Block())


def step(x):
    return model(x)
"""
LOOP = """import torch
from engine.model import step

for _ in range(8):
    step(torch.ones(4, 32))
"""


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    root = tmp_path / "repo"
    (root / "engine").mkdir(parents=True)
    (root / "engine/__init__.py").touch()
    (root / "engine/model.py").write_text(MODEL)
    (root / "loop.py").write_text(LOOP)
    return root


def commit(root: Path) -> None:
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.com"]
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"]):
        subprocess.run([*git, *arguments], cwd=root, check=True)


def targets(traces: tuple[Path, ...], repo: Path) -> set[str]:
    return {t.target for t in rank_traces(list(traces), repository=repo).targets}


WANTED = {"engine/model.py::Norm.forward", "engine/model.py::Block.forward"}


@pytest.mark.real
def test_a_command_is_recorded_in_place_after_its_warm_up(repo: Path, tmp_path: Path) -> None:
    settings = ProfileSettings(warmup=2, steps=3)
    found = profile_here(repo, [sys.executable, "loop.py"], settings, tmp_path / "out")
    (process,) = found.processes
    assert (process.recorded, found.status) == (3, 0)
    assert targets(found.traces, repo) >= WANTED
    report = rank_traces(list(found.traces), repository=repo)
    assert (report.traces[0].steps, report.disagreement.moved) == (3, 0)  # type: ignore[union-attr]


@pytest.mark.sandbox
def test_a_command_is_recorded_in_the_sandbox_with_a_named_step(repo: Path, tmp_path: Path) -> None:
    commit(repo)
    settings = ProfileSettings(warmup=1, steps=2, step="engine/model.py::step")
    found = profile_in_sandbox(
        repo, ["python", "loop.py"], settings, tmp_path / "out", seconds=120, threads=1, gpu=False
    )
    assert found.processes[0].recorded == 2
    assert targets(found.traces, repo) >= WANTED


@pytest.mark.parametrize(
    ("program", "said"),
    [("pass", "imported torch"), ("raise SystemExit(3)", "status 3")],
)
def test_a_command_without_a_trace_says_why(tmp_path: Path, program: str, said: str) -> None:
    with pytest.raises(ProfileFailed, match=said):
        profile_here(tmp_path, [sys.executable, "-c", program], ProfileSettings(), tmp_path / "o")


def test_a_command_that_cannot_be_started_says_so(tmp_path: Path) -> None:
    with pytest.raises(NotRun, match="no-such-program"):
        profile_here(tmp_path, ["no-such-program"], ProfileSettings(), tmp_path / "o")


def test_the_sitecustomize_behind_ours_still_runs(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('theirs')\n")
    environment = {"PYTHONPATH": f"{Path(sitecustomize.__file__).parent}:{tmp_path}"}
    done = subprocess.run(
        [sys.executable, "-c", "pass"], env=environment, capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("theirs\n", "")


def test_a_function_is_watched_by_the_end_of_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "watched_pkg").mkdir()
    (tmp_path / "watched_pkg/deep.py").write_text("def run():\n    return 1\n")
    seen: list[ModuleType] = []
    finder = sitecustomize.AfterImport({"watched_pkg/deep.py": seen.append})
    monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("watched_pkg.deep")
    assert (seen, module.run()) == ([module], 1)


def test_a_step_within_a_step_counts_once_and_failures_pass_through(tmp_path: Path) -> None:
    recorder = sitecustomize.Recorder(tmp_path, warmup=100, steps=1)

    def inner() -> None:
        raise KeyError("theirs")

    outer = recorder.around(recorder.around(inner))
    for _ in range(2):
        with pytest.raises(KeyError, match="theirs"):
            outer()
    assert recorder.seen == 2


def test_small_files_are_packed_before_large_ones(tmp_path: Path) -> None:
    (tmp_path / "1.json.gz").write_bytes(b"x" * 3000)
    (tmp_path / "1.status").write_bytes(b"{}")
    assert pack(tmp_path, 1000) == {"1.status": base64.b64encode(b"{}").decode()}
    assert len(json.dumps(pack(tmp_path, 10_000))) > 3000
