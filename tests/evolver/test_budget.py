"""Budgets: when a search stops, and what it keeps for its end."""

from __future__ import annotations

from evolver.budget import Budget


def test_without_limits_nothing_ever_stops() -> None:
    budget = Budget()
    assert budget.out_of_steps(10**9) is None
    assert budget.out_of_time(1e9, reserve_seconds=1e9) is None
    assert budget.fraction(steps=5, seconds=5.0) is None


def test_time_for_the_confirmation_is_kept_back() -> None:
    budget = Budget(minutes=10)
    assert budget.out_of_time(500.0, reserve_seconds=99.0) is None
    assert budget.out_of_time(500.0, reserve_seconds=100.0) == "the budget of 10 minutes is spent"


def test_what_is_kept_back_is_never_more_than_half() -> None:
    budget = Budget(minutes=2)
    assert budget.out_of_time(59.0, reserve_seconds=1e6) is None
    assert budget.out_of_time(60.0, reserve_seconds=1e6) is not None


def test_the_nearest_limit_sets_the_fraction() -> None:
    budget = Budget(steps=10, minutes=1)
    assert budget.fraction(steps=5, seconds=6.0) == 0.5
    assert budget.fraction(steps=1, seconds=45.0) == 0.75
    assert budget.fraction(steps=11, seconds=0.0) == 1.0


def test_no_steps_at_all_is_spent_at_once() -> None:
    assert Budget(steps=0).out_of_steps(0) is not None
