"""What became of one problem: a row of the work folder, and how it is read from a run."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Self

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    model_validator,
)

from benchmarks.appended import append_records, read_records
from evaluator.evaluation import Baseline, Evaluation, Speedup, Status, Verdict
from evaluator.records import Record
from evolver.run import Run
from evolver.state import has_verdict
from evolver.store import EntryKind, LogEntry


class Outcome(StrEnum):
    """How a problem ended."""

    MEASURED = "measured"
    REFUSED = "refused"
    """It cannot be carried as it is; no figure counts it."""
    TOO_LARGE = "too_large"
    """For this machine, or for what was asked; a later session may take it."""
    FAILED = "failed"
    """The machine's fault; a later session tries it again."""


class Ratio(Record):
    """One time over another."""

    value: PositiveFloat
    low: PositiveFloat
    high: PositiveFloat
    faster: bool = False
    """Whether it was confirmed to be above 1 by more than noise."""

    @classmethod
    def of(cls, speedup: Speedup, *, confirmed: bool) -> Self:
        """What a speedup says; without a confirmation it is no win."""
        faster = confirmed and speedup.verdict is Verdict.FASTER
        return cls(value=speedup.value, low=speedup.low, high=speedup.high, faster=faster)

    def inverse(self, threshold: float) -> Ratio:
        """The other way round; ``faster`` where the whole interval lies above ``threshold``."""
        low = 1 / self.high
        return Ratio(value=1 / self.value, low=low, high=1 / self.low, faster=low > threshold)


class Row(Record):
    """One problem."""

    id: str
    level: int
    number: int
    outcome: Outcome
    reason: str = ""
    """Why it was refused or failed."""
    degenerate: tuple[str, ...] = ()
    """Why a win on it would prove nothing: what is known, and what the intake probe found."""
    compiled: Ratio | None = None
    """``torch.compile`` over eager; None where it does not compile."""
    correct: bool = False
    """Whether any candidate was."""
    found: Ratio | None = None
    """The winner over eager; where none was confirmed, the best correct candidate as screened."""
    found_vs_compiled: Ratio | None = None
    confirmed: bool = False
    rounds: NonNegativeInt = 0
    """Blocks of both sides that ``found`` rests on."""
    unimproved: bool = False
    """Whether what was found does the reference's own work: correct, and never faster."""
    found_at: NonNegativeInt | None = None
    """Its number among the evaluated candidates, from 1."""
    own: bool | None = None
    """Whether the winner leaves no computing to the library; None where nothing tells."""
    trivial: bool | None = None
    candidate: str = ""
    proposer: str = ""
    curve: tuple[tuple[int, float], ...] = ()
    """(evaluations, the best speedup screened as faster by then), where it rises."""
    evaluated: NonNegativeInt = 0
    statuses: dict[str, NonNegativeInt] = Field(default_factory=dict)
    evaluation_seconds: NonNegativeFloat = 0.0
    """Wall time of evaluations."""
    device_seconds: NonNegativeFloat = 0.0
    """For how long they held the device."""
    seconds: NonNegativeFloat = 0.0

    @model_validator(mode="after")
    def _a_win_is_a_confirmed_number(self) -> Row:
        if self.found is not None and self.found.faster and not self.confirmed:
            raise ValueError("a win rests on a confirmation")
        if self.found is not None and not self.correct:
            raise ValueError("what is found is correct")
        return self

    @property
    def score(self) -> float:
        """The speedup where it is confirmed as faster, else 0."""
        return self.found.value if self.found is not None and self.found.faster else 0.0

    @property
    def point_score(self) -> float:
        """The speedup where it is 1 or more by whatever margin, as the papers count."""
        if self.found is None or self.unimproved or self.found.value < 1:
            return 0.0
        return self.found.value

    def score_after(self, evaluations: int) -> float:
        """The score had the search stopped after so many evaluations.

        What was screened by then counts at most as much as what was confirmed in the end,
        and not at all where nothing was.
        """
        if self.found_at is not None and self.found_at <= evaluations:
            return self.score
        screened = max((value for at, value in self.curve if at <= evaluations), default=0.0)
        return min(self.score, screened)


