"""What a run amounts to: a pure function of its log.

The published speedup comes from a confirmation alone: fresh processes that had no part in
the selection. The winner is the first contender, in the order in which the search ranked
them, that its confirmation upholds; taking the largest confirmed number instead would
select on the very noise that the confirmation is there to remove.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat, model_validator

from evaluator.candidate import BackendName
from evaluator.evaluation import Baseline, Environment, Evaluation, Speedup, Status, Verdict
from evaluator.problem import Problem
from evaluator.records import Record
from evolver.cost_report import CostReport, CostTally
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
    gain: PositiveFloat
    """Factor by which its candidates raised the best lower bound seen, from eager's 1 on."""
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
    """Candidates that were judged."""
    duplicates: NonNegativeInt
    counts: dict[Status, NonNegativeInt]
    """Of evaluations: where the machine failed, a candidate has another one later."""
    proposers: tuple[ProposerSummary, ...]
    seconds: NonNegativeFloat
    """Wall time over all sessions."""
    costs: CostReport = CostReport()
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
    config: RunConfig, problem: Problem, entries: Iterable[LogEntry], path: Path
) -> Summary:
    """Return the summary of a run from its whole log, read once from beginning to end."""
    tally = _Tally()
    for entry in entries:
        tally.add(entry)
    outcome = tally.outcome()
    winner = tally.winner if outcome is Outcome.FASTER else None
    speedups = winner.evaluation.speedups if winner and winner.evaluation else ()
    correct = sum(p.correct for p in tally.proposers.values())
    return Summary(
        outcome=outcome,
        message=_message(outcome, speedups, tally.evaluated, correct, tally.shortfalls),
        problem_id=problem.id,
        target=problem.origin.target,
        backend=config.backend,
        seed=config.seed,
        best_candidate_id=winner.candidate_id if winner else None,
        speedups=speedups,
        evaluated=tally.evaluated,
        duplicates=sum(p.duplicates for p in tally.proposers.values()),
        counts=dict(tally.counts.most_common()),
        proposers=tuple(tally.proposers[name].summary(name) for name in sorted(tally.proposers)),
        seconds=tally.last.elapsed_seconds if tally.last else 0.0,
        costs=tally.costs.report(),
        environment=tally.environment,
        versions=config.versions,
        reproduce=_reproduce(config, path),
    )


def winning_entry(entries: Iterable[LogEntry]) -> LogEntry | None:
    """Return the confirmation that names the run's winner, or None.

    Confirmations are logged in the order of the contenders' rank, and a session stops at
    the first that is upheld, so the last one upheld belongs to the latest session.
    """
    winner = None
    for entry in entries:
        if entry.kind is EntryKind.CONFIRMED and is_upheld(entry):
            winner = entry
    return winner


def is_upheld(entry: LogEntry) -> bool:
    """Whether a confirmation found its candidate faster than the reference."""
    speedup = entry.evaluation.speedup(Baseline.EAGER) if entry.evaluation else None
    return speedup is not None and speedup.verdict is Verdict.FASTER


def describe(speedup: Speedup) -> str:
    """Return a speedup as a person reads it: value, interval, baseline."""
    return (
        f"{speedup.value:.3f}x vs {speedup.baseline.value} "
        f"[{speedup.low:.3f}, {speedup.high:.3f} at {speedup.confidence:.0%}]"
    )


