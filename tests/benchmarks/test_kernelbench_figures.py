"""KernelBench's figures from rows that are made up."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.bootstrap import interval
from benchmarks.kernelbench.figures import (
    amsr,
    curves,
    details,
    fast_p,
    kernelbench_figures,
    signed_rank_p,
    vs_compiled,
)
from benchmarks.kernelbench.rows import Outcome, Ratio, Row


def ratio(value: float, *, faster: bool = False) -> Ratio:
    return Ratio(value=value, low=value * 0.99, high=value * 1.01, faster=faster)


def row(number: int = 1, speedup: float | None = None, **changes: Any) -> Row:
    """A problem of level 1; with a speedup, one whose winner was confirmed with it."""
    fields: dict[str, Any] = {
        "id": f"level1-{number}",
        "level": 1,
        "number": number,
        "outcome": Outcome.MEASURED,
        "evaluated": 40,
    }
    if speedup is not None:
        fields |= {
            "correct": True,
            "found": ratio(speedup, faster=True),
            "confirmed": True,
            "found_at": 5,
            "own": True,
            "trivial": False,
        }
    return Row(**{**fields, **changes})


def unproven(number: int, value: float) -> Row:
    """Correct, and not confirmed as faster."""
    return row(number, correct=True, found=ratio(value))


def figure(rows: list[Row], name: str, paper: list[Row] | None = None) -> float | None:
    figures = kernelbench_figures(rows, "m", paper or [])
    return next((f.value for f in figures if f.name == name), None)


def test_only_a_confirmed_win_counts_and_the_papers_rule_stands_beside() -> None:
    rows = [row(1, 3.0), unproven(2, 1.001), unproven(3, 0.5), row(4)]
    assert figure(rows, "level1.corr_percent") == 75
    assert figure(rows, "level1.fast_1") == 0.25
    assert figure(rows, "level1.amsr") == pytest.approx(0.75)
    assert figure(rows, "level1.fast_1.point") == 0.5
    assert figure(rows, "level1.amsr.point") == pytest.approx(4.001 / 4)
    assert figure(rows, "level1.median_speedup") == pytest.approx(1.001)


def test_refused_and_failed_problems_are_counted_beside_and_in_no_figure() -> None:
    refused = row(2, outcome=Outcome.REFUSED, reason="nested inputs")
    rows = [row(1, 2.0), refused, row(3, outcome=Outcome.FAILED, reason="lost")]
    assert figure(rows, "level1.problems") == 1
    assert figure(rows, "level1.amsr") == 2.0
    beside: Any = details(rows)["level1"]
    assert beside["taken"] == 3
    assert beside["refused"] == {"level1-2": "nested inputs"}
    assert beside["corr_percent_of_all_taken"] == pytest.approx(100 / 3)


def test_a_win_on_a_degenerate_problem_is_not_in_the_clean_table() -> None:
    rows = [row(1, 2.0), row(2, 100.0, degenerate=("its output is a constant",))]
    assert figure(rows, "level1.amsr") == 51
    assert figure(rows, "level1.amsr.clean") == 2


def test_a_win_by_the_library_is_none_of_own_kernels() -> None:
    rows = [row(1, 2.0), row(2, 4.0, own=False)]
    assert figure(rows, "level1.amsr") == 3
    assert figure(rows, "level1.amsr.own") == 1
    assert figure([*rows, row(3, 2.0, own=None)], "level1.amsr.own") is None


def test_torch_compile_is_compared_on_the_same_problems_by_the_same_rule() -> None:
    rows = [
        row(1, 3.0, compiled=ratio(2.0, faster=True)),
        row(2, 3.0, compiled=ratio(1.001)),
        row(3, 3.0, compiled=None),
    ]
    assert figure(rows, "level1.amsr_vs_compile") == pytest.approx(9 / 2)
    low = figure(rows, "level1.amsr_vs_compile_low")
    assert low is not None
    assert low <= 4.5
    assert figure([row(1, 3.0)], "level1.amsr_vs_compile") is None


def test_a_candidate_is_told_against_torch_compile_directly_or_through_eager() -> None:
    assert vs_compiled(row(1, 3.0, found_vs_compiled=ratio(1.6))) == 1.6
    assert vs_compiled(row(1, 3.0, compiled=ratio(2.0))) == 1.5
    assert vs_compiled(row(1, 3.0)) is None
    assert vs_compiled(row(1)) is None


def test_the_whole_is_the_plain_mean_of_three_levels_and_absent_without_one() -> None:
    first, third = row(1, 2.0), row(2, 6.0).model_copy(update={"level": 3})
    assert figure([first, third], "overall.amsr") is None
    second = [row(n, 1.0).model_copy(update={"level": 2}) for n in (3, 4, 5)]
    assert figure([first, *second, third], "overall.amsr") == 3


def test_trivial_wins_are_a_share_of_the_wins() -> None:
    rows = [row(1, 2.0, trivial=True), row(2, 2.0), row(3)]
    assert figure(rows, "level1.trivial_share") == 0.5


def test_what_would_have_been_after_fewer_evaluations_is_never_more_than_what_is() -> None:
    late = row(1, 3.0, found_at=60, curve=((10, 2.0), (50, 9.0)), evaluated=80)
    assert [late.score_after(n) for n in (5, 10, 40, 50, 60)] == [0, 2, 2, 3, 3]
    nothing = unproven(2, 1.2).model_copy(update={"curve": ((3, 1.5),)})
    assert nothing.score_after(40) == 0


def test_one_large_speedup_shows_in_what_is_left_without_the_top() -> None:
    rows = [row(n, s) for n, s in enumerate((25.0, 5.0, 4.0, 1.6), start=1)]
    beside: Any = details(rows)["level1"]
    assert list(beside["top"]) == ["level1-1", "level1-2", "level1-3"]
    assert figure(rows, "level1.amsr_without_top_3") == 1.6
    assert figure(rows[:3], "level1.amsr_without_top_3") is None


def test_torch_compile_is_compared_without_those_on_which_either_gains_most() -> None:
    ours, theirs = (25.0, 2.0, 2.0, 2.0, 3.0), (2.0, 30.0, 1.5, 1.5, 9.0)
    rows = [
        row(n, o, compiled=ratio(t, faster=True))
        for n, (o, t) in enumerate(zip(ours, theirs, strict=True))
    ]
    assert figure(rows, "level1.amsr_vs_compile") == pytest.approx(34 / 44)
    assert figure(rows, "level1.amsr_vs_compile_without_top_3") == pytest.approx(4 / 3)
    assert figure(rows, "level1.amsr_vs_compile_without_top_3_low") == pytest.approx(4 / 3)


def test_shares_and_percentiles_of_a_small_table() -> None:
    rows = [row(n, s) for n, s in enumerate((1.2, 1.6, 2.5, 3.0), start=1)]
    rows += [unproven(5, 0.5), row(6)]
    assert figure(rows, "level1.fast_1") == pytest.approx(4 / 6)
    assert figure(rows, "level1.fast_1.5") == pytest.approx(3 / 6)
    assert figure(rows, "level1.fast_2") == pytest.approx(2 / 6)
    # Of 0.5, 1.2, 1.6, 2.5 and 3.0: four gaps, so that 10 % lies 0.4 into the first.
    assert figure(rows, "level1.percentile_10") == pytest.approx(0.5 + 0.4 * 0.7)
    assert figure(rows, "level1.percentile_90") == pytest.approx(2.5 + 0.6 * 0.5)
    assert figure(rows, "level1.geomean_vs_eager") == pytest.approx(
        (0.5 * 1.2 * 1.6 * 2.5 * 3.0) ** (1 / 5)
    )


def test_the_paired_test_is_wilcoxons() -> None:
    # All six lie above 1: of 2**6 sign patterns one is as extreme.
    assert signed_rank_p([1.1, 1.2, 1.3, 1.4, 1.5, 1.6]) == pytest.approx(1 / 64)
    rows = [row(n, 2.0 + n, compiled=ratio(1.5)) for n in range(6)]
    assert figure(rows, "level1.p_vs_compile") == pytest.approx(1 / 64)
    assert figure(rows[:5], "level1.p_vs_compile") is None


def test_the_references_own_work_is_correct_and_no_win_by_any_rule() -> None:
    same_work = row(1, correct=True, unimproved=True, found=ratio(1.02))
    assert figure([same_work], "level1.corr_percent") == 100
    assert figure([same_work], "level1.amsr") == 0
    assert figure([same_work], "level1.amsr.point") == 0
    beside: Any = details([same_work])["level1"]
    assert beside["unimproved"] == ["level1-1"]


def test_the_papers_table_stands_apart_with_its_own_suffixes() -> None:
    paper = [row(1, 4.0), unproven(2, 1.2), row(3, 9.0, degenerate=("constant",))]
    main = [row(1, 2.0)]
    assert figure(main, "level1.amsr", paper) == 2
    assert figure(main, "level1.amsr.paper", paper) == pytest.approx(13 / 3)
    assert figure(main, "level1.amsr.paper.point", paper) == pytest.approx(14.2 / 3)
    assert figure(main, "level1.amsr.paper.clean", paper) == 2
    assert figure(main, "level1.amsr.paper") is None


def test_every_view_has_its_mean_over_levels() -> None:
    main = [row(n, 1.0 + n).model_copy(update={"level": n}) for n in (1, 2, 3)]
    paper = [row(n, 3.0 * n).model_copy(update={"level": n}) for n in (1, 2, 3)]
    for suffix, mean in (("", 3), (".point", 3), (".own", 3), (".clean", 3), (".paper", 6)):
        assert figure(main, f"overall.amsr{suffix}", paper) == pytest.approx(mean)
    assert figure(main, "overall.amsr.paper.point", paper) == pytest.approx(6)


def test_device_seconds_are_a_figure_only_where_all_are_known() -> None:
    known = [row(1, device_seconds=20.0), row(2, device_seconds=40.0)]
    assert figure(known, "level1.gpu_seconds_per_problem") == 30
    assert figure([*known, row(3)], "level1.gpu_seconds_per_problem") is None


def test_the_curve_rises_to_the_score_at_the_end() -> None:
    rows = [row(1, 3.0, found_at=60, curve=((10, 2.0),), evaluated=80), row(2)]
    [band] = curves(rows)["level 1"].values()
    found = dict(zip(band.at, band.value, strict=True))
    assert (found[5], found[10], found[40], found[80]) == (0, 1, 1, 1.5)


def test_a_win_cannot_be_written_down_without_a_confirmation() -> None:
    with pytest.raises(ValueError, match="rests on a confirmation"):
        row(1, 2.0, confirmed=False)


SPEEDUPS = st.lists(st.none() | st.floats(1.01, 50), min_size=1, max_size=12)


@given(SPEEDUPS)
@settings(max_examples=30)
def test_every_figure_lies_in_its_interval_and_the_rules_agree(
    speedups: list[float | None],
) -> None:
    rows = [row(n, s) for n, s in enumerate(speedups)]
    found = {f.name: f for f in kernelbench_figures(rows, "m")}
    share = found["level1.fast_1"].value
    assert share == pytest.approx(fast_p(rows, 0.0))
    assert fast_p(rows, 2.0) <= fast_p(rows, 1.5) <= share
    assert found["level1.amsr"].value == pytest.approx(amsr(rows))
    assert found["level1.amsr_40"].value == pytest.approx(amsr(rows))
    assert found["level1.amsr"].value <= found["level1.amsr.point"].value + 1e-9


@given(st.lists(st.floats(0.1, 10), min_size=2, max_size=20), st.floats(0.5, 4))
@settings(max_examples=30)
def test_pairs_stay_together_in_the_bootstrap(theirs: list[float], factor: float) -> None:
    ours = [factor * t for t in theirs]
    value, low, high = interval(lambda c: c[0].sum(-1) / c[1].sum(-1), ours, theirs)
    assert low == pytest.approx(factor)
    assert value == pytest.approx(factor)
    assert high == pytest.approx(factor)
