"""The run store: an append-only log in SQLite that is the run's only checkpoint.

Every step of a search becomes one committed row of ``log`` before the next step begins,
so the process may be killed at any moment: what was committed is never repeated, and at
most the step in flight is lost. Archive, bandit and random numbers are not stored; they
are functions of the log and the seed (``evolver/state.py``).

WAL lets a report read while the search writes. With ``synchronous=NORMAL`` a commit survives
the end of the process, however it ends, since the kernel holds it; a power cut leaves the
database whole but may roll back the last evaluations, which are then made again. FULL
would save those and cost a sync for each commit (5 ms on a slow disk, more over a network).
Sources are stored once per
candidate, keyed by its content's hash.
"""

from __future__ import annotations

import contextlib
import json
import math
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from evaluator.candidate import BackendName, Candidate
from evaluator.evaluation import Evaluation
from evaluator.records import complaint
from evolver.costs import Cost
from evolver.errors import RunDamaged, RunUnwritable

SCHEMA_VERSION = 2

_SCHEMA = """
CREATE TABLE candidates (
    id TEXT PRIMARY KEY,
    source TEXT NOT NULL,
    backend TEXT NOT NULL,
    proposer TEXT NOT NULL,
    parents TEXT NOT NULL,
    description TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE log (
    sequence INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,
    ticket INTEGER NOT NULL,
    proposer TEXT NOT NULL,
    candidate_id TEXT REFERENCES candidates (id),
    parent_id TEXT,
    evaluation TEXT,
    seconds REAL NOT NULL,
    device_seconds REAL NOT NULL,
    prompt_tokens INTEGER NOT NULL,
    completion_tokens INTEGER NOT NULL,
    money_usd REAL NOT NULL,
    elapsed REAL NOT NULL,
    island INTEGER NOT NULL,
    detail TEXT NOT NULL,
    at TEXT NOT NULL
);
CREATE INDEX log_by_candidate ON log (candidate_id, sequence);
"""


class EntryKind(StrEnum):
    """What a row of the log tells."""

    PROPOSED = "proposed"
    """A new candidate was proposed, and is to be judged: its evaluation is owed."""
    EVALUATED = "evaluated"
    """The candidate of this ticket was judged: an attempt."""
    DUPLICATE = "duplicate"
    """A proposal was seen before; ``detail`` holds its id. No evaluation was spent."""
    NOTHING = "nothing"
    """The proposer had nothing to offer."""
    BROKEN = "broken"
    """The proposer failed; ``detail`` holds the error."""
    ABANDONED = "abandoned"
    """The session ended before the proposer did; its cost so far is counted. Without a ticket:
    the cost of all that a killed session had begun."""
    SEEDED = "seeded"
    """This proposer has given all its seeds; ``detail`` says what it could not give, and why."""
    REMEASURED = "remeasured"
    """A new best was judged a second time, by a measurement that did not select it."""
    CONFIRMED = "confirmed"
    """A contender was judged in fresh processes; the verdict is the evaluation's."""
    ADVISED = "advised"
    """The search was sent in another direction, and why; ``proposer`` rests meanwhile."""
    STOPPED = "stopped"
    """The search came to its end, and all is confirmed; ``detail`` says why it stopped."""


@dataclass(frozen=True)
class LogEntry:
    """One row of the log, without its candidate's source.

    ``ticket`` numbers the proposals, from 1; 0 where the entry belongs to none. ``cost`` is that
    of this step alone (proposing is one step, evaluating another), so all costs of a log add up
    to the run's; ``elapsed_seconds`` is the run's wall time up to and with this step, over all
    its sessions.
    """

    sequence: int
    kind: EntryKind
    ticket: int
    proposer: str
    candidate_id: str | None
    parent_id: str | None
    evaluation: Evaluation | None
    cost: Cost
    elapsed_seconds: float
    island: int
    detail: str
    at: datetime


