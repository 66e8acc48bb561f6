"""Islands: what migrates, what is measured twice, and what that is worth."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.evaluation import Verdict
from evolver.descriptors import Complexity, Score
from evolver.islands import FINAL_REMEASUREMENTS, REMEASURE_EVERY, Islands
from evolver.selection import choose_parent
from evolver.strategy import Place

PLACE = Place(Complexity(100, 1, 3, 1))


def make_score(value: float, noise: float = 0.01) -> Score:
    return Score(True, value, value * (1 - noise), value * (1 + noise), Verdict.FASTER)


def ids(islands: Islands, number: int) -> set[str]:
    return {e.candidate_id for e in islands.island(number).top}


def test_tickets_go_round_the_islands() -> None:
    islands = Islands(3)
    assert [islands.for_ticket(t) for t in (1, 2, 3, 4)] == [0, 1, 2, 0]


def test_between_migrations_islands_keep_to_themselves_and_then_give_their_best_on() -> None:
    islands = Islands(2, migrate_every=4)
    for island, name, value in ((0, "a", 1.1), (1, "b", 1.2), (0, "c", 1.3)):
        islands.add(island, name, PLACE, make_score(value))
    assert (ids(islands, 0), ids(islands, 1)) == ({"a", "c"}, {"a", "b"})  # b's island was empty
    islands.add(1, "d", PLACE, make_score(1.0))
    assert (ids(islands, 0), ids(islands, 1)) == ({"a", "b", "c"}, {"a", "b", "c", "d"})
    assert [e.candidate_id for e in islands.top] == ["c", "b", "a", "d"]


def test_a_second_measurement_counts_wherever_the_candidate_is() -> None:
    islands = Islands(2)
    islands.add(0, "a", PLACE, make_score(3.0))
    islands.add(1, "b", PLACE, make_score(2.0))
    islands.remeasure("a", make_score(1.0))
    assert [islands.island(n).find("a").score.value for n in (0, 1)] == [1.0, 1.0]  # type: ignore[union-attr]
    assert islands.leader is not None
    assert islands.leader.candidate_id == "b"
    islands.remeasure("a", None)
    assert islands.find("a") is None


def test_second_measurements_are_rationed_and_nobody_has_two() -> None:
    islands = Islands(2)
    for number in range(2 * REMEASURE_EVERY):
        islands.add(number % 2, str(number), PLACE, make_score(1.5 + number / 1e4))
    measured = []
    while (elite := islands.contested()) is not None:
        measured.append(elite.candidate_id)
        islands.remeasure(elite.candidate_id, elite.score)
    assert len(measured) == len(set(measured)) == 2
    assert measured[0] == str(2 * REMEASURE_EVERY - 1)
    while (elite := islands.contested(final=True)) is not None:
        measured.append(elite.candidate_id)
        islands.remeasure(elite.candidate_id, elite.score)
    assert len(measured) == len(set(measured)) == 2 + FINAL_REMEASUREMENTS


@given(st.lists(st.tuples(st.integers(0, 2), st.floats(0.05, 50)), max_size=50))
def test_the_best_of_all_leads_and_no_island_is_empty(offered: list[tuple[int, float]]) -> None:
    islands = Islands(3, migrate_every=5)
    for number, (island, value) in enumerate(offered):
        islands.add(island, str(number), PLACE, make_score(value))
        best = max(v for _, v in offered[: number + 1])
        assert islands.leader is not None
        assert islands.leader.score.value == best
        assert all(islands.island(n).leader is not None for n in range(3))
    assert len({e.candidate_id for e in islands.top}) == len(islands.top)


@pytest.mark.parametrize(("count", "every"), [(0, 20), (2, 0)])
def test_no_islands_or_no_time_between_migrations_is_refused(count: int, every: int) -> None:
    with pytest.raises(ValueError, match="islands"):
        Islands(count, migrate_every=every)


@dataclass
class Simulated:
    """A search whose true speeds are known: log-normal steps, measured with noise.

    One in ten measurements is lucky by several standard deviations, as on a machine that
    is not quiet all the time.
    """

    seed: int
    noise: float = 0.02
    islands: Islands = field(default_factory=Islands)
    true: dict[str, float] = field(default_factory=dict)
    spent: int = 0

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)

    def measure(self, name: str) -> Score:
        self.spent += 1
        luck = self.rng.expovariate(1 / (4 * self.noise)) if self.rng.random() < 0.1 else 0.0
        seen = self.true[name] + self.rng.gauss(0, self.noise) + luck
        low, high = (math.exp(seen + sign * 2.58 * self.noise) for sign in (-1, 1))
        return Score(True, math.exp(seen - 2.33 * self.noise), low, high, Verdict.FASTER)

    def propose(self) -> None:
        island = self.islands.for_ticket(len(self.true) + 1)
        parent = choose_parent(self.islands.island(island), self.rng)
        name = str(len(self.true))
        above = self.true[parent.candidate_id] if parent else 0.0
        self.true[name] = above + self.rng.gauss(-0.02, 0.04)
        place = Place(Complexity(self.rng.randrange(100, 160), 0, 0, 1))
        self.islands.add(island, name, place, self.measure(name))

    def measure_again(self, *, final: bool) -> bool:
        elite = self.islands.contested(final=final)
        if elite is not None:
            self.islands.remeasure(elite.candidate_id, self.measure(elite.candidate_id))
        return elite is not None

    def run(self, evaluations: int, *, second_looks: bool) -> tuple[bool, float]:
        """Whether the leader is the best that was tried, and its true speed."""
        kept = FINAL_REMEASUREMENTS if second_looks else 0
        while self.spent < evaluations:
            is_end = self.spent >= evaluations - kept
            if not (second_looks and self.measure_again(final=is_end)):
                self.propose()
        assert self.islands.leader is not None
        found = self.islands.leader.candidate_id
        return found == max(self.true, key=lambda name: self.true[name]), self.true[found]


def test_at_equal_cost_second_measurements_pick_the_true_best_more_often_than_luck() -> None:
    runs = 150
    outcomes = {
        looks: [Simulated(seed).run(40, second_looks=looks) for seed in range(runs)]
        for looks in (False, True)
    }
    picked = {looks: sum(best for best, _ in found) / runs for looks, found in outcomes.items()}
    true = {looks: sum(speed for _, speed in found) / runs for looks, found in outcomes.items()}
    assert picked[True] > 1.5 * picked[False]
    assert true[True] > true[False] + 0.02
