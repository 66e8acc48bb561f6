"""The live view: what a person reads while a search runs."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from cli.live import Lines, clock_of, counts_of, duration, line_of, panel_of
from evaluator.evaluation import Status
from evolver.budget import Budget
from evolver.costs import Cost
from evolver.progress import Phase, Progress
from tests.builders import make_evaluation, make_speedup


def make_progress(**changes: object) -> Progress:
    fields: dict[str, object] = {
        "phase": Phase.EVALUATING,
        "proposer": "mutate",
        "description": "block 64 to 128",
        "evaluated": 10,
        "counts": {Status.OK: 7, Status.COMPILE_ERROR: 3},
        "best": make_speedup(1.5),
        "elapsed_seconds": 60.0,
        "budget": Budget(steps=40),
    }
    return Progress(**{**fields, **changes})  # type: ignore[arg-type]


def test_the_panel_shows_best_counts_step_and_time() -> None:
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(panel_of(make_progress(), 60.0))
    text = console.export_text()
    assert "1.500x vs eager" in text
    assert "10 (7 ok, 3 compile error)" in text
    assert "mutate: evaluating" in text
    assert "block 64 to 128" in text
    assert "about 3:00 left" in text


def test_a_screened_number_is_not_shown_as_a_result() -> None:
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(panel_of(make_progress(), 60.0))
    assert "screened" in console.export_text()


def test_the_time_left_never_exceeds_the_minutes_left() -> None:
    progress = make_progress(budget=Budget(steps=1000, minutes=2))
    assert clock_of(progress, 90.0) == "1:30, about 0:30 left"


def test_without_a_limit_no_time_left_is_claimed() -> None:
    assert clock_of(make_progress(budget=Budget()), 61.0) == "1:01"


def test_the_cost_so_far_and_the_advice_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    spent = Cost(seconds=90, device_seconds=30, prompt_tokens=1200)
    progress = make_progress(cost=spent, advice="a plateau is near")
    line = "90.0 s of work, 30.0 s on the device, 1,200 tokens; a plateau is near"
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(panel_of(progress, 60.0))
    assert line in console.export_text()
    lines = Lines()
    lines(progress)
    assert capsys.readouterr().err == ""
    lines(replace(progress, phase=Phase.STOPPED, description="enough"))
    assert capsys.readouterr().err == f"stopped: enough\nspent: {line}\n"


def test_counts_of_nothing_are_just_zero() -> None:
    assert counts_of(make_progress(evaluated=0, counts={})) == "0"


def test_a_failure_is_told_in_its_own_words() -> None:
    failed = make_evaluation(status=Status.COMPILE_ERROR, message="expected ';' before '}'")
    assert "expected ';' before '}'" in line_of(make_progress(), failed)


def test_durations_are_read_as_clocks() -> None:
    assert [duration(s) for s in (5, 65, 3725)] == ["0:05", "1:05", "1:02:05"]