class _Tally:
    """What one pass over the log has counted so far."""

    def __init__(self) -> None:
        self.last: LogEntry | None = None
        self.winner: LogEntry | None = None
        self.environment: Environment | None = None
        self.counts: Counter[Status] = Counter()
        self.shortfalls: list[str] = []
        self.proposers: dict[str, _ProposerTally] = {}
        self.costs = CostTally()
        self._best_bound = 1.0

    def add(self, entry: LogEntry) -> None:
        """Count the next entry."""
        self.last = entry
        self.costs.add(entry)
        self.winner = winning_entry([entry]) or self.winner
        if entry.proposer:
            self.proposers.setdefault(entry.proposer, _ProposerTally()).add(entry)
        if entry.kind in (EntryKind.SEEDED, EntryKind.BROKEN) and entry.detail:
            self.shortfalls.append(f"{entry.proposer}: {entry.detail}")
        if entry.kind is EntryKind.STOPPED and not self.proposers:
            self.shortfalls.append(entry.detail)  # nobody was asked
        if entry.kind is EntryKind.EVALUATED and entry.evaluation:
            self.counts[entry.evaluation.status] += 1
            self.environment = entry.evaluation.environment
            self._credit(self.proposers[entry.proposer], entry.evaluation)

    def _credit(self, proposer: _ProposerTally, evaluation: Evaluation) -> None:
        speedup = evaluation.speedup(Baseline.EAGER)
        if speedup is None:
            return
        proposer.best_screened = max(speedup.value, proposer.best_screened or 0.0)
        if speedup.lower_99 > self._best_bound:
            proposer.gain *= speedup.lower_99 / self._best_bound
            self._best_bound = speedup.lower_99

    @property
    def evaluated(self) -> int:
        """How many candidates were judged; one that the machine failed was not, yet."""
        return sum(n for status, n in self.counts.items() if not status.is_machines_fault)

    def outcome(self) -> Outcome:
        """Return how the run has ended, if it has."""
        if self.last is None or self.last.kind is not EntryKind.STOPPED:
            return Outcome.UNFINISHED
        if self.winner is not None:
            return Outcome.FASTER
        if self.counts[Status.NOT_MEASURED] and not self.counts[Status.OK]:
            return Outcome.UNMEASURED
        if self.counts and not self.evaluated:
            return Outcome.UNMEASURED
        return Outcome.NOTHING_FASTER


@dataclass
class _ProposerTally:
    evaluated: int = 0
    correct: int = 0
    duplicates: int = 0
    seconds: float = 0.0
    gain: float = 1.0
    best_screened: float | None = None

    def add(self, entry: LogEntry) -> None:
        self.seconds += entry.cost.seconds
        self.duplicates += entry.kind is EntryKind.DUPLICATE
        if entry.kind is not EntryKind.EVALUATED or entry.evaluation is None:
            return
        self.evaluated += not entry.evaluation.status.is_machines_fault
        self.correct += entry.evaluation.status in (Status.OK, Status.NOT_MEASURED)

    def summary(self, name: str) -> ProposerSummary:
        return ProposerSummary(name=name, **asdict(self))


def _message(
    outcome: Outcome,
    speedups: Sequence[Speedup],
    evaluated: int,
    correct: int,
    shortfalls: Sequence[str],
) -> str:
    if outcome is Outcome.FASTER:
        return f"faster: {', '.join(describe(s) for s in speedups)}, confirmed in fresh processes"
    if outcome is Outcome.UNMEASURED and not correct:
        return (
            "unmeasured: all evaluations failed through the machine's fault; quiet or mend it "
            "(`ksmith doctor`), then continue with --resume"
        )
    if outcome is Outcome.UNMEASURED:
        return (
            f"unmeasured: of {evaluated} candidates some are correct, but there is no device here "
            "to time them on; run the search again on a machine with a GPU"
        )
    if outcome is Outcome.UNFINISHED:
        return f"unfinished after {evaluated} candidates; continue it with --resume"
    if evaluated == 0:
        why = "; ".join(dict.fromkeys(shortfalls)) or "they do not fit this problem"
        return f"no proposer offered a candidate ({why}); nothing was judged"
    return (
        f"nothing faster than the reference was found and confirmed in {evaluated} candidates; "
        "the reference is the better choice so far"
    )


def _reproduce(config: RunConfig, path: Path) -> str:
    words = ["ksmith", "optimize", str(path / "problem"), "--backend", config.backend.value]
    if config.steps is not None:
        words += ["--steps", str(config.steps)]
    if config.minutes is not None:
        words += ["--minutes", f"{config.minutes:g}"]
    if config.gpu_seconds is not None:
        words += ["--gpu-seconds", f"{config.gpu_seconds:g}"]
    if config.adaptive:
        words += ["--adaptive"]
    if config.llm is not None:
        words += ["--llm", str(path / "run.yaml")]
    words += ["--seed", str(config.seed)]
    words += ["--mode", config.mode.value, "--islands", str(config.islands)]
    words += [] if config.known else ["--no-library"]
    return shlex.join([*words, "-o", f"{path}-again"])
