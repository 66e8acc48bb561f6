"""What a report says, gathered from the run before anything is drawn or laid out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import unified_diff

from evaluator.candidate import Candidate
from evaluator.evaluation import Baseline, Evaluation, Speedup
from evaluator.problem import LoadedProblem
from evolver.descriptors import complexity_of
from evolver.run import Run, RunConfig, StoredAttempt
from evolver.store import EntryKind
from evolver.strategy import place_of
from evolver.summary import Outcome, Summary


@dataclass(frozen=True)
class CurvePoint:
    """A measured speedup over eager at an attempt's number."""

    number: int
    speedup: Speedup


@dataclass(frozen=True)
class MapPoint:
    """A measured candidate in the archive's two dimensions."""

    number: int
    size: int
    """Complexity of its kernels."""
    score: float
    """Lower 99 % bound of the screened speedup over eager."""
    is_featured: bool


@dataclass(frozen=True)
class Step:
    """One candidate of a lineage, with its difference from the one before (None for the first)."""

    candidate: Candidate
    number: int | None
    strategy: str
    """What kind of program it is, in a few words."""
    others: tuple[int, ...]
    """Numbers of its other parents, where it was crossed."""
    speedup: Speedup | None
    """As screened."""
    diff: str | None


@dataclass(frozen=True)
class Content:
    """Everything on the page. ``featured`` is the winner, else the best that was screened."""

    written_at: datetime
    config: RunConfig
    loaded: LoadedProblem
    summary: Summary
    attempts: Sequence[StoredAttempt]
    featured: StoredAttempt | None
    lineage: Sequence[Step]
    screened: Sequence[CurvePoint]
    confirmed: Sequence[CurvePoint]
    archive: Sequence[MapPoint]
    run_path: str
    diff: str | None

    @property
    def has_winner(self) -> bool:
        """Whether ``featured`` was confirmed to be faster."""
        return self.summary.outcome is Outcome.FASTER


def gather(run: Run, *, diff: str | None) -> Content:
    """Read all that the report of ``run`` says."""
    summary, attempts = run.summary(), run.attempts()
    winner = run.best() if summary.outcome is Outcome.FASTER else None
    featured = winner or best_screened(attempts)
    by_id = {a.candidate.id: a for a in attempts}
    return Content(
        written_at=datetime.now(UTC),
        config=run.config,
        loaded=run.loaded,
        summary=summary,
        attempts=attempts,
        featured=featured,
        lineage=_lineage(featured.candidate, by_id) if featured else (),
        screened=[p for a in attempts if (p := _point(a.number, a.evaluation))],
        confirmed=_confirmed(run, by_id),
        archive=_archive(attempts, featured),
        run_path=str(run.path),
        diff=diff,
    )


def best_screened(attempts: Sequence[StoredAttempt]) -> StoredAttempt | None:
    """Return the attempt with the highest lower bound of its screened speedup over eager."""
    measured = [(s.lower_99, a) for a in attempts if (s := a.evaluation.speedup(Baseline.EAGER))]
    return max(measured, key=lambda pair: pair[0])[1] if measured else None


def _point(number: int, evaluation: Evaluation | None) -> CurvePoint | None:
    speedup = evaluation.speedup(Baseline.EAGER) if evaluation else None
    return CurvePoint(number, speedup) if speedup else None


def _confirmed(run: Run, by_id: Mapping[str, StoredAttempt]) -> list[CurvePoint]:
    """Return every confirmation, upheld or not, at the number of its candidate's attempt."""
    points: list[CurvePoint] = []
    for entry in run.store.entries(EntryKind.CONFIRMED):
        attempt = by_id.get(entry.candidate_id or "")
        point = _point(attempt.number, entry.evaluation) if attempt else None
        points += [point] if point else []
    return points


def _archive(attempts: Sequence[StoredAttempt], featured: StoredAttempt | None) -> list[MapPoint]:
    return [
        MapPoint(
            number=attempt.number,
            size=complexity_of(attempt.candidate).size,
            score=speedup.lower_99,
            is_featured=featured is not None and attempt.candidate.id == featured.candidate.id,
        )
        for attempt in attempts
        if (speedup := attempt.evaluation.speedup(Baseline.EAGER))
    ]


def _lineage(winner: Candidate, by_id: Mapping[str, StoredAttempt]) -> list[Step]:
    """Return the chain of first parents that leads to ``winner``, oldest first."""
    chain = [winner]
    seen = {winner.id}
    while chain[0].parents and (parent := by_id.get(chain[0].parents[0])):
        if parent.candidate.id in seen:
            break
        seen.add(parent.candidate.id)
        chain.insert(0, parent.candidate)
    parents: list[Candidate | None] = [None, *chain[:-1]]
    return [_step(c, p, by_id) for c, p in zip(chain, parents, strict=True)]


def _step(
    candidate: Candidate, parent: Candidate | None, by_id: Mapping[str, StoredAttempt]
) -> Step:
    attempt = by_id.get(candidate.id)
    return Step(
        candidate=candidate,
        number=attempt.number if attempt else None,
        strategy=str(place_of(candidate).strategy),
        others=tuple(by_id[other].number for other in candidate.parents[1:] if other in by_id),
        speedup=attempt.evaluation.speedup(Baseline.EAGER) if attempt else None,
        diff=None if parent is None else source_diff(parent, candidate),
    )


def source_diff(parent: Candidate, child: Candidate) -> str:
    """Return the unified diff from ``parent`` to ``child``."""
    lines = unified_diff(
        parent.source.splitlines(),
        child.source.splitlines(),
        fromfile=f"parent {parent.id[:8]}",
        tofile=f"child {child.id[:8]}",
        lineterm="",
    )
    return "\n".join(lines)
