"""Where a run's time, device time, tokens and money went: a pure function of its log.

Costs are told by activity and by proposer, an evaluation's time also by the evaluator's stages.
Steps may overlap (proposals are made while candidates are judged), so their wall times add up
to more than the run's where they do; what belongs to no step is starting the evaluator and the
search itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from pydantic import NonNegativeFloat, NonNegativeInt

from evaluator.evaluation import Baseline, Evaluation, Stage, Verdict
from evaluator.records import Record
from evolver.costs import Cost
from evolver.store import EntryKind, LogEntry


class Activity(StrEnum):
    """What a step of a search was for."""

    PROPOSING = "proposing"
    SCREENING = "screening"
    REMEASURING = "re-measuring"
    CONFIRMING = "confirming"
    SEARCHING = "searching"
    """The search's own work, counted by sessions that came to their end."""


_ACTIVITIES = {
    EntryKind.PROPOSED: Activity.PROPOSING,
    EntryKind.DUPLICATE: Activity.PROPOSING,
    EntryKind.NOTHING: Activity.PROPOSING,
    EntryKind.BROKEN: Activity.PROPOSING,
    EntryKind.ABANDONED: Activity.PROPOSING,
    EntryKind.SEEDED: Activity.PROPOSING,
    EntryKind.EVALUATED: Activity.SCREENING,
    EntryKind.REMEASURED: Activity.REMEASURING,
    EntryKind.CONFIRMED: Activity.CONFIRMING,
    EntryKind.STOPPED: Activity.SEARCHING,
}


class ActivityCost(Record):
    """What all steps of one kind cost."""

    activity: Activity
    steps: NonNegativeInt
    cost: Cost
    stage_seconds: dict[Stage, NonNegativeFloat]
    """Of the evaluator; what is missing to the cost's seconds is between its stages."""


class ProposerCost(Record):
    """What one proposer cost, and what judging its candidates did."""

    name: str
    proposing: Cost
    screening: Cost
    faster: NonNegativeInt
    """Of its candidates, how many a screening found faster than the reference."""


class CostReport(Record):
    """Where everything went."""

    total: Cost = Cost()
    """Of all steps."""
    activities: tuple[ActivityCost, ...] = ()
    proposers: tuple[ProposerCost, ...] = ()
    elapsed_seconds: NonNegativeFloat = 0.0
    between_seconds: NonNegativeFloat = 0.0
    """Of the run's wall time, what no step accounts for."""
    faster: NonNegativeInt = 0
    per_faster: Cost | None = None
    """The total over the candidates that a screening found faster; None where there are none."""

    @property
    def overhead_seconds(self) -> float:
        """What the search itself took, in sessions that came to their end."""
        own = (a.cost.seconds for a in self.activities if a.activity is Activity.SEARCHING)
        return sum(own, 0.0)

    def stages(self) -> Iterator[tuple[str, float]]:
        """Yield each activity or stage with its seconds, the stages of all evaluations together."""
        spent = Counter[Stage]()
        rest = 0.0
        for part in self.activities:
            if part.activity in (Activity.PROPOSING, Activity.SEARCHING):
                yield part.activity.value, part.cost.seconds
                continue
            spent.update(part.stage_seconds)
            rest += max(0.0, part.cost.seconds - sum(part.stage_seconds.values()))
        yield from ((stage.value.replace("_", " "), spent[stage]) for stage in Stage)
        yield "other", rest
        yield "between steps", self.between_seconds


@dataclass
class CostTally:
    """What one pass over the log has added up so far."""

    total: Cost = field(default_factory=Cost)
    elapsed_seconds: float = 0.0
    _steps: Counter[Activity] = field(default_factory=Counter)
    _by_activity: dict[Activity, Cost] = field(default_factory=dict)
    _stages: dict[Activity, Counter[Stage]] = field(default_factory=dict)
    _by_proposer: dict[tuple[str, Activity], Cost] = field(default_factory=dict)
    _faster: Counter[str] = field(default_factory=Counter)

    def add(self, entry: LogEntry) -> None:
        """Take in the next entry."""
        self.total += entry.cost
        self.elapsed_seconds = entry.elapsed_seconds
        activity = _ACTIVITIES.get(entry.kind)
        if activity is None:
            return
        self._steps[activity] += 1
        self._by_activity[activity] = self._by_activity.get(activity, Cost()) + entry.cost
        stages = self._stages.setdefault(activity, Counter())
        if entry.evaluation is not None:
            stages.update(entry.evaluation.stage_seconds)
        if entry.proposer:
            key = (entry.proposer, activity)
            self._by_proposer[key] = self._by_proposer.get(key, Cost()) + entry.cost
            if activity is Activity.SCREENING:
                self._faster[entry.proposer] += _found_faster(entry.evaluation)

    def report(self) -> CostReport:
        """Return what the entries so far amount to."""
        faster = self._faster.total()
        return CostReport(
            total=self.total,
            activities=tuple(
                ActivityCost(
                    activity=activity,
                    steps=self._steps[activity],
                    cost=self._by_activity[activity],
                    stage_seconds=dict(self._stages[activity]),
                )
                for activity in Activity
                if activity in self._by_activity
            ),
            proposers=tuple(self._proposer(name) for name in self._names()),
            elapsed_seconds=self.elapsed_seconds,
            between_seconds=max(0.0, self.elapsed_seconds - self.total.seconds),
            faster=faster,
            per_faster=self.total.share(faster) if faster else None,
        )

    def _names(self) -> list[str]:
        return sorted({name for name, _ in self._by_proposer})

    def _proposer(self, name: str) -> ProposerCost:
        return ProposerCost(
            name=name,
            proposing=self._by_proposer.get((name, Activity.PROPOSING), Cost()),
            screening=self._by_proposer.get((name, Activity.SCREENING), Cost()),
            faster=self._faster[name],
        )


def _found_faster(evaluation: Evaluation | None) -> bool:
    speedup = evaluation.speedup(Baseline.EAGER) if evaluation is not None else None
    return speedup is not None and speedup.verdict is Verdict.FASTER
