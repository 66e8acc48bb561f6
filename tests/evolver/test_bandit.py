"""The choice of proposers: each is tried, the useful is preferred, the empty rest."""

from __future__ import annotations

from evolver.bandit import REST_AFTER, Bandit


def test_every_proposer_is_tried_first() -> None:
    bandit = Bandit()
    bandit.record("a", gain=5.0, cost=1.0)
    assert bandit.choose(["a", "b"]) == "b"


def test_gain_per_cost_counts_not_gain() -> None:
    bandit = Bandit()
    for _ in range(50):
        bandit.record("slow", gain=2.0, cost=100.0)
        bandit.record("quick", gain=1.0, cost=1.0)
    assert bandit.choose(["slow", "quick"]) == "quick"


def test_a_proposer_without_gain_is_still_tried_now_and_then() -> None:
    bandit = Bandit()
    chosen = []
    for _ in range(200):
        name = bandit.choose(["good", "poor"])
        assert name is not None
        chosen.append(name)
        bandit.record(name, gain=1.0 if name == "good" else 0.0, cost=1.0)
    assert 2 <= chosen.count("poor") <= 60


def test_a_proposer_that_is_empty_again_and_again_rests() -> None:
    bandit = Bandit()
    for _ in range(REST_AFTER):
        bandit.record("a", gain=0.0, cost=1.0, empty=True)
    assert bandit.choose(["a"]) is None
    assert bandit.choose(["a", "b"]) == "b"


def test_proposals_in_flight_count_as_pulls() -> None:
    bandit = Bandit()
    assert bandit.choose(["a", "b"]) == "a"
    assert bandit.choose(["a", "b"], {"a": 1}) == "b"
    assert bandit.choose(["a", "b"], {"a": 3, "b": 1}) == "b"


def test_who_rests_is_asked_again_once_there_is_something_to_start_from() -> None:
    bandit = Bandit()
    for _ in range(REST_AFTER):
        bandit.record("a", cost=1.0, empty=True)
    bandit.wake()
    assert bandit.choose(["a"]) == "a"
