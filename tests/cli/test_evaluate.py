"""``ksmith evaluate`` as a user meets it: exit codes, one JSON object, nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import typer

from cli.evaluate import backend_of, exit_code
from cli.options import policy_named
from evaluator.candidate import BackendName
from evaluator.evaluation import Status
from tests import samples
from tests.builders import make_evaluation, make_problem, save_problem

KSMITH = "from cli.main import main; main()"


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-P", "-c", KSMITH, "evaluate", *map(str, arguments)]


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*arguments), capture_output=True, text=True, timeout=200)


@pytest.fixture
def problem(tmp_path: Path) -> Path:
    return save_problem(make_problem("rotary"), tmp_path / "problem")


@pytest.fixture
def honest(tmp_path: Path) -> Path:
    path = tmp_path / "candidate.py"
    path.write_text(samples.ROTARY_CPP)
    return path


@pytest.mark.parametrize(
    ("status", "speedup", "code"),
    [
        (Status.OK, 1.5, 0),
        (Status.OK, 1.0, 0),
        (Status.OK, 0.5, 1),
        (Status.NOT_MEASURED, 1.0, 0),
        (Status.INCORRECT, 1.0, 1),
        (Status.POLICY_VIOLATION, 1.0, 1),
        (Status.TIMEOUT, 1.0, 1),
        (Status.CHEATING_SUSPECTED, 1.0, 1),
        (Status.HARNESS_ERROR, 1.0, 3),
    ],
)
def test_the_exit_code_says_yes_no_or_cannot(status: Status, speedup: float, code: int) -> None:
    assert exit_code(make_evaluation(status=status, speedup=speedup)) == code


def test_the_backend_is_told_from_the_source() -> None:
    assert backend_of(samples.ROTARY_CPP) is BackendName.CPP
    assert backend_of(samples.RMS_NORM_TRITON) is BackendName.TRITON
    assert backend_of(samples.RMS_NORM_CUDA) is BackendName.CUDA


def test_a_source_policy_that_does_not_exist_is_wrong_use_and_names_those_that_do() -> None:
    assert policy_named(None).source.preset == "strict"
    assert policy_named("keck-triton").source.preset == "keck-triton"
    with pytest.raises(typer.BadParameter, match="kernelbench"):
        policy_named("lax")


@pytest.mark.parametrize("text", ["def f(:\n", "x = 1\0"])
def test_a_candidate_that_is_not_python_is_wrong_use(problem: Path, text: str) -> None:
    bad = problem.parent / "bad.py"
    bad.write_text(text)
    done = run(problem, bad)
    assert done.returncode == 2
    words = " ".join(done.stderr.replace("│", " ").split())
    assert "is not Python" in words


def test_a_folder_that_is_no_problem_is_wrong_use(tmp_path: Path, honest: Path) -> None:
    done = run(tmp_path, honest)
    assert done.returncode == 2
    assert "ksmith extract" in done.stderr


@pytest.mark.sandbox
def test_an_honest_candidate_gives_one_json_object_and_exit_0(problem: Path, honest: Path) -> None:
    rounds = honest.parent / "rounds.jsonl"
    done = run(problem, honest, "--json", "--no-compiled", "--samples", rounds)
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert record["status"] == "ok"
    assert record["aa_check"]["passed"]
    assert "timing" in done.stderr
    measured = {s["purpose"]: s for s in map(json.loads, rounds.read_text().splitlines())}
    assert set(measured) == {"screen", "reference against itself"}
    times = measured["screen"]["per_call_ns"]
    assert len(times["candidate"]) == len(times["eager"]) >= 5


@pytest.mark.sandbox
def test_a_hostile_candidate_is_refused_with_its_line_and_exit_1(
    problem: Path, honest: Path
) -> None:
    honest.write_text(samples.ROTARY_CPP.replace("import torch\n", "import torch\nimport socket\n"))
    done = run(problem, honest, "--no-compiled")
    assert done.returncode == 1
    assert "line 2: import of socket" in done.stdout


@pytest.mark.sandbox
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_evaluation_leaves_no_process_behind(
    problem: Path, honest: Path, stop: signal.Signals
) -> None:
    running = subprocess.Popen(
        command(problem, honest), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert running.stderr is not None
    assert "starting" in running.stderr.readline()
    deadline = time.monotonic() + 20
    children: list[psutil.Process] = []
    while len(children) < 4 and time.monotonic() < deadline:
        children = psutil.Process(running.pid).children(recursive=True)
        time.sleep(0.1)
    os.kill(running.pid, stop)
    running.communicate(timeout=30)
    if stop is signal.SIGINT:
        assert running.returncode == 130
    assert children
    _, alive = psutil.wait_procs(children, timeout=15)
    assert not alive
