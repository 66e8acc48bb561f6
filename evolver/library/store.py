"""The store of the library: one SQLite file that belongs to the user, shared by all runs.

``KSMITH_LIBRARY`` names it; else it lies in the user's data folder. Several processes append:
each writes in one transaction, and waits for the others. The rollback journal is used rather
than WAL, which home folders on a network do not bear. The store is bounded: a problem keeps
its largest gains, the whole its latest. What a search is told is chosen in ``offer.py``.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from pydantic import ValidationError

from evaluator.candidate import BackendName
from evaluator.records import complaint
from evolver.errors import LibraryUnusable
from evolver.library.entry import LibraryEntry

LIBRARY_VARIABLE = "KSMITH_LIBRARY"
SCHEMA_VERSION = 1
ENTRIES_KEPT = 5_000
ENTRIES_PER_PROBLEM = 40
_WAIT_SECONDS = 30.0
_SCHEMA = """
CREATE TABLE entries (
    id TEXT PRIMARY KEY,
    problem TEXT NOT NULL,
    backend TEXT NOT NULL,
    gain REAL NOT NULL,
    at TEXT NOT NULL,
    body TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX entries_by_problem ON entries (problem, gain);
CREATE INDEX entries_by_time ON entries (at);
"""
_FORGET_PROBLEMS_LEAST = """
DELETE FROM entries WHERE id IN (
    SELECT id FROM entries WHERE problem = ? ORDER BY gain DESC, id LIMIT -1 OFFSET ?)
"""
_FORGET_OLDEST = """
DELETE FROM entries WHERE id IN (SELECT id FROM entries ORDER BY at DESC, id LIMIT -1 OFFSET ?)
"""


def library_path() -> Path:
    """Return where the library lies: ``KSMITH_LIBRARY``, else in the user's data folder."""
    from platformdirs import user_data_path

    named = os.environ.get(LIBRARY_VARIABLE)
    return Path(named) if named else user_data_path("ksmith") / "library.db"


class Library:
    """The store at a path. No connection outlives a call, so a fork or a thread harms nothing."""

    def __init__(self, path: Path) -> None:
        """Name the file; it is made by the first entry."""
        self.path = path

    def add(self, entries: Sequence[LibraryEntry]) -> int:
        """Keep ``entries``; one that is known by its id is kept as it is. Return how many are new.

        Raises:
            LibraryUnusable: the file cannot be written, is damaged or of another version.
        """
        if not entries:
            return 0
        with self._connected(writable=True) as connection, _transaction(connection):
            before = _count(connection)
            connection.executemany(
                "INSERT OR IGNORE INTO entries VALUES (?, ?, ?, ?, ?, ?)", map(_row, entries)
            )
            new = _count(connection) - before
            for problem in {e.origin.skeleton for e in entries}:
                connection.execute(_FORGET_PROBLEMS_LEAST, (problem, ENTRIES_PER_PROBLEM))
            connection.execute(_FORGET_OLDEST, (ENTRIES_KEPT,))
        return new

    def entries(self, backend: BackendName | None = None) -> list[LibraryEntry]:
        """Return all entries, the latest first; of one backend where it is given.

        Raises:
            LibraryUnusable: the file is damaged or of another version.
        """
        if not self._is_there():
            return []
        where, values = ("WHERE backend = ?", (backend.value,)) if backend else ("", ())
        query = f"SELECT body FROM entries {where} ORDER BY at DESC, id"  # noqa: S608 - constant text
        with self._connected(writable=False) as connection:
            bodies = connection.execute(query, values).fetchall()
        return [self._read(body) for (body,) in bodies]

    def forget(self, ids: Sequence[str]) -> int:
        """Remove the entries with these ids; return how many there were.

        Raises:
            LibraryUnusable: the file cannot be written, is damaged or of another version.
        """
        if not self._is_there():
            return 0
        with self._connected(writable=True) as connection, _transaction(connection):
            before = _count(connection)
            connection.executemany("DELETE FROM entries WHERE id = ?", [(i,) for i in ids])
            return before - _count(connection)

    def _is_there(self) -> bool:
        try:
            return self.path.exists()
        except OSError as error:  # the name is too long, or a folder on the way is locked
            raise self._unusable(str(error)) from error

    def _read(self, body: str) -> LibraryEntry:
        try:
            return LibraryEntry.model_validate_json(body)
        except ValidationError as error:
            raise self._unusable(
                f"holds an entry that is damaged or of another version: {complaint(error)}"
            ) from error

    @contextmanager
    def _connected(self, *, writable: bool) -> Iterator[sqlite3.Connection]:
        """Open the file, make it where it is to be written, and check its version."""
        try:
            if writable:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            mode = "rwc" if writable else "ro"
            uri = f"{self.path.resolve().as_uri()}?mode={mode}"
            opened = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=_WAIT_SECONDS)
            with closing(opened) as connection:
                if writable:
                    _prepare(connection)
                (found,) = connection.execute("PRAGMA user_version").fetchone()
                if found != SCHEMA_VERSION:
                    raise self._unusable(f"has version {found}, this ksmith reads {SCHEMA_VERSION}")
                yield connection
        except (sqlite3.DatabaseError, OSError) as error:
            raise self._unusable(str(error)) from error

    def _unusable(self, why: str) -> LibraryUnusable:
        return LibraryUnusable(
            f"the library {self.path}: {why}. Move the file away to begin a new one, name another "
            f"in {LIBRARY_VARIABLE}, or leave it out with --no-library"
        )


def _prepare(connection: sqlite3.Connection) -> None:
    """Make the tables of a new file; two processes may come at once."""
    with _transaction(connection):
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if version == 0 and tables == 0:
            for statement in _SCHEMA.split(";"):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _count(connection: sqlite3.Connection) -> int:
    (count,) = connection.execute("SELECT count(*) FROM entries").fetchone()
    return int(count)


def _row(entry: LibraryEntry) -> tuple[object, ...]:
    return (
        entry.id,
        entry.origin.skeleton,
        entry.features.backend.value,
        entry.gain.low,
        entry.at.isoformat(),
        entry.model_dump_json(),
    )
