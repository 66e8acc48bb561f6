"""Run directories: one search over one problem, on disk.

    run.yaml       what was asked: problem, backend, seed, budget, versions
    run.db         the log of the search (``evolver/store.py``), the only checkpoint
    problem/       a copy of the problem, so that the run stands alone
    llm.jsonl      all that was sent to models and received, where some were asked
    best/          candidate.py and evaluation.json of the confirmed winner, if there is one
    summary.json   the outcome (``evolver/summary.py``), rewritten whole
    lock           held by the process that searches

``Run.open`` reads, also while a search writes. ``Run.create`` and ``Run.resume`` write,
and hold the lock until they are closed. A directory appears whole or not at all.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import IO, Literal, Self

import yaml
from pydantic import NonNegativeFloat, NonNegativeInt, PositiveInt, ValidationError

from evaluator.candidate import BackendName, Candidate
from evaluator.evaluation import Evaluation
from evaluator.problem import (
    PROBLEM_FILE,
    REFERENCE_FILE,
    LoadedProblem,
    load_problem,
    sha256_text,
)
from evaluator.records import Record, complaint
from evolver.budget import Budget
from evolver.costs import Cost
from evolver.errors import (
    RunDamaged,
    RunExists,
    RunLocked,
    RunMismatch,
    RunMissing,
    RunUnwritable,
)
from evolver.library.entry import Known
from evolver.modes import SearchMode
from evolver.proposers.llm.config import LlmConfig
from evolver.store import EntryKind, LogEntry, Store
from evolver.summary import Summary, summarise, winning_entry

CONFIG_FILE = "run.yaml"
DATABASE_FILE = "run.db"
PROBLEM_DIRECTORY = "problem"
BEST_DIRECTORY = "best"
SUMMARY_FILE = "summary.json"
LOCK_FILE = "lock"
ISLANDS = 2
"""Of a search that is not told how many."""


class RunConfig(Record):
    """What was asked. Problem, backend, seed, mode and islands never change; the rest may.

    A resumption may set a new budget, name other models, or change whether it is adaptive.
    """

    schema_version: Literal[1] = 1
    problem_id: str
    problem_sha256: str
    backend: BackendName
    seed: int = 0
    steps: NonNegativeInt | None = None
    """Evaluations of new candidates; None is no limit."""
    minutes: NonNegativeFloat | None = None
    """Wall time over all sessions; None is no limit."""
    gpu_seconds: NonNegativeFloat | None = None
    """For which the device may be held, over all sessions; None is no limit."""
    mode: SearchMode = SearchMode.EVOLVE
    islands: PositiveInt = ISLANDS
    adaptive: bool = False
    """Whether the search may end, or turn elsewhere, before the budget is spent."""
    llm: LlmConfig | None = None
    """The models that are asked, and how; None asks none. A resumption may name others."""
    known: tuple[Known, ...] = ()
    """What worked elsewhere, as the library told it when the run began."""
    versions: dict[str, str]
    created_at: datetime

    @property
    def budget(self) -> Budget:
        """What the run may spend; the limits of tokens and money are those of its models."""
        return Budget(
            steps=self.steps,
            minutes=self.minutes,
            gpu_seconds=self.gpu_seconds,
            tokens=self.llm.max_tokens if self.llm else None,
            money_usd=self.llm.max_usd if self.llm else None,
        )


@dataclass(frozen=True)
class StoredAttempt:
    """One evaluated candidate: the attempt's number among the evaluated, from 1.

    ``cost`` is that of proposing and evaluating together.
    """

    number: int
    candidate: Candidate
    evaluation: Evaluation
    proposer: str
    cost: Cost
    island: int
    at: datetime


class Run:
    """A run directory that is open. A context manager; ``close`` frees lock and database."""

    def __init__(
        self, path: Path, config: RunConfig, loaded: LoadedProblem, store: Store, held: ExitStack
    ) -> None:
        self.path = path
        self.config = config
        self.loaded = loaded
        self.store = store
        self._held = held

    @classmethod
    def create(cls, path: Path, loaded: LoadedProblem, config: RunConfig) -> Self:
        """Make the run directory ``path`` and open it for writing.

        Raises:
            RunExists: there is something at ``path``.
            RunUnwritable: there is no room, or no permission.
        """
        require_free(path)
        with _writing(path):
            try:
                _make_whole(path, loaded, config)
            except RunUnwritable as error:  # the database's words are those of a run that is there
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path.parent)) from error
        return cls.resume(path)

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open the run at ``path`` for reading; it may be in progress.

        Raises:
            RunMissing: there is no run.
            RunDamaged: a file of it is malformed, or of another version.
        """
        return cls._open(path, writable=False)

    @classmethod
    def resume(
        cls,
        path: Path,
        *,
        loaded: LoadedProblem | None = None,
        backend: BackendName | None = None,
        seed: int | None = None,
        mode: SearchMode | None = None,
        islands: int | None = None,
    ) -> Self:
        """Open the run at ``path`` to continue it, and lock it.

        What is given must be what the run was made with; None asks nothing.

        Raises:
            RunMissing: there is no run.
            RunLocked: another process holds it.
            RunMismatch: it differs from what is given.
            RunDamaged: a file of it is malformed, or of another version.
        """
        run = cls._open(path, writable=True)
        try:
            run._require(loaded, backend=backend, seed=seed, mode=mode, islands=islands)
        except BaseException:
            run.close()
            raise
        return run

    @classmethod
    def _open(cls, path: Path, *, writable: bool) -> Self:
        if not (path / CONFIG_FILE).is_file():
            raise RunMissing(
                f"{path} is not a run directory (no {CONFIG_FILE}); start one with "
                "`ksmith optimize PROBLEM -o RUN`"
            )
        with ExitStack() as stack:
            if writable:
                stack.enter_context(_lock(path / LOCK_FILE))
            config = _read_config(path / CONFIG_FILE)
            loaded = load_problem(path / PROBLEM_DIRECTORY)
            store = Store.open(path / DATABASE_FILE, writable=writable)
            stack.callback(store.close)
            return cls(path, config, loaded, store, stack.pop_all())

    def _require(self, loaded: LoadedProblem | None, **wanted: object) -> None:
        problem = problem_sha256(loaded)[:12] if loaded else None
        asked: dict[str, tuple[object, object]] = {
            "problem": (self.config.problem_sha256[:12], problem)
        }
        asked |= {name: (getattr(self.config, name), wants) for name, wants in wanted.items()}
        differing = [
            f"{name}: the run has {has}, you ask for {wants}"
            for name, (has, wants) in asked.items()
            if wants is not None and wants != has
        ]
        if differing:
            raise RunMismatch(
                f"{self.path} cannot be resumed with this: {'; '.join(differing)}. "
                "Leave the option out, or start a new run in another directory"
            )

    def reconfigure(self, **changes: object) -> None:
        """Write down another budget, models, or adaptiveness: what the run goes on with.

        What was asked last is what the run is reproduced with.

        Raises:
            RunUnwritable: ``run.yaml`` cannot be written.
        """
        config = self.config.model_copy(update=changes)
        if config != self.config:
            with _writing(self.path):
                replace_text(self.path / CONFIG_FILE, config.to_yaml())
            self.config = config

    def log(self) -> Iterator[LogEntry]:
        """Yield every entry of the log, in order."""
        return self.store.entries()

    def attempts(self) -> Sequence[StoredAttempt]:
        """Return all evaluated candidates with their first evaluation, in order."""
        proposing: dict[int, Cost] = {}
        attempts: list[StoredAttempt] = []
        for entry in self.store.entries(EntryKind.PROPOSED, EntryKind.EVALUATED):
            if entry.kind is EntryKind.PROPOSED:
                proposing[entry.ticket] = entry.cost
            else:
                cost = proposing.get(entry.ticket, Cost()) + entry.cost
                attempts.append(self._stored(len(attempts) + 1, entry, cost))
        return attempts

    def best(self) -> StoredAttempt | None:
        """Return the confirmed winner with its confirmation, or None where nothing was upheld."""
        winner = winning_entry(self.store.entries(EntryKind.CONFIRMED))
        if winner is None or winner.candidate_id is None:
            return None
        number = self.store.attempt_number(winner.candidate_id)
        return self._stored(number, winner, winner.cost)

    def summary(self) -> Summary:
        """Return the outcome so far, computed from the log."""
        return summarise(self.config, self.loaded.problem, self.store.entries(), self.path)

    def publish(self) -> Summary:
        """Write ``summary.json``, and ``best/`` where a winner is confirmed.

        Raises:
            RunUnwritable: they cannot be written.
        """
        summary = self.summary()
        best = self.best()
        with _writing(self.path):
            if best is not None:
                folder = self.path / BEST_DIRECTORY
                folder.mkdir(exist_ok=True)
                replace_text(folder / "candidate.py", best.candidate.source)
                replace_text(folder / "evaluation.json", best.evaluation.model_dump_json(indent=2))
            replace_text(self.path / SUMMARY_FILE, summary.model_dump_json(indent=2) + "\n")
        return summary

    def close(self) -> None:
        """Close the database and let go of the lock."""
        self._held.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _stored(self, number: int, entry: LogEntry, cost: Cost) -> StoredAttempt:
        if entry.candidate_id is None or entry.evaluation is None:
            raise RunDamaged(
                f"entry {entry.sequence} of {self.path / DATABASE_FILE} lacks its candidate or "
                "evaluation; start a new run in another directory"
            )
        return StoredAttempt(
            number=number,
            candidate=self.store.candidate(entry.candidate_id),
            evaluation=entry.evaluation,
            proposer=entry.proposer,
            cost=cost,
            island=entry.island,
            at=entry.at,
        )


