"""``ksmith capture`` as a user meets it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import typer
from typer.testing import CliRunner

from cli.capture import register


def invoke(*arguments: object) -> tuple[str, str]:
    app = typer.Typer()
    register(app)
    done = CliRunner().invoke(app, [*map(str, arguments)], catch_exceptions=False)
    return done.stdout, done.stderr


def test_a_command_that_fails_after_a_call_is_reported_and_what_it_showed_is_kept(
    tmp_path: Path,
) -> None:
    (tmp_path / "light.py").write_text("def run(x, n=2):\n    return x * n\n")
    program = "import light; light.run(1); light.run(1); light.run(3); raise SystemExit(5)"
    wanted = ["light.py::run", "--repo", tmp_path, "--no-sandbox", "-o", tmp_path / "w.yml"]
    command = ["--", sys.executable, "-c", program]
    told, warned = invoke(*wanted, *command)
    assert "status 5" in warned
    assert "3 calls of light.py::run in 1 process(es)" in told
    assert "next: ksmith extract light.py::run" in told
    found = json.loads(invoke(*wanted, "--force", "--json", *command)[0])
    assert sorted(w["calls"] for w in found["workloads"]) == [1, 2]
    assert (tmp_path / "w.yml").read_text().count("weight:") == 2
