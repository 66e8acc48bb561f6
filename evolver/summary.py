"""What a run amounts to: a pure function of its log.

The published speedup comes from a confirmation alone: fresh processes that had no part in
the selection. The winner is the first contender, in the order in which the search ranked
them, that its confirmation upholds; taking the largest confirmed number instead would
select on the very noise that the confirmation is there to remove.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import NonNegativeFloat, NonNegativeInt, model_validator

from evaluator.candidate import BackendName
from evaluator.evaluation import Baseline, Environment, Speedup, Status, Verdict
from evaluator.problem import Problem
from evaluator.records import Record
from evolver.store import EntryKind, LogEntry

if TYPE_CHECKING:
    from evolver.run import RunConfig


class Outcome(StrEnum):
    """How a run ended."""

    FASTER = "faster"
    """A candidate is faster than the reference, and a confirmation upholds it."""
    NOTHING_FASTER = "nothing_faster"
    UNMEASURED = "unmeasured"
    """Candidates are correct, but there was no device to time them on."""
    UNFINISHED = "unfinished"
    """In progress, interrupted or killed; ``--resume`` continues it."""


class ProposerSummary(Record):
    """What one proposer cost and brought."""

    name: str
    evaluated: NonNegativeInt
    correct: NonNegativeInt
    duplicates: NonNegativeInt
    seconds: NonNegativeFloat
    """Wall time of its proposals and their evaluations."""
    best_screened: float | None = None
    """Largest speedup over eager that a screening saw: not a result, only a confirmation is."""


class Summary(Record):
    """The content of ``summary.json``."""

    schema_version: Literal[1] = 1
    outcome: Outcome
    message: str
    """One line for people."""
    problem_id: str
    target: str
    backend: BackendName
    seed: int
    best_candidate_id: str | None = None
    speedups: tuple[Speedup, ...] = ()
    """Confirmed, per baseline. Empty unless the outcome is ``faster``."""
    evaluated: NonNegativeInt
    duplicates: NonNegativeInt
    counts: dict[Status, NonNegativeInt]
    proposers: tuple[ProposerSummary, ...]
    seconds: NonNegativeFloat
    """Wall time over all sessions."""
    environment: Environment | None = None
    versions: dict[str, str]
    reproduce: str
    """The command that runs the same search again."""

    @model_validator(mode="after")
    def _only_a_winner_has_a_number(self) -> Summary:
        won = self.outcome is Outcome.FASTER
        if won != bool(self.speedups) or won != (self.best_candidate_id is not None):
            raise ValueError("a run has a best candidate and speedups exactly when it found faster")
        return self


def summarise(
    config: RunConfig, problem: Problem, entries: Sequence[LogEntry], path: Path
) -> Summary:
    """Return the summary of a run from its whole log."""
    evaluations = [e.evaluation for e in entries if e.kind is EntryKind.EVALUATED and e.evaluation]
    counts = Counter(e.status for e in evaluations)
    outcome = _outcome(entries, counts)
    winner = winning_entry(entries) if outcome is Outcome.FASTER else None
    confirmation = winner.evaluation if winner else None
    return Summary(
        outcome=outcome,
        message=_message(outcome, confirmation.speedups if confirmation else (), len(evaluations)),
        problem_id=problem.id,
        target=problem.origin.target,
        backend=config.backend,
        seed=config.seed,
        best_candidate_id=winner.candidate_id if winner else None,
        speedups=confirmation.speedups if confirmation else (),
        evaluated=len(evaluations),
        duplicates=sum(e.kind is EntryKind.DUPLICATE for e in entries),
        counts=dict(sorted(counts.items(), key=lambda item: -item[1])),
        proposers=_proposers(entries),
        seconds=entries[-1].elapsed_seconds if entries else 0.0,
        environment=evaluations[-1].environment if evaluations else None,
        versions=config.versions,
        reproduce=_reproduce(config, path),
    )


def winning_entry(entries: Sequence[LogEntry]) -> LogEntry | None:
    """Return the confirmation that names the run's winner, or None.

    Confirmations are logged in the order of the contenders' rank, and a session stops at
    the first that is upheld, so the last one upheld belongs to the latest session.
    """
    upheld = [e for e in entries if e.kind is EntryKind.CONFIRMED and is_upheld(e)]
    return upheld[-1] if upheld else None


def is_upheld(entry: LogEntry) -> bool:
    """Whether a confirmation found its candidate faster than the reference."""
    speedup = entry.evaluation.speedup(Baseline.EAGER) if entry.evaluation else None
    return speedup is not None and speedup.verdict is Verdict.FASTER


def describe(speedup: Speedup) -> str:
    """Return a speedup as a person reads it: value, interval, baseline."""
    return (
        f"{speedup.value:.3g}x vs {speedup.baseline.value} "
        f"[{speedup.low:.3g}, {speedup.high:.3g} at {speedup.confidence:.0%}]"
    )


def _outcome(entries: Sequence[LogEntry], counts: Counter[Status]) -> Outcome:
    if not entries or entries[-1].kind is not EntryKind.STOPPED:
        return Outcome.UNFINISHED
    if winning_entry(entries) is not None:
        return Outcome.FASTER
    if counts[Status.NOT_MEASURED] and not counts[Status.OK]:
        return Outcome.UNMEASURED
    return Outcome.NOTHING_FASTER


def _message(outcome: Outcome, speedups: Sequence[Speedup], evaluated: int) -> str:
    if outcome is Outcome.FASTER:
        return f"faster: {', '.join(describe(s) for s in speedups)}, confirmed in fresh processes"
    if outcome is Outcome.UNMEASURED:
        return (
            f"unmeasured: of {evaluated} candidates some are correct, but there is no device here "
            "to time them on; run the search again on a machine with a GPU"
        )
    if outcome is Outcome.UNFINISHED:
        return f"unfinished after {evaluated} candidates; continue it with --resume"
    return (
        f"nothing faster than the reference was found and confirmed in {evaluated} candidates; "
        "the reference is the better choice so far"
    )


def _proposers(entries: Sequence[LogEntry]) -> tuple[ProposerSummary, ...]:
    names = sorted({e.proposer for e in entries if e.proposer})
    return tuple(_proposer(name, [e for e in entries if e.proposer == name]) for name in names)


def _proposer(name: str, entries: Sequence[LogEntry]) -> ProposerSummary:
    evaluations = [e.evaluation for e in entries if e.kind is EntryKind.EVALUATED and e.evaluation]
    speedups = [s.value for s in (e.speedup(Baseline.EAGER) for e in evaluations) if s]
    return ProposerSummary(
        name=name,
        evaluated=len(evaluations),
        correct=sum(e.status in (Status.OK, Status.NOT_MEASURED) for e in evaluations),
        duplicates=sum(e.kind is EntryKind.DUPLICATE for e in entries),
        seconds=sum(e.seconds for e in entries),
        best_screened=max(speedups, default=None),
    )


def _reproduce(config: RunConfig, path: Path) -> str:
    words = ["ksmith", "optimize", str(path / "problem"), "--backend", config.backend.value]
    if config.steps is not None:
        words += ["--steps", str(config.steps)]
    if config.minutes is not None:
        words += ["--minutes", f"{config.minutes:g}"]
    return shlex.join([*words, "--seed", str(config.seed), "-o", f"{path}-again"])
