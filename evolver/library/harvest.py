"""From a finished run to entries of the library: which of its steps truly made code faster.

A step counts where its child was measured twice (again after it stood out, or confirmed), the
last measurement is taken, and the interval of child over parent lies above 1. Both speedups
are against the same baseline, measured apart; their errors add in quadrature.
"""

from __future__ import annotations

import difflib
import hashlib
import logging
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from evaluator.candidate import Candidate
from evaluator.evaluation import Evaluation, Speedup, Verdict
from evolver.errors import LibraryUnusable
from evolver.library.entry import (
    LONGEST_DIFF_CHARACTERS,
    LONGEST_PLAN_CHARACTERS,
    Change,
    Gain,
    LibraryEntry,
)
from evolver.library.features import features_of, identity_of
from evolver.library.store import Library
from evolver.proposers.llm.transcript import TRANSCRIPT_FILE, read_transcript
from evolver.proposers.mutate.operators import operators_in
from evolver.run import Run
from evolver.store import EntryKind, LogEntry
from evolver.strategy import place_of

log = logging.getLogger(__name__)

LEAST_GAIN = 1.01
"""Lower bounds below this are not worth telling."""


def keep_what_worked(run: Run, library: Library) -> int:
    """Add what ``run`` has shown to ``library``; return how many entries are new.

    A library that cannot be written costs a warning, never the run.
    """
    try:
        return library.add(entries_of(run))
    except LibraryUnusable as error:
        log.warning("%s; what this run has shown is not kept there", error)
        return 0


def entries_of(run: Run) -> list[LibraryEntry]:
    """Return the steps of ``run`` that a second measurement upheld, in their order."""
    plans = plans_in(run.path / TRANSCRIPT_FILE)
    identity = identity_of(run.loaded)
    found = []
    for step in _steps(run.log()):
        gain = _gain(step)
        if gain is None:
            continue
        child, parent = run.store.candidate(step.child), run.store.candidate(step.parent)
        device = device_of(step.after)
        found.append(
            LibraryEntry(
                id=_hash(identity.skeleton, device, parent.id, child.id),
                change=_change(child, parent, plans.get(child.id, "")),
                features=features_of(run.loaded, child.backend, device),
                gain=gain,
                origin=identity,
                versions=run.config.versions,
                at=step.after.finished_at,
            )
        )
    return found


def plans_in(transcript: Path) -> Mapping[str, str]:
    """Return the plans of models by the candidates that they led to."""
    return {
        str(record["candidate_id"]): str(record.get("plan", ""))
        for record in read_transcript(transcript)
        if record.get("kind") == "outcome" and record.get("candidate_id")
    }


def device_of(evaluation: Evaluation) -> str:
    """Return what was timed on: a GPU's name without its number, or ``cpu``."""
    recorded = evaluation.environment.device
    return recorded.partition("(")[2].rstrip(")") or recorded.partition(":")[0]


@dataclass
class _Step:
    """A child with its parent, and what was last found about both."""

    child: str
    parent: str
    before: Evaluation | None
    after: Evaluation
    upheld_by: EntryKind | None = None


def _steps(entries: Iterable[LogEntry]) -> list[_Step]:
    """Return every step whose child was measured a second time."""
    latest: dict[str, Evaluation] = {}
    steps: dict[str, _Step] = {}
    for entry in entries:
        child, evaluation = entry.candidate_id, entry.evaluation
        if child is None or evaluation is None:
            continue
        if entry.kind is EntryKind.EVALUATED and entry.parent_id:
            steps[child] = _Step(child, entry.parent_id, None, evaluation)
        elif entry.kind in (EntryKind.REMEASURED, EntryKind.CONFIRMED) and child in steps:
            steps[child].after, steps[child].upheld_by = evaluation, entry.kind
        latest[child] = evaluation
    upheld = [step for step in steps.values() if step.upheld_by]
    for step in upheld:
        step.before = latest.get(step.parent)
    return upheld


def _gain(step: _Step) -> Gain | None:
    """Return the step's gain where it is certain; None elsewhere."""
    before = step.before.speedup() if step.before else None
    after = step.after.speedup()
    if before is None or after is None or after.verdict is Verdict.UNIMPROVED:
        return None
    value = after.value / before.value
    half = math.hypot(_half_width(before), _half_width(after))
    low, high = value * math.exp(-half), value * math.exp(half)
    if low < LEAST_GAIN:
        return None
    confirmed = step.upheld_by is EntryKind.CONFIRMED
    return Gain(
        value=value, low=low, high=high, upheld_by="confirmed" if confirmed else "remeasured"
    )


def _half_width(speedup: Speedup) -> float:
    """In log units."""
    return math.log(speedup.high / speedup.low) / 2


def _change(child: Candidate, parent: Candidate, plan: str) -> Change:
    return Change(
        proposer=child.proposer,
        operators=operators_in(child.description) if child.proposer == "mutate" else (),
        plan=plan[:LONGEST_PLAN_CHARACTERS],
        description=child.description,
        strategy=str(place_of(child).strategy),
        diff=diff_of(parent.source, child.source),
    )


def diff_of(before: str, after: str) -> str:
    """Return the changed lines alone, cut where there are many."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), n=0, lineterm="")
    text = "\n".join(line for line in lines if not line.startswith(("---", "+++")))
    if len(text) <= LONGEST_DIFF_CHARACTERS:
        return text
    end = "\n(cut)"
    return text[: LONGEST_DIFF_CHARACTERS - len(end)] + end


def _hash(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
