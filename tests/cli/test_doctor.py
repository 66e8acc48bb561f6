"""``ksmith doctor`` from outside: the table, the one JSON object, the exit code."""

from __future__ import annotations

import json

import pytest
import typer
from typer.testing import CliRunner, Result

from cli import doctor
from evaluator.doctor import Check, State, Subject, conclude

RUNNER = CliRunner()


def diagnosed(monkeypatch: pytest.MonkeyPatch, *missing: Subject) -> None:
    checks = tuple(
        Check(
            name=subject,
            state=State.MISSING if subject in missing else State.OK,
            found="absent" if subject in missing else "1.0",
            needed_for="tests",
            remedy=f"sudo apt-get install [{subject.value}] " + "x" * 120
            if subject in missing
            else None,
        )
        for subject in Subject
    )
    monkeypatch.setattr("evaluator.doctor.diagnose", lambda: conclude(checks))


def invoke(*words: str) -> Result:
    app = typer.Typer()
    app.callback()(lambda: None)
    doctor.register(app)
    return RUNNER.invoke(app, ["doctor", *words])


def test_a_machine_that_can_evaluate_exits_0(monkeypatch: pytest.MonkeyPatch) -> None:
    diagnosed(monkeypatch, Subject.GPU)
    result = invoke()
    assert result.exit_code == 0
    assert "cpp candidates are judged and measured here." in result.stdout


def test_a_machine_that_can_evaluate_nothing_exits_3(monkeypatch: pytest.MonkeyPatch) -> None:
    diagnosed(monkeypatch, Subject.SANDBOX)
    assert invoke().exit_code == 3
    assert invoke("--json").exit_code == 3


def test_a_remedy_is_printed_whole_on_one_line_so_that_it_can_be_copied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    diagnosed(monkeypatch, Subject.COMPILER)
    assert "sudo apt-get install [g++] " + "x" * 120 in invoke().stdout


def test_json_is_one_object_with_checks_and_abilities(monkeypatch: pytest.MonkeyPatch) -> None:
    diagnosed(monkeypatch, Subject.GPU)
    answer = json.loads(invoke("--json").stdout)
    assert answer["can_evaluate"] is True
    assert {a["backend"]: a["level"] for a in answer["abilities"]} == {
        "cpp": "measured",
        "triton": "checked",
        "cuda": "compiled",
    }