class Store:
    """The database ``run.db``. One writer; any number of readers."""

    def __init__(self, path: Path, connection: sqlite3.Connection, *, writable: bool) -> None:
        self._path = path
        self._connection = connection
        self._writable = writable

    @classmethod
    def create(cls, path: Path) -> Store:
        """Make an empty database at ``path``, which must not exist.

        Raises:
            RunUnwritable: there is no room for it.
        """
        store = cls(path, sqlite3.connect(path, isolation_level=None), writable=True)
        with store._translated():
            store._prepare_for_writing()
            store._connection.executescript(f"PRAGMA user_version={SCHEMA_VERSION};" + _SCHEMA)
        return store

    @classmethod
    def open(cls, path: Path, *, writable: bool = False) -> Store:
        """Open the database at ``path``; a writer also checks that it is sound.

        Raises:
            RunDamaged: it is missing, not a database, corrupted, or of another version.
        """
        if not path.is_file():
            raise RunDamaged(f"{path} is missing; start a new run in another directory")
        uri = f"{path.resolve().as_uri()}?mode={'rw' if writable else 'ro'}"
        connection = sqlite3.connect(uri, uri=True, isolation_level=None)
        store = cls(path, connection, writable=writable)
        try:
            with store._translated():
                store._check_version()
                if writable:
                    store._check_integrity()
                    store._prepare_for_writing()
        except BaseException:
            store.close()
            raise
        return store

    def close(self) -> None:
        """Close the connection.

        The writer folds the write-ahead log into the file, so that a finished run is one
        plain file that opens from a read-only place too; where a reader holds the file
        open it stays as it is, which is as safe.
        """
        if self._writable:
            with contextlib.suppress(sqlite3.DatabaseError):
                self._connection.execute("PRAGMA journal_mode=DELETE")
        self._connection.close()

    def append(self, entry: LogEntry, candidate: Candidate | None = None) -> None:
        """Commit ``entry``, and ``candidate`` where it is new. When this returns, it is on disk.

        Raises:
            RunUnwritable: there is no room for it; nothing was written.
            ValueError: the entry's number is not the log's next.
        """
        if entry.sequence != self.length() + 1:
            raise ValueError(f"entry {entry.sequence} does not follow entry {self.length()}")
        with self._translated(), self._transaction():
            if candidate is not None:
                self._connection.execute(
                    "INSERT OR IGNORE INTO candidates VALUES (?, ?, ?, ?, ?, ?)",
                    _candidate_row(candidate),
                )
            self._connection.execute(
                f"INSERT INTO log VALUES ({', '.join('?' * 16)})",  # noqa: S608 - constant text
                _entry_row(entry),
            )

    def length(self) -> int:
        """Number of entries."""
        (last,) = self._one("SELECT coalesce(max(sequence), 0) FROM log")
        return int(last)

    def entries(self, *kinds: EntryKind) -> Iterator[LogEntry]:
        """Yield the entries in order, of some kinds where they are given."""
        where = f"WHERE kind IN ({', '.join('?' * len(kinds))})" if kinds else ""
        with self._translated(), self._legible():
            for row in self._connection.execute(
                f"SELECT * FROM log {where} ORDER BY sequence",  # noqa: S608 - constant text
                [kind.value for kind in kinds],
            ):
                entry = _entry(row)
                _require_sound(entry)
                yield entry

    def candidate(self, candidate_id: str) -> Candidate:
        """Return the candidate with this id.

        Raises:
            RunDamaged: there is none, or it cannot be read.
        """
        row = self._one("SELECT * FROM candidates WHERE id = ?", candidate_id)
        if row is None:
            raise RunDamaged(f"{self._path} lacks candidate {candidate_id[:12]}; {_SALVAGE}")
        with self._legible():
            return _candidate(row)

    def attempt_number(self, candidate_id: str) -> int:
        """Return the candidate's number among the evaluated, from 1; 0 for an unknown one."""
        (count,) = self._one(
            "SELECT count(*) FROM log WHERE kind = ? AND sequence <= "
            "(SELECT min(sequence) FROM log WHERE kind = ? AND candidate_id = ?)",
            EntryKind.EVALUATED.value,
            EntryKind.EVALUATED.value,
            candidate_id,
        )
        return int(count)

    def latest_evaluation(self, candidate_id: str) -> Evaluation:
        """Return what was last found about the candidate, confirmations apart.

        A confirmation is left out since the search must not feed on it.

        Raises:
            RunDamaged: it was never evaluated, or the evaluation cannot be read.
        """
        row = self._one(
            "SELECT evaluation FROM log WHERE candidate_id = ? AND kind IN (?, ?) "
            "ORDER BY sequence DESC LIMIT 1",
            candidate_id,
            EntryKind.EVALUATED.value,
            EntryKind.REMEASURED.value,
        )
        if row is None:
            raise RunDamaged(f"{self._path} lacks candidate {candidate_id[:12]}; {_SALVAGE}")
        with self._legible():
            return Evaluation.model_validate_json(row[0])

    def _prepare_for_writing(self) -> None:
        for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON"):
            self._connection.execute(f"PRAGMA {pragma}")

    def _check_version(self) -> None:
        (found,) = self._one("PRAGMA user_version")
        if found != SCHEMA_VERSION:
            raise RunDamaged(
                f"{self._path} is of {_age(found)} version of ksmith (schema {found}; this one "
                f"reads {SCHEMA_VERSION}); read or resume it with the version that wrote it, or "
                "start a new run in another directory"
            )

    def _check_integrity(self) -> None:
        (found,) = self._one("PRAGMA quick_check(1)")
        if found != "ok":
            raise RunDamaged(f"{self._path} is corrupted ({found}); {_SALVAGE}")

    def _one(self, query: str, *values: str) -> Any:
        with self._translated():
            return self._connection.execute(query, values).fetchone()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Turn SQLite's errors into ours, which say what to do."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            if _cannot_write(error):
                raise RunUnwritable(
                    f"{self._path}: {error}; free some space there, then run again with --resume: "
                    "every finished evaluation is kept"
                ) from error
            raise RunDamaged(f"{self._path}: {error}; {_SALVAGE}") from error

    @contextmanager
    def _legible(self) -> Iterator[None]:
        """Turn what a row's content breaks into our error: damage, or another version."""
        try:
            yield
        except (ValueError, TypeError, SyntaxError) as error:
            what = complaint(error) if isinstance(error, ValidationError) else error
            raise RunDamaged(
                f"{self._path} holds a row that is damaged or of another version of ksmith: "
                f"{what}; {_SALVAGE}"
            ) from error


