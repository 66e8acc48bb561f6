"""From measured rows to figures, and the kernels that are measured."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from benchmarks.noise import problems
from benchmarks.noise.figures import noise_figures, upper_bound
from benchmarks.noise.rows import Row, RowFile, Study
from evaluator import machine
from evaluator.candidate import BackendName
from evaluator.evaluation import Status, Verdict
from evaluator.problem import LoadedProblem
from evaluator.supervisor import CompiledBaseline, LocalEvaluator


def make_row(study: Study = Study.SELF, **fields: Any) -> Row:
    return Row(**{"study": study, "kernel": "k", "status": Status.OK, "seconds": 1.0, **fields})


def figures_of(rows: list[Row]) -> dict[str, float]:
    return {f.name: f.value for f in noise_figures(rows, "h200")}


def test_nothing_measured_gives_no_figure() -> None:
    assert figures_of([]) == {}


def test_the_variation_is_over_fresh_processes_of_one_kernel_and_never_over_kernels() -> None:
    rng = random.Random(0)
    rows = [
        make_row(kernel=k, us=us * (1 + rng.gauss(0, 0.001)), verdict=Verdict.SAME)
        for k, us in (("short", 2.0), ("long", 5000.0))
        for _ in range(20)
    ]
    rows += [
        make_row(Study.YARDSTICK, yardsticks_us={"do_bench": 10 * (1 + rng.gauss(0, 0.1))})
        for _ in range(20)
    ]
    found = figures_of(rows)
    assert 0.05 < found["median_cv_percent"] <= found["max_cv_percent"] < 0.2
    assert found["max_cv_percent_do_bench"] > 5


def test_a_kernel_with_too_few_processes_has_no_variation() -> None:
    assert "max_cv_percent" not in figures_of([make_row(us=2.0) for _ in range(19)])


def test_abstaining_is_shown_beside_the_rate_of_false_claims() -> None:
    rows = [make_row(verdict=Verdict.SAME) for _ in range(90)]
    rows += [make_row(verdict=Verdict.AMBIGUOUS) for _ in range(9)]
    rows += [make_row(verdict=Verdict.FASTER)]
    rows += [make_row(status=Status.MACHINE_UNFIT) for _ in range(25)]
    found = figures_of(rows)
    assert found["aa_comparisons"] == 100
    assert found["aa_false_faster_rate"] == 0.01
    assert found["aa_ambiguous_rate"] == 0.09
    assert found["aa_unfit_rate"] == 0.2
    assert 0.04 < found["aa_false_faster_upper95"] < 0.05


def test_the_bound_of_no_false_claim_is_the_rule_of_three() -> None:
    assert upper_bound(0, 600) == pytest.approx(3 / 600, rel=0.01)


def test_planted_work_below_five_microseconds_is_reported_apart() -> None:
    rows = [make_row(Study.PLANTED, kernel="5_to_50_us", verdict=Verdict.FASTER)] * 3
    rows += [make_row(Study.PLANTED, kernel="2_to_5_us", verdict=Verdict.AMBIGUOUS)]
    found = figures_of(rows)
    assert found["planted_2pct_detection_rate"] == 1.0
    assert found["planted_2pct_detection_rate_2_to_5_us"] == 0.0


def test_rows_survive_a_stop_in_the_middle_of_a_line(tmp_path: Path) -> None:
    file = RowFile(tmp_path / "rows.jsonl")
    file.add([make_row(us=1.5), make_row(Study.FULL)])
    with (tmp_path / "rows.jsonl").open("a") as torn:
        torn.write('{"study": "self", "kern')
    again = RowFile(tmp_path / "rows.jsonl")
    assert again.rows == file.rows
    again.add([make_row(us=2.5)])
    assert RowFile(tmp_path / "rows.jsonl").rows == [*file.rows, make_row(us=2.5)]


def test_copies_are_different_programs_of_the_same_kernel() -> None:
    for loaded in problems.self_problems():
        copies = problems.copies(loaded, 200)
        assert len({c.id for c in copies}) == 200


def test_a_lean_copy_leaves_out_what_is_planted() -> None:
    planted = problems.spin_problem([problems.spin_workload("w", 8, 5, 2)])
    (lean,) = problems.copies(planted, 1, lean=True)
    assert "extra" in lean.source
    assert "+ extra" not in lean.source


@pytest.mark.skipif(not machine.gpus(), reason="there is no GPU")
@pytest.mark.gpu  # the reference is a Triton kernel too, and no reference is interpreted
@pytest.mark.parametrize("loaded", problems.self_problems()[:2], ids=lambda p: p.problem.id)
def test_a_kernel_is_correct_by_its_own_measure(loaded: LoadedProblem) -> None:
    small = loaded.problem.model_copy(update={"workloads": loaded.problem.workloads[:1]})
    loaded = LoadedProblem(problem=small, reference_source=loaded.reference_source)
    with LocalEvaluator(loaded, BackendName.TRITON, compiled=CompiledBaseline.NEVER) as evaluator:
        evaluation = evaluator.screen(problems.copies(loaded, 1)[0])
    assert evaluation.status in (Status.OK, Status.NOT_MEASURED), evaluation.message
