"""``ksmith library``, and what ``ksmith optimize`` learns from it and adds to it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from cli.main import app
from evaluator.problem import Origin
from evolver.errors import LibraryUnusable
from evolver.library.store import Library, library_path
from evolver.run import Run
from tests import samples
from tests.builders import make_problem, save_problem
from tests.cli.toy_search import toy_evaluator, toy_lineup
from tests.evolver.library.builders import make_entry, make_features, make_origin


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KSMITH_LIBRARY", str(tmp_path / "library.db"))
    monkeypatch.setattr("bot.pipeline.make_evaluator", toy_evaluator)
    monkeypatch.setattr("bot.pipeline.make_lineup", lambda: toy_lineup(1.2, 0.9))


def invoke(*words: object) -> Result:
    return CliRunner().invoke(app, [*map(str, words)])


def optimize(name: str, reference: str, *words: object) -> Run:
    """Search a problem of its own, in a run directory of the same name."""
    origin = Origin(repository="example/engine", target=f"engine/ops.py::{name}")
    loaded = make_problem(id=name, source=reference, origin=origin)
    folder = save_problem(loaded, Path("problems") / name)
    result = invoke("optimize", folder, "--backend", "cpp", "--steps", 12, "-o", name, *words)
    assert result.exit_code == 0, result.output
    return Run.open(Path(name))


TWIN = samples.RMS_NORM_REFERENCE.replace("variance", "square")
OTHER = samples.RMS_NORM_REFERENCE.replace("return x * weight", "return x * weight + 1")


def test_a_run_teaches_the_next_problem_and_never_a_twin(tmp_path: Path) -> None:
    with optimize("first", samples.RMS_NORM_REFERENCE) as run:
        assert run.config.known == ()
    learned = Library(library_path()).entries()
    assert learned
    assert {e.origin.problem_id for e in learned} == {"first"}
    with optimize("twin", TWIN) as run:
        assert run.config.known == ()
    with optimize("other", OTHER) as run:
        assert {k.entry.origin.problem_id for k in run.config.known} <= {"first", "twin"}
        assert run.config.known
    with optimize("apart", OTHER, "--no-library") as run:
        assert run.config.known == ()
        assert run.summary().reproduce.count("--no-library") == 1
    assert "apart" not in {e.origin.problem_id for e in Library(library_path()).entries()}


def test_a_broken_library_stops_no_search_and_the_group_says_why(tmp_path: Path) -> None:
    library_path().write_bytes(b"nothing of the kind" * 300)
    with optimize("first", samples.RMS_NORM_REFERENCE) as run:
        assert run.config.known == ()
    assert isinstance(invoke("library", "list").exception, LibraryUnusable)


def test_entries_are_listed_counted_and_forgotten() -> None:
    assert "0 entries" in invoke("library", "list").stdout
    on_gpu = make_features(device="NVIDIA H200")
    Library(library_path()).add(
        [make_entry(1), make_entry(2, features=on_gpu), make_entry(3, plan="Split the row.\nThen…")]
    )
    listed = invoke("library", "list").stdout
    assert "1.50x [1.40, 1.61]  problem-2  cpp on NVIDIA H200  tile: BLOCK 64 to 128" in listed
    assert "Split the row.\n" in listed
    counts = json.loads(invoke("library", "stats", "--json").stdout)
    assert (counts["entries"], counts["operators"]) == (3, {"tile": 2})
    assert invoke("library", "forget", "entry-0001").exit_code == 0
    assert invoke("library", "forget", "--problem", "nobody").exit_code == 1
    assert invoke("library", "forget").exit_code == 2
    for words in ([""], ["entry-0002", ""], ["entry-0002", "--repository", ""]):
        assert invoke("library", "forget", *words).exit_code == 2
    assert invoke("library", "forget", "--all").stdout == "2 entries forgotten\n"


def test_all_of_a_repository_can_be_forgotten() -> None:
    Library(library_path()).add(
        [make_entry(1), make_entry(2, origin=make_origin(2, repository="private/engine"))]
    )
    invoke("library", "forget", "--repository", "private/engine")
    listed = json.loads(invoke("library", "list", "--json").stdout)
    assert [e["id"] for e in listed["entries"]] == ["entry-0001"]
