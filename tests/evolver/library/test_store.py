"""The library's file: shared by processes, bounded, and clear where it is unfit."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from evaluator.candidate import BackendName
from evolver.errors import LibraryUnusable
from evolver.library import store
from evolver.library.store import Library, library_path
from tests.evolver.library.builders import make_entry, make_features, make_origin

ROOT = Path(__file__).resolve().parents[3]


def ids_in(library: Library) -> list[str]:
    return [entry.id for entry in library.entries()]


def test_what_was_added_comes_back_the_latest_first_and_once(tmp_path: Path) -> None:
    library = Library(tmp_path / "new" / "library.db")
    assert library.entries() == []
    assert library.add([make_entry(1), make_entry(2)]) == 2
    assert library.add([make_entry(2), make_entry(3)]) == 1
    assert library.entries() == [make_entry(3), make_entry(2), make_entry(1)]


def test_entries_are_asked_for_by_backend(tmp_path: Path) -> None:
    library = Library(tmp_path / "library.db")
    triton = make_entry(1, features=make_features(backend=BackendName.TRITON))
    library.add([triton, make_entry(2)])
    assert library.entries(BackendName.TRITON) == [triton]


def test_a_problem_keeps_its_largest_gains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "ENTRIES_PER_PROBLEM", 2)
    library = Library(tmp_path / "library.db")
    library.add([make_entry(n, low=1.0 + n / 10, origin=make_origin(7)) for n in (3, 1, 2)])
    assert ids_in(library) == ["entry-0003", "entry-0002"]


def test_the_whole_keeps_its_latest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "ENTRIES_KEPT", 3)
    library = Library(tmp_path / "library.db")
    for n in range(5):
        library.add([make_entry(n)])
    assert ids_in(library) == ["entry-0004", "entry-0003", "entry-0002"]


def test_forgetting_removes_what_is_named(tmp_path: Path) -> None:
    library = Library(tmp_path / "library.db")
    assert library.forget(["entry-0001"]) == 0
    library.add([make_entry(1), make_entry(2)])
    assert library.forget(["entry-0001", "unknown"]) == 1
    assert ids_in(library) == ["entry-0002"]


def test_processes_append_at_once_and_nothing_is_lost(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from evolver.library.store import Library\n"
        "from tests.evolver.library.builders import make_entry\n"
        "first = int(sys.argv[2])\n"
        "for n in range(first, first + 10):\n"
        "    Library(Path(sys.argv[1])).add([make_entry(n)])\n"
    )
    path = tmp_path / "library.db"
    processes = [
        subprocess.Popen([sys.executable, "-c", program, str(path), str(first)], cwd=ROOT)
        for first in (0, 10, 20)
    ]
    assert [p.wait(120) for p in processes] == [0, 0, 0]
    assert len(Library(path).entries()) == 30


def damage(path: Path, kind: str) -> None:
    if kind == "no database":
        path.write_bytes(b"nothing of the kind" * 300)
    elif kind == "another version":
        with sqlite3.connect(path) as connection:
            connection.execute("PRAGMA user_version=99")
    elif kind == "an older entry":
        with sqlite3.connect(path) as connection:
            connection.execute("UPDATE entries SET body = '{\"schema_version\": 0}'")
    elif kind == "a folder":
        path.unlink()
        path.mkdir()


@pytest.mark.parametrize("kind", ["no database", "another version", "an older entry", "a folder"])
def test_an_unfit_file_is_named_with_a_remedy(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "library.db"
    library = Library(path)
    library.add([make_entry(1)])
    damage(path, kind)
    with pytest.raises(LibraryUnusable, match=r"library\.db: .*(Move the file away|--no-library)"):
        library.entries()
    if kind != "an older entry":
        with pytest.raises(LibraryUnusable):
            library.add([make_entry(2)])


def test_a_place_that_cannot_be_looked_at_is_told_like_any_other(tmp_path: Path) -> None:
    library = Library(tmp_path / ("x" * 300))
    for use in (library.entries, lambda: library.add([make_entry(1)]), lambda: library.forget([])):
        with pytest.raises(LibraryUnusable, match="--no-library"):
            use()


def test_the_variable_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KSMITH_LIBRARY", str(tmp_path / "mine.db"))
    assert library_path() == tmp_path / "mine.db"
    monkeypatch.delenv("KSMITH_LIBRARY")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert library_path().name == "library.db"
