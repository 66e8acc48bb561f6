"""What a search tells while it runs; whoever watches decides how to show it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from evaluator.evaluation import Evaluation, Speedup, Status
from evolver.budget import Budget
from evolver.costs import Cost


class Phase(StrEnum):
    """What is being done right now."""

    PROPOSING = "proposing"
    EVALUATING = "evaluating"
    REMEASURING = "measuring the new best again"
    CONFIRMING = "confirming in fresh processes"
    STOPPED = "stopped"


@dataclass(frozen=True)
class Progress:
    """A search at one moment. ``best`` is a screening's number until it is confirmed."""

    phase: Phase
    proposer: str
    description: str
    """Of the candidate in hand, or why the search stopped."""
    evaluated: int
    counts: Mapping[Status, int]
    best: Speedup | None
    elapsed_seconds: float
    budget: Budget
    finished: Evaluation | None = None
    """The evaluation that has just ended, once for each."""
    cost: Cost = Cost()  # noqa: RUF009 - frozen
    """Of all steps so far."""
    advice: str = ""
    """Why the search goes on as it does, where it was advised."""


Observer = Callable[[Progress], None]


def ignore(progress: Progress) -> None:
    """Watch nothing."""
