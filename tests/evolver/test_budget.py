"""Budgets: when a search stops, and what it keeps for its end."""

from __future__ import annotations

import pytest

from evolver.budget import Budget
from evolver.costs import Cost


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


def test_device_time_ends_a_search_and_tokens_end_the_asking_of_models() -> None:
    budget = Budget(gpu_seconds=100, tokens=1000, money_usd=2.0)
    assert budget.out_of_device_time(80.0, reserve_seconds=19.0) is None
    assert budget.out_of_device_time(80.0, reserve_seconds=20.0) is not None
    assert budget.out_of_models(Cost(prompt_tokens=600, completion_tokens=399)) is None
    assert "1000 tokens" in str(
        budget.out_of_models(Cost(prompt_tokens=600, completion_tokens=400))
    )
    assert "2 USD" in str(budget.out_of_models(Cost(money_usd=2.0)))


def test_a_price_is_the_share_of_everything_that_is_limited() -> None:
    cost = Cost(seconds=60, device_seconds=5, prompt_tokens=100, money_usd=1.0)
    assert Budget(steps=40, minutes=10).price(cost, evaluations=1) == pytest.approx(1 / 40 + 1 / 10)
    assert Budget(gpu_seconds=50).price(cost) == pytest.approx(60 / 3600 + 5 / 50)
    rich = Budget(minutes=10, tokens=1000, money_usd=4.0)
    assert rich.price(cost) == pytest.approx(0.1 + 0.1 + 0.25)
    assert Budget().price(cost) > 0
