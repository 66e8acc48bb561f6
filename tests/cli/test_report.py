"""``ksmith report`` as a user calls it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from cli.report import register
from evolver.errors import RunMissing
from tests.evolver.toys import make_run, make_search


@pytest.fixture
def app() -> typer.Typer:
    app = typer.Typer()
    app.callback()(lambda: None)  # with one command alone, Typer drops the command's name
    register(app)
    return app


def test_it_prints_where_the_report_is(app: typer.Typer, tmp_path: Path) -> None:
    with make_run(tmp_path / "run") as run:
        make_search(run, steps=3).search()
    done = CliRunner().invoke(app, ["report", str(tmp_path / "run"), "--json"])
    assert done.exit_code == 0
    path = Path(json.loads(done.output)["report"])
    assert path == tmp_path / "run" / "report.html"
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_it_shows_the_diff_that_integration_left(app: typer.Typer, tmp_path: Path) -> None:
    make_run(tmp_path / "run").close()
    folder = tmp_path / "run" / "integration"
    folder.mkdir()
    (folder / "branch.diff").write_text("--- a/engine/norm.py\n+++ b/engine/norm.py\n+fast\n")
    CliRunner().invoke(app, ["report", str(tmp_path / "run")])
    html = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "Change to the repository" in html
    assert "b/engine/norm.py" in html


def test_a_directory_without_a_run_is_refused(app: typer.Typer, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["report", str(tmp_path)])
    assert isinstance(done.exception, RunMissing)
