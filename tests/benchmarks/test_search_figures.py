"""The figures of ``ksmith bench search`` from rows that are made up, each by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.bootstrap import clustered_interval
from benchmarks.search.figures import curves, log_ratios, search_figures
from benchmarks.search.rows import (
    Contender,
    KillRow,
    RankingRow,
    ScaleRow,
    SearchRow,
    Step,
    Unit,
)


def unit(problem: str = "p", mode: str = "evolve", seed: int = 0, **changes: Any) -> Unit:
    return Unit(problem=problem, mode=mode, seed=seed, steps=3, **changes)


def searched(
    *lowers: float, confirmed: float | None = 9.0, each: float = 10.0, **changes: Any
) -> SearchRow:
    """A search that reached ``lowers``, one after each evaluation of ``each`` device seconds."""
    steps = tuple(
        Step(evaluated=n, device_seconds=n * each, lower=lower)
        for n, lower in enumerate(lowers, start=1)
    )
    fields = {name: changes.pop(name) for name in ("problem", "mode", "seed") if name in changes}
    return SearchRow(
        unit=unit(**fields), steps=steps, confirmed=confirmed, confirmed_lower=confirmed, **changes
    )


def figures(searches: Any = (), rankings: Any = (), kills: Any = (), scale: Any = ()) -> Any:
    return {f.name: f for f in search_figures(searches, rankings, kills, scale, "m")}


def test_what_was_screened_counts_no_more_than_what_was_confirmed() -> None:
    lucky = searched(1.2, 3.0, confirmed=1.5)
    assert [lucky.value_at(evaluated=n) for n in (0, 1, 2)] == [1.0, 1.2, 1.5]
    assert searched(1.2, 3.0, confirmed=None).value_at() == 1.0
    assert searched(1.0, confirmed=0.9).value_at() == 1.0


def test_modes_are_compared_at_the_device_seconds_that_both_have_spent() -> None:
    cheap = searched(1.5, 1.5, mode="evolve", each=10)
    dear = searched(1.2, 3.0, mode="sequential", each=20)
    # At 20 seconds the other one had come to 1.2 only.
    assert log_ratios([cheap, dear], "sequential")["p"] == [pytest.approx(math.log(1.5 / 1.2))]
    found = figures([cheap, dear])
    assert found["evolve_vs_sequential"].value == pytest.approx(1.25)
    assert "evolve_vs_best_of_n" not in found


def test_only_pairs_of_one_problem_and_seed_are_compared() -> None:
    rows = [
        searched(2.0, problem="a", seed=0),
        searched(2.0, problem="a", seed=1),
        searched(1.0, problem="a", mode="best-of-n"),
        searched(2.0, problem="b", mode="best-of-n"),
    ]
    assert log_ratios(rows, "best-of-n") == {"a": [pytest.approx(math.log(2))]}


def test_problems_weigh_alike_whatever_their_number_of_seeds() -> None:
    rows = [searched(4.0, problem="a", seed=s) for s in range(3)] + [searched(1.0, problem="b")]
    rows += [searched(1.0, problem="a", mode="sequential", seed=s) for s in range(3)]
    rows += [searched(1.0, problem="b", mode="sequential")]
    assert figures(rows)["evolve_vs_sequential"].value == pytest.approx(2.0)  # of 4 and 1


def test_failed_and_adaptive_searches_are_in_no_comparison() -> None:
    rows = [
        searched(2.0).model_copy(update={"failure": "the GPU is gone"}),
        searched(2.0).model_copy(update={"unit": unit(adaptive=True)}),
        searched(1.0, mode="sequential"),
    ]
    assert "evolve_vs_sequential" not in figures(rows)


def contender(name: str, naive_us: float, stable: float, value: float | None) -> Contender:
    if value is None:
        return Contender(candidate=name, naive_us=naive_us, stable=stable)
    bounds = {"low": value - 0.05, "high": value + 0.05}
    return Contender(candidate=name, naive_us=naive_us, stable=stable, value=value, **bounds)


def ranking(*contenders: Contender) -> RankingRow:
    return RankingRow(unit=unit(), contenders=contenders)


def test_a_wrong_winner_is_one_that_a_confirmation_puts_behind_another() -> None:
    misled = ranking(contender("slow", 9.0, 1.4, 1.5), contender("fast", 10.0, 1.9, 2.0))
    tie = ranking(contender("one", 9.0, 1.4, 1.50), contender("other", 10.0, 1.5, 1.52))
    alone = ranking(contender("only", 9.0, 1.4, 1.5))
    unknown = ranking(contender("lost", 1.0, 9.9, None), contender("b", 2.0, 1.0, 1.5))
    found = figures(rankings=[misled, tie, alone, unknown])
    assert found["naive_wrong_winner_rate"].value == 0.5
    assert found["stable_wrong_winner_rate"].value == 0.0
    assert found["naive_wrong_winner_rate"].n == 2


def test_the_adaptive_rule_is_replayed_on_the_same_runs() -> None:
    stopped = searched(1.5, 2.0, 2.0, stopped_at=2)
    early = searched(1.0, 1.0, 4.0, problem="b", stopped_at=1)
    on = searched(3.0, 3.0, 3.0, problem="c")
    found = figures([stopped, early, on])
    assert found["adaptive_cost_ratio"].value == pytest.approx((20 + 10 + 30) / 90)
    assert found["adaptive_amsr_ratio"].value == pytest.approx((2 + 0 + 3) / (2 + 4 + 3))


def test_searches_that_did_stop_are_told_beside_the_replay() -> None:
    whole = searched(1.5, 2.0, 2.0)
    stopped = searched(1.5, 1.8).model_copy(update={"unit": unit(adaptive=True)})
    elsewhere = stopped.model_copy(update={"unit": unit("b", adaptive=True)})
    found = figures([whole, stopped, elsewhere])
    assert found["adaptive_run_cost_ratio"].value == pytest.approx(20 / 30)
    assert found["adaptive_run_amsr_ratio"].value == pytest.approx(1.8 / 2.0)
    assert found["adaptive_cost_ratio"].value == 1.0


def test_headroom_is_correlated_by_rank_over_problems() -> None:
    def row(name: str, thought: float, found: float | None) -> SearchRow:
        return searched(1.0, confirmed=found, problem=name, headroom=thought)

    rows = [row("a", 1.1, None), row("b", 2.0, 1.5), row("c", 3.0, 2.5), row("d", 9.0, 2.0)]
    # Ranks 1 2 3 4 against 1 2 4 3: 1 - 6 * 2 / (4 * 15).
    assert figures(rows)["headroom_rank_correlation"].value == pytest.approx(0.8)
    assert "headroom_rank_correlation" not in figures(rows[:3])


def test_overhead_kills_and_scale_are_told_with_their_machine() -> None:
    rows = [searched(1.0, search_seconds=90, overhead_seconds=0.5), searched(1.0)]
    kills = [
        KillRow(trial=0, kills=25, lost=0, repeated=0, same_result=True, machine="cpu"),
        KillRow(trial=1, kills=25, lost=1, repeated=2, same_result=False, machine="cpu"),
    ]
    scale = [ScaleRow(candidates=100_000, insert_ms=0.5, peak_gib=0.4, machine="cpu")]
    found = figures(rows, kills=kills, scale=scale)
    assert found["overhead_percent"].value == pytest.approx(100 * 0.5 / 90)
    assert found["kill_resume_trials"].value == 50
    assert found["kill_resume_lost"].value == 4
    assert found["insert_ms_at_100k"].machine == "cpu"


def test_curves_have_the_problems_that_every_mode_has_searched() -> None:
    rows = [
        searched(1.0, 4.0, problem="a"),
        searched(1.0, 1.0, problem="a", mode="random"),
        searched(16.0, 16.0, problem="b"),
    ]
    found = curves(rows)
    assert found["evaluated"]["evolve"].value == pytest.approx([1.0, 4.0])
    assert found["evaluated"]["random"].value == pytest.approx([1.0, 1.0])
    assert curves([]) == {}


GROUPS = st.lists(st.lists(st.floats(-2, 2), min_size=1, max_size=4), min_size=1, max_size=6)


@given(GROUPS)
@settings(max_examples=20)
def test_an_interval_over_problems_holds_its_value_and_stays_within_their_range(
    groups: list[list[float]],
) -> None:
    value, low, high = clustered_interval(groups)
    members = [x for group in groups for x in group]
    assert min(members) - 1e-9 <= low <= value <= high <= max(members) + 1e-9
