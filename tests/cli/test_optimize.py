"""``ksmith optimize`` from outside: what it prints, writes and answers."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from evolver.errors import RunExists, RunMismatch, SearchError
from evolver.run import Run
from tests.builders import make_problem, save_problem
from tests.cli.toy_search import make_app, toy_evaluator, toy_lineup

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("bot.pipeline.make_evaluator", toy_evaluator)
    monkeypatch.setattr("bot.pipeline.make_lineup", lambda: toy_lineup(1.2, 0.9))
    return save_problem(make_problem(), tmp_path / "problem")


def invoke(*words: object) -> Result:
    return CliRunner().invoke(make_app(), ["optimize", *map(str, words)])


def test_a_search_that_finds_something_faster_answers_yes(problem: Path) -> None:
    result = invoke(problem, "--backend", "cpp", "--steps", 6, "-o", "run")
    assert result.exit_code == 0
    assert "confirmed in fresh processes" in result.stdout
    assert Path("run/best/candidate.py").exists()


def test_json_is_one_object_on_standard_output(problem: Path) -> None:
    result = invoke(problem, "--backend", "cpp", "--steps", 6, "-o", "run", "--json")
    summary = json.loads(result.stdout)
    assert summary == json.loads(Path("run/summary.json").read_text())
    assert summary["reproduce"].startswith("ksmith optimize run/problem --backend cpp --steps 6")


def test_when_nothing_is_faster_the_answer_is_no(
    problem: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bot.pipeline.make_lineup", lambda: toy_lineup(0.5))
    result = invoke(problem, "--backend", "cpp", "--steps", 1, "-o", "run")
    assert result.exit_code == 1
    assert "nothing faster" in result.stdout


def test_without_a_terminal_there_is_one_plain_line_per_evaluation(problem: Path) -> None:
    result = invoke(problem, "--backend", "cpp", "--steps", 4, "-o", "run")
    lines = [line for line in result.stderr.splitlines() if "vs eager" in line]
    assert len(lines) >= 4
    assert "stopped: the budget of 4 steps is spent" in result.stderr


def test_the_default_directory_is_named_after_problem_and_date(problem: Path) -> None:
    invoke(problem, "--backend", "cpp", "--steps", 1)
    (run,) = Path("runs").iterdir()
    assert run.name.startswith("rms_norm-20")
    resumed = invoke(problem, "--steps", 3, "--resume")
    assert resumed.exit_code == 0
    with Run.open(run) as opened:
        assert len(opened.attempts()) == 3
        assert opened.config.steps == 3


def test_an_existing_run_is_not_continued_unasked(problem: Path) -> None:
    invoke(problem, "--backend", "cpp", "--steps", 1, "-o", "run")
    result = invoke(problem, "--backend", "cpp", "--steps", 1, "-o", "run")
    assert isinstance(result.exception, RunExists)


def test_a_run_of_another_seed_is_not_continued(problem: Path) -> None:
    invoke(problem, "--backend", "cpp", "--steps", 1, "-o", "run")
    result = invoke(problem, "--seed", 4, "-o", "run", "--resume")
    assert isinstance(result.exception, RunMismatch)


def test_a_target_without_its_repository_is_wrong_use(problem: Path) -> None:
    result = invoke("engine/ops.py::rms_norm")
    assert result.exit_code == 2
    assert "--repo" in result.stderr


def test_a_resumption_may_set_another_budget_and_nothing_of_the_old_one_stays(
    problem: Path,
) -> None:
    invoke(problem, "--backend", "cpp", "--steps", 3, "--mode", "best-of-n", "-o", "run")
    result = invoke(problem, "--gpu-seconds", 0, "--adaptive", "-o", "run", "--resume")
    assert result.exit_code == 0
    with Run.open(Path("run")) as run:
        config = run.config
    assert (config.steps, config.gpu_seconds, config.adaptive) == (None, 0, True)
    assert (config.mode, config.islands) == ("best-of-n", 1)
    other = invoke(problem, "--mode", "random", "-o", "run", "--resume")
    assert isinstance(other.exception, RunMismatch)


def test_an_unknown_mode_is_wrong_use(problem: Path) -> None:
    result = invoke(problem, "--mode", "upside-down")
    assert result.exit_code == 2
    assert "best-of-n" in result.stderr


def test_a_limit_of_tokens_without_a_model_is_refused(problem: Path) -> None:
    result = invoke(problem, "--backend", "cpp", "--tokens", 1000, "-o", "run")
    assert isinstance(result.exception, SearchError)
    assert "--model" in str(result.exception)
    assert not Path("run").exists()


def test_an_unknown_backend_is_wrong_use(problem: Path) -> None:
    result = invoke(problem, "--backend", "fortran")
    assert result.exit_code == 2
    assert {"cpp", "triton"} <= set(re.findall(r"\w+", result.stderr))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_ends_cleanly_and_says_how_to_go_on(
    tmp_path: Path, number: signal.Signals
) -> None:
    problem = save_problem(make_problem(), tmp_path / "problem")
    script = ["-m", "tests.cli.toy_search", "optimize", str(problem), "--backend", "cpp"]
    words = [sys.executable, *script, "--steps", "500", "-o", str(tmp_path / "run")]
    process = subprocess.Popen(
        words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    for _ in range(5):
        process.stdout.readline()
    process.send_signal(number)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert f"ksmith optimize {tmp_path / 'run' / 'problem'}" in errors
    assert "--resume" in errors
    assert "Traceback" not in errors
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["outcome"] == "unfinished"
