"""Who is shown to a proposer: the best, others unlike them, and failures worth a repair."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from evaluator.evaluation import Status
from evolver.archive import Archive
from evolver.descriptors import Complexity, Score, failure_of
from evolver.selection import choose_exemplars, choose_failures, choose_parent
from evolver.strategy import Place, Strategy
from evolver.strategy_kinds import Grid, Reduction
from tests.builders import make_evaluation
from tests.evolver.toys import toy_candidate


def fill(archive: Archive, strategy: Strategy, speeds: list[float], name: str) -> None:
    for number, speed in enumerate(speeds):
        place = Place(Complexity(40 + 50 * number, 0, 0, 1), strategy)
        archive.add(f"{name}{number}", place, Score(True, speed, speed * 0.99, speed * 1.01))


def test_a_slow_strategy_is_improved_on_beside_a_crowd_of_fast_ones() -> None:
    archive = Archive()
    fill(archive, Strategy(), [1.0 + n / 20 for n in range(30)], "crowd")
    fill(archive, Strategy(reduction=Reduction.ONLINE), [0.5], "lone")
    parents = [choose_parent(archive, random.Random(seed)) for seed in range(400)]
    chosen = Counter(e.candidate_id for e in parents if e is not None)
    assert 0.1 < chosen["lone0"] / 400 < 0.2  # half of what is not greedy
    assert chosen.most_common(1)[0][0] == "crowd29"


def test_exemplars_are_the_best_and_then_other_strategies() -> None:
    archive = Archive()
    fill(archive, Strategy(), [1.0 + n / 20 for n in range(10)], "crowd")
    fill(archive, Strategy(reduction=Reduction.ONLINE), [0.5, 0.6], "online")
    fill(archive, Strategy(grid=Grid.PERSISTENT), [0.4], "persistent")
    parent = archive.find("crowd9")
    shown = [e.candidate_id for e in choose_exemplars(archive, random.Random(0), parent)]
    assert shown[:3] == ["crowd8", "crowd7", "crowd6"]
    assert set(shown[3:]) == {"online1", "persistent0"}


places = st.builds(
    lambda nodes, reduction: Place(Complexity(nodes, 0, 0, 0), Strategy(reduction=reduction)),
    st.integers(1, 10_000),
    st.sampled_from(Reduction),
)


@given(st.lists(st.tuples(places, st.floats(0.01, 100)), max_size=40), st.integers(0, 2**32))
def test_parents_are_elites_and_exemplars_are_others(
    offered: list[tuple[Place, float]], seed: int
) -> None:
    archive = Archive()
    for number, (place, value) in enumerate(offered):
        archive.add(str(number), place, Score(True, value, value * 0.99, value * 1.01))
    parent = choose_parent(archive, random.Random(seed))
    assert (parent is None) == (not offered)
    exemplars = choose_exemplars(archive, random.Random(seed), parent)
    ids = [e.candidate_id for e in exemplars]
    assert len(set(ids)) == len(ids)
    assert parent is None or parent.candidate_id not in ids


def test_failures_for_repair_have_distinct_causes_and_the_nearest_to_success_comes_last() -> None:
    archive, ids = Archive(), []
    for status, message in (
        (Status.INCORRECT, "output 0 differs at [0, 17]"),
        (Status.COMPILE_ERROR, "no member named x"),
        (Status.POLICY_VIOLATION, "calls torch.softmax"),
        (Status.RUNTIME_ERROR, "illegal address 0x7f00"),
        (Status.RUNTIME_ERROR, "illegal address 0x7f88"),
    ):
        candidate = toy_candidate(len(ids) + 1.0)
        ids.append(candidate.id)
        archive.add_failure(failure_of(make_evaluation(candidate, status=status, message=message)))
    assert choose_failures(archive) == [ids[1], ids[4], ids[0]]