def _make_whole(path: Path, loaded: LoadedProblem, config: RunConfig) -> None:
    """Make the directory beside its place, then move it there.

    Raises:
        RunExists: another process made a run there meanwhile.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        staging.chmod(0o755)
        _write_problem(staging / PROBLEM_DIRECTORY, loaded)
        (staging / CONFIG_FILE).write_text(config.to_yaml(), encoding="utf-8")
        Store.create(staging / DATABASE_FILE).close()
        try:
            staging.rename(path)
        except OSError:
            require_free(path)  # another process may have made a run there since it was checked
            raise
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Turn the system's errors of writing into ours, which say what to do."""
    try:
        yield
    except OSError as error:
        place = f": {error.filename}" if error.filename is not None else ""
        raise RunUnwritable(
            f"{path} cannot be written: {error.strerror or error}{place}; free some "
            "space, mend the permissions, or name another directory with -o"
        ) from error


def require_free(path: Path) -> None:
    """Check that a run can be made at ``path``.

    Raises:
        RunExists: there is something else than an empty directory.
    """
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise RunExists(
            f"{path} exists; continue it with --resume, or name another directory with -o"
        )


def problem_sha256(loaded: LoadedProblem) -> str:
    """Return the identity of a problem: its description and its reference."""
    return sha256_text(loaded.problem.model_dump_json())