def row_of_run(run: Run, row: Row, *, library_share: float) -> Row:
    """Return ``row`` with what the log of a finished search says.

    Args:
        run: open, its search at its end.
        row: with what is known of the problem.
        library_share: of the time, up to which a winner's kernels are its own.
    """
    entries = list(run.log())
    evaluations = [e for e in entries if e.evaluation is not None]
    judged = [e.evaluation for e in evaluations if e.evaluation is not None]
    attempts = [e.evaluation for e in entries if e.kind is EntryKind.EVALUATED and e.evaluation]
    verdicts = [a for a in attempts if has_verdict(a)]  # the machine's faults are tried again
    best = run.best()
    shown = best.evaluation if best is not None else _best_correct(evaluations)
    winner = run.store.candidate(shown.candidate_id) if shown is not None else None
    eager = shown.speedup(Baseline.EAGER) if shown is not None else None
    compiled = shown.speedup(Baseline.COMPILED) if shown is not None else None
    confirmed = best is not None
    numbers = {a.candidate_id: n for n, a in enumerate(verdicts, start=1)}
    statuses = [a.status.value for a in verdicts]
    correct = any(a.status is Status.OK for a in verdicts)
    faults = len(attempts) - len(verdicts)
    return row.model_copy(
        update={
            "outcome": Outcome.MEASURED if correct or not faults else Outcome.FAILED,
            "reason": "" if correct or not faults else f"the machine failed {faults} evaluations",
            "correct": correct,
            "found": Ratio.of(eager, confirmed=confirmed) if eager is not None else None,
            "found_vs_compiled": (
                Ratio.of(compiled, confirmed=confirmed) if compiled is not None else None
            ),
            "confirmed": confirmed,
            "rounds": eager.blocks if eager is not None else 0,
            "unimproved": eager is not None and eager.verdict is Verdict.UNIMPROVED,
            "found_at": numbers.get(shown.candidate_id) if shown is not None else None,
            "own": _is_own(best.evaluation, library_share) if best is not None else None,
            "trivial": (
                best.evaluation.triviality.trivial
                if best is not None and best.evaluation.triviality is not None
                else None
            ),
            "candidate": winner.description if winner is not None else "",
            "proposer": winner.proposer if winner is not None else "",
            "curve": _curve(verdicts),
            "evaluated": len(verdicts),
            "statuses": {s: statuses.count(s) for s in sorted(set(statuses))},
            "evaluation_seconds": sum(e.seconds for e in judged),
            "device_seconds": sum(e.device_seconds for e in judged),
        }
    )


def _best_correct(entries: Sequence[LogEntry]) -> Evaluation | None:
    """The candidate with the best lower bound, by its latest measurement."""
    latest = {e.candidate_id: e.evaluation for e in entries}
    timed = [e for e in latest.values() if e is not None and e.speedup() is not None]
    return max(timed, key=lambda e: s.lower_99 if (s := e.speedup()) else 0.0, default=None)


def _is_own(evaluation: Evaluation, library_share: float) -> bool | None:
    shares = [c.library_share for c in evaluation.census]
    if not shares or None in shares:
        return None
    return all(share is not None and share <= library_share for share in shares)


def _curve(attempts: Sequence[Evaluation]) -> tuple[tuple[int, float], ...]:
    points: list[tuple[int, float]] = []
    for number, evaluation in enumerate(attempts, start=1):
        speedup = evaluation.speedup()
        if speedup is None or speedup.verdict is not Verdict.FASTER:
            continue
        if not points or speedup.value > points[-1][1]:
            points.append((number, speedup.value))
    return tuple(points)


class RowFile:
    """The rows of a work folder, one line of JSON each, appended as they come."""

    def __init__(self, path: Path) -> None:
        """Read what is there; what may end otherwise now will be tried again."""
        self._path = path
        self.rows: dict[str, Row] = {}
        for row in read_records(path, Row):
            if row.outcome in (Outcome.MEASURED, Outcome.REFUSED):
                self.rows[row.id] = row

    def add(self, row: Row) -> None:
        """Append ``row`` and write it through."""
        append_records(self._path, [row])
        self.rows[row.id] = row
