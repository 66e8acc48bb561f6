"""When a search stops by itself, on improvement processes of several kinds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from evolver.adaptive import Advice, Decision, Point, advise, gains_of, outlook_of, point_after
from evolver.costs import Cost
from evolver.headroom import Bound, Headroom
from policies.model import SearchPolicy
from tests.builders import make_evaluation

RULE = SearchPolicy.default().adaptive
ROOM = Headroom(speedup_possible=5.0, low=1.0, high=8.0, bound_by=Bound.MEMORY, evidence="much")
NO_ROOM = Headroom(speedup_possible=1.0, low=1.0, high=1.01, bound_by=Bound.MEMORY, evidence="none")
FIXED_STEPS = 40


def make_history(
    bounds: Sequence[float | None],
    *,
    fraction: float | None = None,
    proposers: Sequence[str] = ("mutate",),
) -> list[Point]:
    """The best lower bound after each evaluation."""
    return [
        Point(
            cost=Cost(seconds=n),
            evaluated=n,
            best_lower=bound,
            best=bound,
            low=bound,
            high=bound,
            roofline_fraction=fraction,
            proposer=proposers[n % len(proposers)],
            correct=bound is not None,
        )
        for n, bound in enumerate(bounds, 1)
    ]


def stopped_at(bounds: Sequence[float | None], headroom: Headroom | None = None) -> int | None:
    """After how many evaluations a search of these bounds is ended, redirections obeyed."""
    history, redirected = make_history(bounds), list[int]()
    for n in range(1, len(history) + 1):
        decision = advise(history[:n], headroom, RULE, redirected=redirected)
        if decision.advice is Advice.STOP:
            return n
        if decision.advice is Advice.REDIRECT:
            redirected.append(n)
    return None


def decided(bounds: Sequence[float | None], headroom: Headroom | None = None) -> Decision:
    return advise(make_history(bounds), headroom, RULE)


@settings(deadline=None, max_examples=40)
@given(
    bounds=st.lists(st.none() | st.floats(0.1, 50), min_size=1, max_size=RULE.minimum - 1),
    fraction=st.none() | st.floats(0, 1.2),
)
def test_nothing_is_concluded_before_the_minimum(
    bounds: list[float | None], fraction: float | None
) -> None:
    history = make_history(bounds, fraction=fraction)
    assert advise(history, NO_ROOM, RULE).advice is Advice.CONTINUE


@settings(deadline=None, max_examples=25)
@given(
    level=st.floats(0.2, 50),
    climb=st.lists(st.floats(1, 2), max_size=10),
    headroom=st.sampled_from([None, ROOM]),
)
def test_a_search_that_has_become_flat_is_always_ended(
    level: float, climb: list[float], headroom: Headroom | None
) -> None:
    bounds = list(accumulate([level, *climb], lambda a, b: a * b))
    flat = [*bounds, *[bounds[-1]] * 80]
    ended = stopped_at(flat, headroom)
    assert ended is not None
    assert ended <= len(bounds) + 60


def test_a_flat_search_ends_soon_and_one_that_climbs_does_not() -> None:
    assert stopped_at([1.3] * 40) in range(RULE.minimum, 15)
    assert stopped_at([1.02**n for n in range(40)]) is None


def test_creeping_by_luck_is_no_climb() -> None:
    noise = np.random.default_rng(1).normal(0, 0.002, 40)
    assert stopped_at([1.3 * math.exp(x) for x in np.maximum.accumulate(noise)]) is not None


def test_a_search_without_anything_correct_is_redirected_and_then_given_up() -> None:
    nothing: list[float | None] = [None] * FIXED_STEPS
    assert decided(nothing[: RULE.minimum]).advice is Advice.REDIRECT
    assert stopped_at(nothing) == RULE.hopeless


def test_where_nothing_can_be_timed_nothing_is_concluded() -> None:
    untimed = [replace(p, correct=True) for p in make_history([None] * FIXED_STEPS)]
    assert advise(untimed, None, RULE).advice is Advice.CONTINUE


def test_the_first_correct_candidate_gives_a_search_time_again() -> None:
    late = [None] * (RULE.hopeless - 1) + [0.9] * 4
    assert stopped_at(late) is None


def test_a_best_at_the_roofline_is_good_enough() -> None:
    climbing = [1.1**n for n in range(12)]
    assert advise(make_history(climbing, fraction=0.6), None, RULE).advice is Advice.CONTINUE
    reached = advise(make_history(climbing, fraction=0.97), None, RULE)
    assert reached.advice is Advice.STOP
    assert "97% of what memory allows" in reached.reason


def test_a_problem_without_headroom_ends_at_the_minimum() -> None:
    assert stopped_at([0.9] * 20, NO_ROOM) == RULE.minimum


def test_a_plateau_below_the_headroom_is_redirected_once() -> None:
    flat = [1.3] * 14
    assert decided(flat, ROOM).advice is Advice.REDIRECT
    again = advise(make_history([1.3] * 40), ROOM, RULE, redirected=[14])
    assert again.advice is Advice.STOP
    assert "plateau" in again.reason
    rose = make_history([1.0, 1.3] + [1.3] * 28)
    told = advise(rose, None, RULE).reason
    assert "the last 28 evaluations brought nothing" in told


def test_a_redirection_gets_time_to_show_what_it_brings() -> None:
    history = make_history([1.3] * 18)
    assert advise(history, ROOM, RULE, redirected=[14]).advice is Advice.CONTINUE


def test_whoever_brings_nothing_rests_but_never_all() -> None:
    bounds = [1.0, 1.0, 1.2] + [1.2] * 27
    mixed = make_history(bounds, proposers=("a", "b", "c"))
    assert advise(mixed, ROOM, RULE).rest == ("b", "c")
    idle = make_history([1.3] * 14, proposers=("a", "a", "b"))
    assert advise(idle, ROOM, RULE).rest == ("a",)
    assert advise(make_history([1.3] * 14), ROOM, RULE).rest == ()


def test_gains_are_counted_from_the_first_measured_and_never_twice() -> None:
    history = make_history([None, 2.0, 1.5, 2.0, 4.0, 4.004, 4.008, 4.03])
    found = gains_of(history, resolution=0.005)
    assert found[:4] == [0, 0, 0, 0]
    assert found[4] == pytest.approx(math.log(2))
    assert found[5:7] == [0, 0]
    assert found[7] == pytest.approx(math.log(4.03 / 4))


@settings(deadline=None, max_examples=25)
@given(st.lists(st.floats(0.01, 1), max_size=8), st.integers(1, 20))
def test_the_longer_nothing_comes_the_smaller_the_chance(gains: list[float], silence: int) -> None:
    before, after = outlook_of(gains, RULE), outlook_of([*gains, *[0.0] * silence], RULE)
    assert after.chance < before.chance + 0.03  # of 4000 draws
    assert 0 <= after.low <= after.high


def test_a_point_says_how_near_the_leader_is_to_the_roofline() -> None:
    evaluation = make_evaluation(speedup=1.5)
    unknown = point_after(evaluation, cost=Cost(), evaluated=3, proposer="mutate")
    assert (unknown.best, unknown.roofline_fraction) == (1.5, None)
    near = tuple(t.model_copy(update={"roofline_fraction": 0.8}) for t in evaluation.timings)
    known = evaluation.model_copy(update={"timings": near})
    point = point_after(known, cost=Cost(), evaluated=3, proposer="mutate")
    assert point.roofline_fraction == pytest.approx(0.8)
    assert point_after(None, cost=Cost(), evaluated=3, proposer="llm").best is None


def process(kind: str, random: np.random.Generator) -> NDArray[np.float64]:
    """The true level, in log units, after each of 40 evaluations; NaN while nothing is correct."""
    n = FIXED_STEPS
    gains = np.zeros(n)
    match kind:
        case "early jumps":
            for at in random.integers(1, 8, size=2):
                gains[at] += random.exponential(0.3)
        case "slow and steady":
            gains = (random.random(n) < 0.25) * random.exponential(0.03, n)
        case "best of equal draws":
            return np.maximum.accumulate(random.normal(0.3, 0.15, n))
        case "less and less":
            rates = 0.6 * np.exp(-np.arange(n) / 8)
            gains = (random.random(n) < rates) * random.exponential(0.1, n)
        case "late jump":
            gains[random.integers(15, n)] = random.exponential(0.1)
        case "hopeless":
            return np.full(n, np.nan)
        case "late start":
            gains = (random.random(n) < 0.15) * random.exponential(0.1, n)
            gains[: random.integers(5, 20)] = np.nan
            return np.where(np.isnan(gains), np.nan, 0.3 + np.nancumsum(gains))
    return np.asarray(0.3 + np.cumsum(gains))


KINDS = (
    "early jumps",
    "slow and steady",
    "best of equal draws",
    "less and less",
    "late jump",
    "hopeless",
    "late start",
    "flat",
)


def loss_and_cost(kind: str, trials: int) -> tuple[float, float]:
    """How much of the speedup after 40 steps is lost on average, and which share of them taken."""
    random = np.random.default_rng(KINDS.index(kind))
    losses, costs = [], []
    for _ in range(trials):
        levels = process(kind, random)
        # A measurement's noise; what the search sees is the best of its lower bounds.
        seen = np.fmax.accumulate(levels + random.normal(-0.008, 0.004, FIXED_STEPS))
        steps = stopped_at([None if math.isnan(x) else math.exp(x) for x in seen]) or FIXED_STEPS
        reached, possible = (np.nanmax([*levels[:k], 0.0]) for k in (steps, FIXED_STEPS))
        losses.append(1 - math.exp(reached - possible))
        costs.append(steps / FIXED_STEPS)
    return float(np.mean(losses)), float(np.mean(costs))


def test_stopping_by_itself_costs_little_and_saves_much() -> None:
    found = {kind: loss_and_cost(kind, 12) for kind in KINDS}
    lost, cost = np.mean(list(found.values()), axis=0)
    assert lost <= 0.03, found
    assert cost <= 0.66, found
    assert found["flat"][1] < 0.4, found
    assert found["slow and steady"][1] > 0.8, found