def replace_text(path: Path, text: str) -> None:
    """Write ``path`` so that a reader, or a kill, finds the old text or the new one whole."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _write_problem(folder: Path, loaded: LoadedProblem) -> None:
    folder.mkdir()
    (folder / PROBLEM_FILE).write_text(loaded.problem.to_yaml(), encoding="utf-8")
    (folder / REFERENCE_FILE).write_text(loaded.reference_source, encoding="utf-8")


def _read_config(path: Path) -> RunConfig:
    try:
        return RunConfig.from_yaml(path)
    except (yaml.YAMLError, ValidationError) as error:
        raise RunDamaged(
            f"{path} is malformed or of another version of ksmith: {complaint(error)}; "
            "resume it with the version that wrote it, or start a new run in another directory"
        ) from error


def _lock(path: Path) -> IO[str]:
    """Take the lock. The kernel lets go of it when the process ends, however it ends."""
    with _writing(path):
        handle = path.open("a+", encoding="utf-8")
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        handle.seek(0)
        owner = handle.read().strip() or "unknown"
        handle.close()
        raise RunLocked(
            f"{path.parent} is in use by process {owner}; wait for it or stop it, or name another "
            "directory with -o"
        ) from None
    handle.truncate(0)
    handle.write(str(os.getpid()))
    handle.flush()
    return handle
