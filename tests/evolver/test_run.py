"""Run directories: whole or not there, one writer, and clear words when they are broken."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluator.candidate import BackendName
from evolver.errors import (
    RunDamaged,
    RunExists,
    RunLocked,
    RunMismatch,
    RunMissing,
    RunUnwritable,
)
from evolver.run import Run, require_free
from tests.builders import make_problem
from tests.evolver.toys import ROOT, make_run, make_search

RESUME = """
import sys
from pathlib import Path
from evolver.run import Run
Run.resume(Path(sys.argv[1]))
"""


def test_a_run_keeps_a_copy_of_its_problem(tmp_path: Path) -> None:
    with make_run(tmp_path / "run") as run:
        assert run.loaded == make_problem()
    with Run.open(tmp_path / "run") as run:
        assert run.loaded == make_problem()


def test_an_existing_run_is_not_overwritten(tmp_path: Path) -> None:
    make_run(tmp_path / "run").close()
    with pytest.raises(RunExists, match="--resume"):
        make_run(tmp_path / "run")


def test_of_two_that_make_the_same_run_at_once_the_later_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_run(tmp_path / "run").close()
    checks = iter([lambda path: None, require_free])  # it looked before the other had made it
    monkeypatch.setattr("evolver.run.require_free", lambda path: next(checks)(path))
    with pytest.raises(RunExists, match="--resume"):
        make_run(tmp_path / "run")
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


def test_a_run_that_cannot_be_made_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path) -> None:
        raise RunUnwritable("no room")

    monkeypatch.setattr("evolver.run.Store.create", fail)
    with pytest.raises(RunUnwritable, match="free some space") as raised:
        make_run(tmp_path / "run")
    assert "--resume" not in str(raised.value)
    assert list(tmp_path.iterdir()) == []


def test_a_directory_without_a_run_is_said_to_be_none(tmp_path: Path) -> None:
    with pytest.raises(RunMissing, match=r"no run\.yaml"):
        Run.open(tmp_path)


def test_two_processes_cannot_search_in_one_run(tmp_path: Path) -> None:
    with make_run(tmp_path / "run"):
        other = subprocess.run(
            [sys.executable, "-c", RESUME, str(tmp_path / "run")],
            cwd=ROOT,
            capture_output=True,
            text=True,
        )
        with pytest.raises(RunLocked, match="in use by process"):
            Run.resume(tmp_path / "run")
    assert "RunLocked" in other.stderr


def test_a_report_can_read_while_a_search_writes(tmp_path: Path) -> None:
    with make_run(tmp_path / "run") as writing:
        make_search(writing, steps=4).search()
        with Run.open(tmp_path / "run") as reading:
            assert reading.attempts() == writing.attempts()
            assert [a.number for a in reading.attempts()] == [1, 2, 3, 4]
            assert reading.best() == writing.best()


def test_the_run_of_another_problem_is_refused_with_what_differs(tmp_path: Path) -> None:
    make_run(tmp_path / "run", seed=1).close()
    with pytest.raises(RunMismatch, match="problem: the run has"):
        Run.resume(tmp_path / "run", loaded=make_problem("rotary"))
    with pytest.raises(RunMismatch, match="seed: the run has 1, you ask for 2"):
        Run.resume(tmp_path / "run", seed=2)
    with pytest.raises(RunMismatch, match="backend: the run has cpp, you ask for triton"):
        Run.resume(tmp_path / "run", backend=BackendName.TRITON)
    Run.resume(tmp_path / "run", loaded=make_problem(), seed=1, backend=BackendName.CPP).close()


@pytest.mark.parametrize(("version", "age"), [(1, "an older"), (7, "a newer")])
def test_a_database_of_another_version_is_refused(tmp_path: Path, version: int, age: str) -> None:
    make_run(tmp_path / "run").close()
    with sqlite3.connect(tmp_path / "run" / "run.db") as connection:
        connection.execute(f"PRAGMA user_version = {version}")
    connection.close()
    for opened in (Run.open, Run.resume):
        with pytest.raises(RunDamaged, match=rf"{age} version of ksmith \(schema {version};.*new"):
            opened(tmp_path / "run")


def test_a_config_of_another_version_is_refused(tmp_path: Path) -> None:
    make_run(tmp_path / "run").close()
    config = tmp_path / "run" / "run.yaml"
    config.write_text(yaml.safe_dump({**yaml.safe_load(config.read_text()), "schema_version": 0}))
    with pytest.raises(RunDamaged, match="another version"):
        Run.open(tmp_path / "run")


def test_a_corrupted_database_is_refused_with_a_remedy(tmp_path: Path) -> None:
    with make_run(tmp_path / "run") as run:
        make_search(run, steps=6).search()
    database = tmp_path / "run" / "run.db"
    content = bytearray(database.read_bytes())
    content[4096:] = b"\xa5" * (len(content) - 4096)
    database.write_bytes(content)
    with pytest.raises(RunDamaged, match="recover"):
        Run.resume(tmp_path / "run")


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    make_run(tmp_path / "run").close()
    (tmp_path / "run" / "run.db").write_bytes(b"hello" * 1000)
    with pytest.raises(RunDamaged, match="not a database"):
        Run.open(tmp_path / "run")


def test_a_full_disk_ends_the_search_and_loses_no_finished_evaluation(tmp_path: Path) -> None:
    with make_run(tmp_path / "run") as run:
        # SQLite answers a page limit with the very error of a full disk.
        run.store._connection.execute("PRAGMA max_page_count = 16")
        with pytest.raises(RunUnwritable, match="free some space"):
            make_search(run, steps=500).search()
        kept = len(run.attempts())
    assert kept > 0
    with Run.resume(tmp_path / "run") as run:
        assert make_search(run, steps=kept + 3).search().evaluated == kept + 3


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RunUnwritable, match="another directory with -o"):
        make_run(tmp_path / "file" / "run")


def test_a_finished_run_is_one_plain_database_file(tmp_path: Path) -> None:
    with make_run(tmp_path / "run") as run:
        make_search(run, steps=3).search()
    Run.open(tmp_path / "run").close()
    assert sorted(p.name for p in (tmp_path / "run").glob("run.db*")) == ["run.db"]


def read_whole(path: Path) -> None:
    with Run.open(path) as run:
        run.attempts()
        run.summary()


DAMAGE = {
    "an evaluation that is no JSON": "UPDATE log SET evaluation = '{' WHERE sequence = 1",
    "an evaluation of another version": (
        "UPDATE log SET evaluation = json_set(evaluation, '$.schema_version', 99)"
    ),
    "a kind that nobody knows": "UPDATE log SET kind = 'frob' WHERE sequence = 1",
    "a time that is none": "UPDATE log SET at = 'yesterday' WHERE sequence = 1",
    "a time before the beginning": "UPDATE log SET elapsed = -1",
    "an endless time": "UPDATE log SET seconds = 9e999",
    "a cost that is no number": "UPDATE log SET money_usd = 'much'",
    "a ticket that is no number": "UPDATE log SET ticket = 'first'",
    "an evaluation that is not there": "UPDATE log SET evaluation = NULL",
    "an evaluation of nobody's": "UPDATE log SET proposer = ''",
    "an evaluation of another candidate": (
        "UPDATE log SET evaluation = json_set(evaluation, '$.candidate_id', 'f00')"
    ),
    "a source that is another": "UPDATE candidates SET source = 'x = 1'",
    "a source that is no Python": "UPDATE candidates SET source = '('",
    "parents that are no JSON": "UPDATE candidates SET parents = '['",
    "no candidate": "DELETE FROM candidates",
    "no log": "DROP TABLE log",
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_row_is_told_as_damage(tmp_path: Path, damage: str) -> None:
    with make_run(tmp_path / "run") as run:
        make_search(run, steps=2).search()
    connection = sqlite3.connect(tmp_path / "run" / "run.db")
    with connection:
        connection.execute(DAMAGE[damage])
    connection.close()
    with pytest.raises(RunDamaged, match=r"run\.db"):
        read_whole(tmp_path / "run")


@pytest.mark.parametrize(
    "damage", ["DELETE FROM log WHERE sequence = 2", "UPDATE log SET island = 7 WHERE sequence = 2"]
)
def test_a_log_with_a_gap_or_of_other_islands_is_not_searched_on(
    tmp_path: Path, damage: str
) -> None:
    with make_run(tmp_path / "run") as run:
        make_search(run, steps=4).search()
    connection = sqlite3.connect(tmp_path / "run" / "run.db")
    with connection:
        connection.execute(damage)
    connection.close()
    with Run.resume(tmp_path / "run") as run, pytest.raises(RunDamaged, match=r"run\.db"):
        make_search(run)


@given(position=st.integers(0, 40), flipped=st.integers(1, 255))
@settings(max_examples=25)
def test_a_file_with_flipped_bytes_is_read_or_told_as_damage(
    tmp_path_factory: pytest.TempPathFactory, position: int, flipped: int
) -> None:
    path = tmp_path_factory.mktemp("flipped") / "run"
    with make_run(path) as run:
        make_search(run, steps=2).search()
    content = bytearray((path / "run.db").read_bytes())
    for place in range(100 + position, len(content), 997):
        content[place] ^= flipped
    (path / "run.db").write_bytes(content)
    with contextlib.suppress(RunDamaged):
        read_whole(path)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (sqlite3.SQLITE_FULL, RunUnwritable),
        (sqlite3.SQLITE_IOERR_SHMSIZE, RunUnwritable),
        (sqlite3.SQLITE_IOERR_FSYNC, RunUnwritable),
        (sqlite3.SQLITE_IOERR_SHORT_READ, RunDamaged),
        (sqlite3.SQLITE_CORRUPT, RunDamaged),
        (None, RunDamaged),
    ],
)
def test_a_disk_that_is_full_is_not_told_as_damage(
    tmp_path: Path, code: int | None, expected: type[Exception]
) -> None:
    error = sqlite3.OperationalError("disk I/O error")
    if code is not None:
        error.sqlite_errorcode = code
    with make_run(tmp_path / "run") as run, pytest.raises(expected), run.store._translated():
        raise error
