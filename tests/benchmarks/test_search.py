"""``ksmith bench search``: its units, its sessions, and a tiny one from end to end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest

import benchmarks.search.session as session_module
from benchmarks.kernelbench.rows import Outcome, Row
from benchmarks.kernelbench.rows import row_of_run as kernelbench_row
from benchmarks.search import CURVE_FILE, run_search
from benchmarks.search.kills import Session as KilledSession
from benchmarks.search.kills import judge
from benchmarks.search.plan import LONG_STEPS, Plan
from benchmarks.search.problems import OWN_NAMES, own_problem
from benchmarks.search.ranking import correct_candidates, to_confirm
from benchmarks.search.reading import row_of_run
from benchmarks.search.rows import Contender, SearchRow, Step, Unit
from benchmarks.search.units import Bench, Stock, run_unit
from benchmarks.search.work import Work, forget
from bot.pipeline import Lineup
from evaluator.candidate import BackendName, Candidate
from evaluator.errors import WorkerLost
from evaluator.evaluation import Evaluation, Status
from evolver.costs import Cost
from evolver.errors import MachineTrouble
from evolver.progress import ignore
from evolver.proposers.base import ProposalContext
from evolver.run import Run
from evolver.store import EntryKind, LogEntry
from policies.model import EvaluatorPolicy
from tests.benchmarks.test_kernelbench import hasty_policy
from tests.builders import make_evaluation, make_problem
from tests.evolver.toys import (
    Nudge,
    Seeds,
    ToyEvaluator,
    make_run,
    make_search,
    toy_candidate,
)

UNIT = Unit(problem="p", mode="evolve", seed=0, steps=3)


def test_a_problems_modes_come_together_and_a_long_plan_has_one() -> None:
    plan = Plan(modes=("evolve", "random"), steps=7, adaptive=1)
    assert [(u.mode, u.adaptive) for u in plan.units("p", 0, seed=5)] == [
        ("evolve", False),
        ("random", False),
        ("evolve", True),
    ]
    assert len(plan.units("p", 1, seed=5)) == 2
    [only] = Plan(long=True).units("p", 0, seed=0)
    assert (only.mode, only.steps) == ("evolve", LONG_STEPS)
    names = {u.name for p in ("p", "q") for u in plan.units(p, 0, 0) + plan.units(p, 0, 1)}
    assert len(names) == 12


def test_every_own_problem_is_whole_and_larger_on_a_gpu() -> None:
    for name in OWN_NAMES:
        small, large = (own_problem(name, gpu=gpu).problem for gpu in (False, True))
        assert small.workloads[0].total_bytes < large.workloads[0].total_bytes


def test_a_finished_run_becomes_a_row_that_needs_no_run(tmp_path: Path) -> None:
    with make_run(tmp_path / "run", seed=3) as run:
        summary = make_search(run, steps=12).search()
    policy = EvaluatorPolicy.default()
    with Run.open(tmp_path / "run") as run:
        row = row_of_run(run, SearchRow(unit=UNIT), policy)
    assert [s.evaluated for s in row.steps] == list(range(1, 13))
    assert row.confirmed == summary.speedups[0].value
    assert row.confirmed_lower == summary.speedups[0].lower_99
    assert 1 < row.value_at() <= row.confirmed
    assert row.headroom is not None
    assert set(row.proposers) == {"seeds", "nudge"}
    assert row.search_seconds > 0
    assert SearchRow.model_validate_json(row.model_dump_json()) == row


def test_the_replay_ends_where_a_search_that_may_stop_does(tmp_path: Path) -> None:
    """With proposals that depend on nothing but their number, so that both see the same."""
    rows = {}
    for adaptive in (False, True):
        path = tmp_path / str(adaptive)
        with make_run(path, seed=3, adaptive=adaptive, islands=1) as run:
            make_search(run, seeds=(1.5,), proposers=[Numbered()], steps=30).search()
        with Run.open(path) as run:
            empty = SearchRow(unit=UNIT.model_copy(update={"adaptive": adaptive}))
            rows[adaptive] = row_of_run(run, empty, EvaluatorPolicy.default())
    assert len(rows[False].steps) == 30
    assert rows[False].stopped_at == len(rows[True].steps) < 30


def test_only_candidates_whose_work_is_their_own_are_ranked(tmp_path: Path) -> None:
    with make_run(tmp_path / "run", seed=3) as run:
        make_search(run, steps=12).search()
        found = correct_candidates(run)
        attempts = {a.candidate.id: a.evaluation.status.value for a in run.attempts()}
    assert set(found) == {i for i, status in attempts.items() if status == "ok"}


def test_the_first_of_both_rankings_are_confirmed_once() -> None:
    def contender(name: str, naive_us: float, stable: float) -> Contender:
        return Contender(candidate=name, naive_us=naive_us, stable=stable)

    field = [contender("a", 1, 1.0), contender("b", 2, 3.0), contender("c", 3, 2.0)]
    assert to_confirm(field) == ["a", "b", "c"]
    assert to_confirm(field[:1]) == ["a"]


def entry(candidate: str, kind: EntryKind = EntryKind.EVALUATED) -> LogEntry:
    return LogEntry(
        sequence=1,
        kind=kind,
        ticket=1,
        proposer="p",
        candidate_id=candidate,
        parent_id=None,
        evaluation=make_evaluation(),
        cost=Cost(),
        elapsed_seconds=1.0,
        island=0,
        detail="",
        at=datetime(2026, 1, 2, tzinfo=UTC),
    )


def test_a_kill_may_repeat_what_was_in_flight_and_nothing_else() -> None:
    whole = [entry("a"), entry("b"), entry("c")]
    in_flight = [KilledSession(("a", "b"), whole[:1]), KilledSession(("b", "c"), whole)]
    assert judge(in_flight, whole).model_dump(include={"kills", "lost", "repeated"}) == {
        "kills": 1,
        "lost": 0,
        "repeated": 0,
    }
    again = [KilledSession(("a", "b"), whole[:2]), KilledSession(("a", "b", "c"), whole)]
    assert judge(again, whole).repeated == 1
    forgotten = [KilledSession(("a", "b"), whole[:2]), KilledSession(("c",), [whole[0], whole[2]])]
    found = judge(forgotten, whole)
    assert found.lost == 1
    assert not found.same_result


class Numbered:
    """Proposes slower and slower candidates, whatever its parent."""

    name = "numbered"

    def propose(self, context: ProposalContext) -> Candidate | None:
        return toy_candidate(1.4 - context.attempt_number / 100, proposer=self.name)


class Shaky(ToyEvaluator):
    """Its third screening finds the machine disturbed."""

    def screen(self, candidate: Candidate, *, incumbent_us: float | None = None) -> Evaluation:
        found = super().screen(candidate, incumbent_us=incumbent_us)
        if len(self.screened) == 3:
            return make_evaluation(candidate, status=Status.MACHINE_UNFIT)
        return found


def test_what_the_machine_failed_is_no_evaluation_of_either_benchmark(tmp_path: Path) -> None:
    with make_run(tmp_path / "run", seed=3) as run:
        make_search(run, Shaky(), steps=8).search()
    empty = Row(id="a", level=1, number=1, outcome=Outcome.FAILED)
    with Run.open(tmp_path / "run") as run:
        ours = row_of_run(run, SearchRow(unit=UNIT), EvaluatorPolicy.default())
        theirs = kernelbench_row(run, empty, library_share=0.02)
    assert len(ours.steps) == 8
    assert (theirs.outcome, theirs.evaluated) == (Outcome.MEASURED, 8)
    assert "machine_unfit" not in theirs.statuses
    assert theirs.found_at is not None
    assert theirs.found_at <= 8


def toy_bench() -> Bench:
    nothing: Any = None
    return Bench(
        loaded=make_problem(),
        backend=BackendName.CPP,
        policy=EvaluatorPolicy.default(),
        sandbox=nothing,
        evaluator=cast("Any", ToyEvaluator(pause_seconds=0.01)),
        lineup=Lineup(seeders=[Stock(Seeds(1.1, 0.9))], proposers=[Nudge()]),
        observer=ignore,
    )


def test_a_search_that_the_sessions_end_cuts_goes_on_in_the_next(tmp_path: Path) -> None:
    unit = UNIT.model_copy(update={"steps": 40})
    cut = run_unit(toy_bench(), unit, tmp_path / "run", minutes_left=0.15 / 60)
    with Run.open(tmp_path / "run") as run:
        had = len(run.attempts())
    whole = run_unit(toy_bench(), unit, tmp_path / "run", minutes_left=10.0)
    assert cut is None
    assert had < 40
    assert whole is not None
    assert len(whole.steps) == 40


@pytest.mark.parametrize(("mode", "adaptive"), [("evolve", True), ("best-of-n", False)])
def test_a_unit_is_searched_as_it_says(tmp_path: Path, mode: str, adaptive: bool) -> None:
    unit = UNIT.model_copy(update={"mode": mode, "adaptive": adaptive})
    row = run_unit(toy_bench(), unit, tmp_path / "run")
    assert row is not None
    assert row.unit == unit
    assert len(row.steps) == 3
    with Run.open(tmp_path / "run") as run:
        assert (run.config.mode, run.config.adaptive) == (mode, adaptive)


def test_seeds_are_made_once_and_offered_to_every_search() -> None:
    stock = Stock(Seeds(1.1, 0.9))
    context: Any = None
    first = [stock.propose(context) for _ in range(4)]
    stock.rewind()
    assert [stock.propose(context) for _ in range(4)] == first
    assert [c is None for c in first] == [False, False, True, True]


class FakeBench:
    """A bench whose searches are over at once."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.searched: list[str] = []
        self.evaluator = self
        self.sandbox = self.policy = None

    def environment(self) -> Any:
        return make_evaluation().environment

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        @contextmanager
        def opened(*_: Any) -> Iterator[FakeBench]:
            yield self

        def search(_: Any, unit: Unit, path: Path, **__: Any) -> SearchRow:
            self.searched.append(unit.name)
            if self.failures:
                raise self.failures.pop(0)
            step = Step(evaluated=1, device_seconds=1.0, lower=1.5)
            return SearchRow(unit=unit, steps=(step,), confirmed=1.5, confirmed_lower=1.5)

        monkeypatch.setattr(session_module, "open_bench", opened)
        monkeypatch.setattr(session_module, "run_unit", search)


