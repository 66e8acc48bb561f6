"""Where a run's costs went, added up from its log."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.evaluation import Evaluation, Stage
from evolver.cost_report import Activity, CostReport, CostTally
from evolver.costs import Cost
from evolver.store import EntryKind, LogEntry
from tests.builders import make_evaluation


def make_entry(
    kind: EntryKind,
    cost: Cost,
    *,
    proposer: str = "mutate",
    evaluation: Evaluation | None = None,
    elapsed: float = 0.0,
) -> LogEntry:
    return LogEntry(
        sequence=1,
        kind=kind,
        ticket=1,
        proposer=proposer,
        candidate_id=None,
        parent_id=None,
        evaluation=evaluation,
        cost=cost,
        elapsed_seconds=elapsed,
        island=0,
        detail="",
        at=datetime(2026, 1, 2, tzinfo=UTC),
    )


def judged(speedup: float, seconds: float) -> Evaluation:
    stages = {Stage.BUILD: seconds / 4, Stage.TIMING: seconds / 2}
    return make_evaluation(speedup=speedup, seconds=seconds, stage_seconds=stages)


def reported(*entries: LogEntry) -> CostReport:
    tally = CostTally()
    for entry in entries:
        tally.add(entry)
    return tally.report()


ASKED = Cost(seconds=8, prompt_tokens=3000, completion_tokens=500, money_usd=0.1)
JUDGED = Cost(seconds=4, device_seconds=3)
RUN = (
    make_entry(EntryKind.PROPOSED, ASKED, proposer="llm"),
    make_entry(EntryKind.EVALUATED, JUDGED, proposer="llm", evaluation=judged(1.5, 4)),
    make_entry(EntryKind.BROKEN, ASKED, proposer="llm"),
    make_entry(EntryKind.PROPOSED, Cost(seconds=1)),
    make_entry(EntryKind.EVALUATED, JUDGED, evaluation=judged(0.8, 4)),
    make_entry(EntryKind.REMEASURED, JUDGED, proposer="", evaluation=judged(1.5, 4)),
    make_entry(EntryKind.CONFIRMED, JUDGED, proposer="", evaluation=judged(1.5, 4), elapsed=40),
    make_entry(EntryKind.STOPPED, Cost(), proposer="", elapsed=40),
)


def test_every_step_is_counted_once_by_what_it_was_for() -> None:
    found = reported(*RUN)
    assert [(a.activity, a.steps, a.cost.seconds) for a in found.activities] == [
        (Activity.PROPOSING, 3, 17),
        (Activity.SCREENING, 2, 8),
        (Activity.REMEASURING, 1, 4),
        (Activity.CONFIRMING, 1, 4),
        (Activity.SEARCHING, 1, 0),
    ]
    assert found.total == sum((a.cost for a in found.activities), Cost())
    assert found.between_seconds == 40 - 33


def test_a_proposer_pays_for_its_failures_and_for_the_judging_of_its_candidates() -> None:
    llm, mutate = reported(*RUN).proposers
    assert llm.proposing == ASKED + ASKED
    assert llm.screening == JUDGED
    assert (llm.faster, mutate.faster) == (1, 0)


def test_what_a_faster_candidate_cost_is_everything_over_their_number() -> None:
    found = reported(*RUN)
    assert found.per_faster == found.total
    assert reported(*RUN, *RUN).per_faster == found.total
    assert reported(RUN[3], RUN[4]).per_faster is None


def test_stages_and_what_lies_between_make_up_the_runs_time() -> None:
    found = reported(*RUN)
    stages = dict(found.stages())
    assert stages["timing"] == 8
    assert stages["build"] == 4
    assert stages["other"] == 4
    assert sum(stages.values()) == pytest.approx(found.elapsed_seconds)


@given(st.lists(st.sampled_from(RUN), max_size=12))
def test_steps_that_overlap_leave_no_negative_time(entries: list[LogEntry]) -> None:
    found = reported(*entries)
    assert found.between_seconds >= 0
    assert CostReport.model_validate_json(found.model_dump_json()) == found


def test_a_cost_in_one_line_names_what_was_spent() -> None:
    assert str(JUDGED) == "4.0 s of work, 3.0 s on the device"
    assert str(ASKED) == "8.0 s of work, 3,500 tokens, 0.10 USD"
    assert str(Cost(seconds=600)) == "10.0 min of work"