def _age(schema_version: int) -> str:
    return "an older" if schema_version < SCHEMA_VERSION else "a newer"


def _cannot_write(error: sqlite3.DatabaseError) -> bool:
    """Whether the disk is full or fails; on a full one, WAL's shared memory fails first."""
    code = getattr(error, "sqlite_errorcode", 0)  # not every error of a damaged file has one
    if code in (sqlite3.SQLITE_IOERR_READ, sqlite3.SQLITE_IOERR_SHORT_READ):
        return False
    return code & 0xFF in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)


_SALVAGE = (
    "restore it from a copy, salvage it with `sqlite3 run.db .recover`, or start a new run in "
    "another directory"
)


def _candidate_row(candidate: Candidate) -> tuple[str, ...]:
    return (
        candidate.id,
        candidate.source,
        candidate.backend.value,
        candidate.proposer,
        json.dumps(candidate.parents),
        candidate.description,
    )


def _candidate(row: Any) -> Candidate:
    identity, source, backend, proposer, parents, description = row
    return Candidate(
        id=identity,
        source=source,
        backend=BackendName(backend),
        proposer=proposer,
        parents=tuple(json.loads(parents)),
        description=description,
    )


def _entry_row(entry: LogEntry) -> tuple[object, ...]:
    return (
        entry.sequence,
        entry.kind.value,
        entry.ticket,
        entry.proposer,
        entry.candidate_id,
        entry.parent_id,
        entry.evaluation.model_dump_json() if entry.evaluation else None,
        entry.cost.seconds,
        entry.cost.device_seconds,
        entry.cost.prompt_tokens,
        entry.cost.completion_tokens,
        entry.cost.money_usd,
        entry.elapsed_seconds,
        entry.island,
        entry.detail,
        entry.at.astimezone(UTC).isoformat(),
    )


def _entry(row: Any) -> LogEntry:
    (
        number,
        kind,
        ticket,
        proposer,
        candidate,
        parent,
        evaluation,
        *cost,
        elapsed,
        island,
        detail,
        at,
    ) = row
    return LogEntry(
        sequence=number,
        kind=EntryKind(kind),
        ticket=ticket,
        proposer=proposer,
        candidate_id=candidate,
        parent_id=parent,
        evaluation=Evaluation.model_validate_json(evaluation) if evaluation else None,
        cost=Cost(*cost),
        elapsed_seconds=elapsed,
        island=island,
        detail=detail,
        at=datetime.fromisoformat(at),
    )


def _require_sound(entry: LogEntry) -> None:
    """Raise ``ValueError`` where an entry holds what no search writes."""
    cost = (entry.cost.seconds, entry.cost.device_seconds, entry.cost.money_usd)
    counts = (entry.ticket, entry.island, entry.cost.prompt_tokens, entry.cost.completion_tokens)
    judged = entry.evaluation
    wrong = {
        "a time or a cost": not all(
            isinstance(n, float | int) and 0 <= n < math.inf for n in (*cost, entry.elapsed_seconds)
        ),
        "a count": not all(isinstance(n, int) and n >= 0 for n in counts),
        "its proposer": entry.kind is EntryKind.EVALUATED and not entry.proposer,
        "its evaluation": (judged is None) == (entry.kind in _JUDGING)
        or (judged is not None and judged.candidate_id != entry.candidate_id),
    }
    found = [name for name, is_wrong in wrong.items() if is_wrong]
    if found:
        raise ValueError(f"entry {entry.sequence} lacks or falsifies {', '.join(found)}")


_JUDGING = (EntryKind.EVALUATED, EntryKind.REMEASURED, EntryKind.CONFIRMED)