PAIR = Plan(
    problems=("swiglu",), modes=("sequential", "random"), seeds=1, steps=1, kills=0, scale=0
)


def run(work: Path, plan: Plan, **options: Any) -> Any:
    return run_search(work, plan, backend=BackendName.CPP, say=lambda _: None, **options)


def test_a_session_goes_on_where_the_last_one_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = FakeBench()
    bench.install(monkeypatch)
    run(tmp_path, PAIR)
    assert len(bench.searched) == 2
    result = run(tmp_path, PAIR)
    assert len(bench.searched) == 2
    assert len(result.details["searches"]) == 2
    forget(tmp_path)
    run(tmp_path, PAIR)
    assert len(bench.searched) == 4


def test_nothing_is_begun_that_would_not_end_in_the_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = FakeBench()
    bench.install(monkeypatch)
    long = SearchRow(unit=UNIT.model_copy(update={"steps": 1}), seconds=300)
    Work(tmp_path).add(long)
    run(tmp_path, Plan(**{**vars(PAIR), "minutes": 4}))
    assert bench.searched == []
    run(tmp_path, Plan(**{**vars(PAIR), "minutes": 6}))
    assert len(bench.searched) == 2


def test_what_failed_is_tried_again_and_a_broken_machine_ends_the_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = FakeBench(WorkerLost("gone"))
    bench.install(monkeypatch)
    first = run(tmp_path, PAIR)
    assert list(first.details["failures"].values()) == ["gone"]
    assert len(first.details["searches"]) == 1
    assert run(tmp_path, PAIR).details["failures"] == {}
    bench.failures = [WorkerLost("gone")] * 3
    with pytest.raises(MachineTrouble, match="gone"):
        run(tmp_path, Plan(**{**vars(PAIR), "seeds": 5}))


@pytest.mark.real
@pytest.mark.timeout(300)
def test_a_tiny_plan_is_measured_from_end_to_end(tmp_path: Path) -> None:
    plan = Plan(problems=("swiglu",), modes=("evolve",), seeds=1, steps=2, kills=1, scale=100)
    result = run(tmp_path, plan, policy=hasty_policy())
    assert result.details["failures"] == {}
    figures = {f.name: f for f in result.figures}
    assert figures["adaptive_cost_ratio"].value == 1.0  # it is too short to be stopped
    assert figures["kill_resume_trials"].value == 1
    assert figures["kill_resume_lost"].value == 0
    assert figures["insert_ms_at_100k"].value > 0
    assert figures["overhead_percent"].value < 50
    [ranking] = result.details["rankings"].values()
    assert ranking["clock"] == "wall_100"
    assert ranking["candidates"] >= 1
    assert "compiler" in result.details["proposers"]
    assert "<svg" in (tmp_path / CURVE_FILE).read_text()
    again = run(tmp_path, plan, policy=hasty_policy())
    assert again.figures == result.figures
