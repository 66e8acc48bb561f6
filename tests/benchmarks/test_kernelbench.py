"""``ksmith bench kernelbench``: its order, its sessions, and one problem from end to end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import benchmarks.kernelbench as bench
from benchmarks.kernelbench import Plan, choose, forget, run_kernelbench
from benchmarks.kernelbench.baseline import Baselines, compiled_ratio, reference_as_candidate
from benchmarks.kernelbench.order import draw, fixed_order
from benchmarks.kernelbench.rows import Outcome, Ratio, Row, RowFile
from benchmarks.kernelbench.table import flat
from benchmarks.kernelbench.tables import Table, policy_of
from evaluator.candidate import BackendName
from evaluator.errors import WorkerLost
from evaluator.evaluation import Baseline, Speedup, Verdict
from evolver.errors import MachineTrouble
from integrations.kernelbench.errors import NotCarried, TooLarge
from policies.model import EvaluatorPolicy
from tests.builders import make_evaluation, make_problem
from tests.kernelbench_files import NORMALISED, make_checkout


def checkout(root: Path, *numbers: int, level: int = 1) -> Path:
    return make_checkout(root, {(level, f"{n}_Problem.py"): NORMALISED for n in numbers})


def test_the_order_is_what_seed_0_gives_and_holds_every_problem_once() -> None:
    for level, numbers in fixed_order().items():
        assert list(numbers) == draw(range(1, len(numbers) + 1), level)
    assert {level: len(n) for level, n in fixed_order().items()} == {1: 100, 2: 100, 3: 50}


def test_a_sample_is_the_first_of_each_level_and_levels_take_turns(tmp_path: Path) -> None:
    order = fixed_order()
    checkout(tmp_path, *order[1][:4], level=1)
    checkout(tmp_path, *order[2][:4], level=2)
    taken = [(f.level, f.number) for f in choose(tmp_path, Plan(levels=(1, 2), sample=2))]
    assert taken == [(1, order[1][0]), (2, order[2][0]), (1, order[1][1]), (2, order[2][1])]


def test_rows_outlive_a_torn_line_and_failed_ones_are_tried_again(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    rows = RowFile(path)
    rows.add(Row(id="a", level=1, number=1, outcome=Outcome.MEASURED))
    rows.add(Row(id="b", level=1, number=2, outcome=Outcome.FAILED, reason="lost"))
    with path.open("a") as file:
        file.write('{"id":"c","level":1')
    assert list(RowFile(path).rows) == ["a"]


def test_what_was_too_large_is_taken_by_a_later_session_that_asks_for_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int | None] = []

    def too_large(*_: Any, most_bytes: int | None, **__: Any) -> None:
        asked.append(most_bytes)
        raise TooLarge("its arguments take 2 GiB")

    monkeypatch.setattr(bench, "load_kernelbench", too_large)
    root = checkout(tmp_path / "kb", fixed_order()[1][0])
    result = run(root, tmp_path, Plan(levels=(1,), most_gib=0.5))
    assert len(result.details["level1"]["too_large"]) == 1
    run(root, tmp_path, Plan(levels=(1,)))
    assert asked == [2**29, None]


def test_a_session_goes_on_where_the_last_one_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = fixed_order()[1]
    root, work = checkout(tmp_path / "kb", *order[:3]), tmp_path / "work"
    taken = refuse_everything(monkeypatch)
    run(root, work, Plan(levels=(1,), sample=2))
    run(root, work, Plan(levels=(1,)))
    assert taken == list(order[:3])
    forget(work)
    run(root, work, Plan(levels=(1,), sample=1))
    assert taken == [*order[:3], order[0]]


def test_no_problem_is_begun_after_the_session_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = refuse_everything(monkeypatch)
    root = checkout(tmp_path / "kb", *fixed_order()[1][:3])
    run(root, tmp_path / "work", Plan(levels=(1,), minutes=-1))
    assert taken == []


def test_no_problem_is_begun_that_would_not_end_in_the_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = refuse_everything(monkeypatch)
    order = fixed_order()[1]
    root, work = checkout(tmp_path / "kb", *order[:2]), tmp_path / "work"
    long = Row(id="x", level=1, number=1, outcome=Outcome.REFUSED, seconds=300)
    RowFile(work / "rows.jsonl").add(long)
    run(root, work, Plan(levels=(1,), minutes=4))
    assert taken == []
    run(root, work, Plan(levels=(1,), minutes=6))
    assert len(taken) == 2


def test_each_table_has_rows_and_rules_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = refuse_everything(monkeypatch)
    root, work = checkout(tmp_path / "kb", fixed_order()[1][0]), tmp_path / "work"
    both = Plan(levels=(1,), tables=(Table.MAIN, Table.PAPER))
    result = run(root, work, both)
    assert len(taken) == 2
    assert result.details["paper"]["level1"]["taken"] == 1
    run(root, work, both)
    assert len(taken) == 2
    main, paper = (policy_of(table, BackendName.TRITON) for table in Table)
    assert main.correctness.relative_tolerance == 0
    assert not main.correctness.allow_lower_precision
    assert paper.correctness.relative_tolerance == 0.01
    assert paper.correctness.allow_lower_precision
    assert paper.source.chosen.handling["library-compute"] == "forbidden"
    confirm = paper.timing.confirm
    assert confirm.process_pairs * confirm.min_rounds >= 100


def test_a_refused_problem_is_a_row_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_everything(monkeypatch)
    root = checkout(tmp_path / "kb", fixed_order()[1][0])
    result = run(root, tmp_path / "work", Plan(levels=(1,)))
    assert list(result.details["level1"]["refused"].values()) == ["its inputs are nested"]
    assert result.figures == ()
    assert (tmp_path / "work" / result.details["rows"]["main"]).is_file()


def test_a_machine_that_fails_again_and_again_ends_the_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*_: Any, **__: Any) -> Baselines:
        raise WorkerLost("the GPU fell off the bus")

    monkeypatch.setattr(bench, "load_kernelbench", lambda *_, **__: make_problem())
    monkeypatch.setattr(bench, "measure_baselines", lost)
    root = checkout(tmp_path / "kb", *fixed_order()[1][:5])
    with pytest.raises(MachineTrouble, match="fell off the bus"):
        run(root, tmp_path / "work", Plan(levels=(1,)))


def test_torch_compile_is_faster_only_by_its_whole_interval() -> None:
    def measured(value: float) -> Ratio | None:
        speedup = Speedup(
            baseline=Baseline.COMPILED,
            value=value,
            low=value * 0.98,
            high=value * 1.02,
            confidence=0.95,
            lower_99=value * 0.97,
            blocks=20,
            verdict=Verdict.SAME,
        )
        evaluation = make_evaluation()
        speedups = (*evaluation.speedups[:1], speedup)
        return compiled_ratio(evaluation.model_copy(update={"speedups": speedups}), 1.005)

    twice, same = measured(0.5), measured(0.99)
    assert twice is not None
    assert twice.value == 2
    assert twice.faster
    assert same is not None
    assert not same.faster
    assert compiled_ratio(make_evaluation(), 1.005) is None


def test_the_reference_can_stand_in_for_a_candidate_of_any_backend() -> None:
    loaded = make_problem()
    assert "SOURCE" in reference_as_candidate(loaded, BackendName.CPP).source
    assert "SOURCE" not in reference_as_candidate(loaded, BackendName.TRITON).source


def test_the_table_has_a_column_for_every_number_and_the_same_for_all_rows() -> None:
    empty = Row(id="a", level=1, number=1, outcome=Outcome.REFUSED, reason="nested")
    full = empty.model_copy(
        update={"compiled": Ratio(value=2, low=1, high=3), "curve": ((3, 1.5),)}
    )
    assert flat(empty).keys() == flat(full).keys()
    assert flat(full)["compiled_value"] == 2
    assert flat(full)["curve_evaluations"] == [3]


@pytest.mark.real
@pytest.mark.timeout(300)
def test_a_problem_is_carried_searched_and_told_from_end_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = hasty_policy()
    monkeypatch.setattr(EvaluatorPolicy, "default", classmethod(lambda _: policy))
    number = fixed_order()[1][0]
    root, work = checkout(tmp_path / "kb", number), tmp_path / "work"
    result = run(root, work, Plan(levels=(1,), steps=1, problem_minutes=None))
    row = Row.model_validate(json.loads((work / "rows.jsonl").read_text().splitlines()[0]))
    if row.outcome is Outcome.FAILED:
        pytest.skip(f"this machine cannot be timed on now: {row.reason}")
    assert (row.outcome, row.reason) == (Outcome.MEASURED, "")
    assert row.correct
    assert row.proposer == "compiler"
    assert row.found is not None
    assert row.compiled is not None
    assert "issue 165" in row.degenerate[0]  # as the first of the order is tagged
    names = {f.name: f.value for f in result.figures}
    assert names["level1.corr_percent"] == 100
    assert names["level1.geomean_vs_compile"] > 0
    again = run(root, work, Plan(levels=(1,), steps=1, problem_minutes=None))
    assert again.figures == result.figures


def run(root: Path, work: Path, plan: Plan) -> Any:
    return run_kernelbench(root, work, plan, backend=BackendName.CPP, say=lambda _: None)


def refuse_everything(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Have the adapter refuse; return the list of what it is asked for."""
    taken: list[int] = []

    def refuse(file: Any, **_: Any) -> None:
        taken.append(file.number)
        raise NotCarried("its inputs are nested")

    monkeypatch.setattr(bench, "load_kernelbench", refuse)
    return taken


def hasty_policy() -> EvaluatorPolicy:
    """The default in little time and on a busy machine: what is tested is the way, not times."""
    policy = EvaluatorPolicy.default()
    budget = {"process_pairs": 1, "workload_seconds": 1, "min_rounds": 15, "max_rounds": 20}
    timing = policy.timing.model_copy(
        update={
            "waiting_share": 1e9,
            "slope_noise_limit": 1e9,
            "self_comparison": None,
            "screen": policy.timing.screen.model_copy(update=budget),
            "confirm": policy.timing.confirm.model_copy(update=budget),
            "short_call_pairs": 1,
        }
    )
    return policy.model_copy(update={"timing": timing})
