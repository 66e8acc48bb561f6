"""Naming models on the command line: what is asked, what is kept with the run, what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from cli.main import app
from evolver.errors import LlmUnavailable
from evolver.run import Run
from tests.builders import make_problem, save_problem
from tests.cli.toy_search import toy_evaluator, toy_lineup
from tests.evolver.proposers.llm.server import Scripted, full, program, say, scripted_server


@pytest.fixture
def problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("bot.pipeline.make_evaluator", toy_evaluator)
    monkeypatch.setattr("bot.pipeline.make_lineup", lambda: toy_lineup(1.2))
    return save_problem(make_problem(), tmp_path / "problem")


@pytest.fixture
def server() -> Iterator[Scripted]:
    with scripted_server(say(full(program(1.9)))) as scripted:
        yield scripted


def invoke(*words: object) -> Result:
    return CliRunner().invoke(app, list(map(str, words)))


def optimize(*words: object) -> Result:
    return invoke("optimize", *words)


def test_a_named_model_is_asked_and_kept_with_the_run(problem: Path, server: Scripted) -> None:
    words = ["--backend", "cpp", "-o", "run", "--model", "big=3", "--model", "small"]
    result = optimize(problem, *words, "--endpoint", server.url, "--steps", 4)
    assert result.exit_code == 0, result.output
    assert server.requests
    assert Path("run/llm.jsonl").exists()
    with Run.open(Path("run")) as run:
        assert run.config.llm is not None
        assert [(m.name, m.weight) for m in run.config.llm.models] == [("big", 3), ("small", 1)]
        assert "--llm run/run.yaml" in run.summary().reproduce


def test_a_resumed_run_asks_its_models_again_or_others(problem: Path, server: Scripted) -> None:
    words = ["--backend", "cpp", "-o", "run", "--model", "m", "--endpoint", server.url]
    optimize(problem, *words, "--steps", 1)
    optimize(problem, "-o", "run", "--resume", "--steps", 4)
    assert {r["model"] for r in server.requests} == {"m"}
    other = yaml.safe_load(Path("run/run.yaml").read_text())
    other["llm"]["models"][0]["name"] = "other"
    Path("llm.yaml").write_text(yaml.safe_dump(other["llm"]))
    result = optimize(problem, "-o", "run", "--resume", "--steps", 8, "--llm", "llm.yaml")
    assert result.exit_code == 0, result.output
    assert server.requests[-1]["model"] == "other"


def test_an_endpoint_that_is_down_ends_the_command_before_anything_is_spent(
    problem: Path, server: Scripted
) -> None:
    words = ["--backend", "cpp", "-o", "run", "--model", "m", "--endpoint"]
    result = optimize(problem, *words, "http://127.0.0.1:9/v1")
    assert isinstance(result.exception, LlmUnavailable)
    assert "nothing answers at http://127.0.0.1:9/v1" in str(result.exception)
    assert not Path("run").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--endpoint", "http://h/v1"], "--endpoint needs --model"),
        (["--model", "m", "--llm", "x.yaml"], "leave --model"),
        (["--model", "m=-1"], "weight"),
        (["--model", "m", "--endpoint", "h:1"], "endpoint"),
        (["--llm", "absent.yaml"], "absent.yaml"),
        (["--llm", "problem/problem.yaml"], "models"),
    ],
)
def test_what_is_malformed_is_told(words: list[str], message: str, problem: Path) -> None:
    result = optimize(problem, *words)
    assert result.exit_code == 2
    assert message in " ".join(result.output.replace("│", "").split())


def test_serve_model_says_what_it_would_run_and_what_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = invoke("serve-model", "Org/Model", "--dry-run", "--port", 9000, "--vllm", "--trust")
    assert shown.stdout.startswith("vllm serve Org/Model --host 127.0.0.1 --port 9000")
    assert shown.stdout.endswith("--trust\n")
    monkeypatch.setattr("evaluator.machine.gpus", lambda: ())
    result = invoke("serve-model", "Org/Model")
    assert isinstance(result.exception, LlmUnavailable)
