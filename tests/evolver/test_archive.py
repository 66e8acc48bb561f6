"""The archive's rules: noise moves nobody, cells do not drift, nothing infinite gets in."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.evaluation import Verdict
from evolver.archive import (
    CELLS_KEPT,
    ELITES_PER_CELL,
    FAILURES_KEPT,
    TOP_SIZE,
    AddStatus,
    Archive,
    Elite,
    cell_of,
)
from evolver.descriptors import Complexity, Failure, Score
from evolver.strategy import Place, Strategy
from evolver.strategy_kinds import Reduction

SIZE = Place(Complexity(nodes=100, loops=1, memory_operations=3, kernels=1))


def make_score(value: float, *, noise: float = 0.01, measured: bool = True) -> Score:
    return Score(measured, value, value * (1 - noise), value * (1 + noise))


def test_a_first_candidate_opens_its_cell() -> None:
    archive = Archive()
    assert archive.add("a", SIZE, make_score(1.1)) is AddStatus.NEW
    assert [[e.candidate_id for e in cell] for cell in archive.cells] == [["a"]]


def test_a_challenger_within_noise_is_kept_beside_and_displaces_nobody() -> None:
    archive = Archive()
    for name, value in (("a", 1.100), ("b", 1.105), ("c", 1.109)):
        archive.add(name, SIZE, make_score(value))
    assert archive.add("lucky", SIZE, make_score(1.112)) is AddStatus.NOT_ADDED
    assert {e.candidate_id for e in archive.cells[0]} == {"a", "b", "c"}


def test_a_challenger_beyond_noise_displaces_one_that_it_beats() -> None:
    archive = Archive()
    for name, value in (("a", 1.10), ("b", 1.11), ("c", 1.12)):
        archive.add(name, SIZE, make_score(value, noise=0.001))
    assert archive.add("d", SIZE, make_score(1.15, noise=0.001)) is AddStatus.IMPROVED
    assert [e.candidate_id for e in archive.cells[0]] == ["d", "c", "b"]


def test_a_challenger_above_the_best_within_noise_waits_behind_it() -> None:
    archive = Archive()
    archive.add("old", SIZE, make_score(1.100))
    assert archive.add("new", SIZE, make_score(1.105)) is AddStatus.CONTESTED
    assert [e.candidate_id for e in archive.cells[0]] == ["old", "new"]


def test_of_two_that_were_measured_twice_the_better_number_stands_first() -> None:
    archive = Archive()
    for name in ("old", "new"):
        archive.add(name, SIZE, make_score(1.1))
    archive.remeasure("old", make_score(1.100))
    archive.remeasure("new", make_score(1.105))
    assert [e.candidate_id for e in archive.cells[0]] == ["new", "old"]


@pytest.mark.parametrize(("nodes", "stays"), [(90, False), (110, True)])
def test_in_a_full_cell_a_second_measurement_that_decides_nothing_keeps_the_simpler(
    nodes: int, stays: bool
) -> None:
    archive = Archive()
    for name in "abc":
        archive.add(name, SIZE, make_score(1.1))
    for number in range(TOP_SIZE):
        archive.add(f"best {number}", SIZE, make_score(4.0 + number, noise=1e-4))
    challenger = Place(Complexity(nodes, loops=1, memory_operations=3, kernels=1))
    archive.admit(Elite("d", challenger, make_score(1.1), remeasured=True))
    assert [archive.find(name) is not None for name in "abcd"] == [True, True, stays, not stays]


def test_whoever_may_prove_better_than_the_leader_is_worth_a_second_measurement() -> None:
    def fast(value: float) -> Score:
        return replace(make_score(value), verdict=Verdict.FASTER)

    archive = Archive()
    archive.add("leads", SIZE, fast(1.50))
    archive.add("near", SIZE, fast(1.49))
    archive.add("far", SIZE, fast(1.40))
    assert [e.candidate_id for e in archive.contested()] == ["leads", "near"]
    archive.remeasure("leads", fast(1.50))
    assert [e.candidate_id for e in archive.contested()] == ["near"]


def test_when_the_grid_is_full_no_strategy_is_lost() -> None:
    archive = Archive()
    rare = replace(SIZE, strategy=Strategy(tensor_cores=True))
    archive.add("rare", rare, make_score(0.2))
    for number in range(CELLS_KEPT):
        kind = Strategy(vectorised=True, reduction=list(Reduction)[number % 4])
        place = Place(Complexity(2 ** (4 + number // 4 % 11), 0, 0, 0), kind)
        score = 2.0 ** (-4 + number // 44 % 24 / 2)
        archive.add(str(number), place, make_score(score, noise=1e-4))
        archive.add(f"u{number}", place, make_score(score, noise=0, measured=False))
    assert len(archive.cells) == CELLS_KEPT
    assert archive.find("rare") is not None


@pytest.mark.parametrize("value", [math.nan, math.inf, 0.0, -1.0])
def test_a_score_that_is_not_positive_and_finite_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="positive and finite"):
        Archive().add("a", SIZE, Score(True, value, value, value))


def test_an_outlier_does_not_move_the_others_cells() -> None:
    score = make_score(1.3)
    before = cell_of(SIZE, score)
    archive = Archive()
    archive.add("a", SIZE, score)
    archive.add("outlier", SIZE, make_score(1e6))
    assert cell_of(SIZE, score) == before
    assert archive.leader is not None
    assert archive.leader.candidate_id == "outlier"


def test_whatever_was_measured_leads_whatever_was_not() -> None:
    archive = Archive()
    archive.add("guess", SIZE, make_score(1.0, measured=False))
    archive.add("slow", SIZE, make_score(0.4))
    assert [e.candidate_id for e in archive.top] == ["slow", "guess"]


def test_a_second_measurement_replaces_the_lucky_first() -> None:
    archive = Archive()
    archive.add("lucky", SIZE, make_score(3.0))
    archive.add("solid", SIZE, make_score(1.5))
    archive.remeasure("lucky", make_score(1.1))
    assert [e.candidate_id for e in archive.top] == ["solid", "lucky"]
    assert archive.top[1].remeasured


def test_a_candidate_that_fails_its_second_measurement_leaves_the_archive() -> None:
    archive = Archive()
    archive.add("a", SIZE, make_score(3.0))
    archive.remeasure("a", None)
    assert archive.leader is None
    assert archive.cells == []


def test_failures_are_kept_apart_and_bounded() -> None:
    archive = Archive()
    for number in range(FAILURES_KEPT + 10):
        archive.add_failure(Failure(str(number)))
    assert len(archive.failures) == FAILURES_KEPT
    assert archive.failures[-1].candidate_id == str(FAILURES_KEPT + 9)
    assert archive.leader is None


offers = st.lists(
    st.tuples(st.floats(0.01, 100), st.floats(0.0001, 0.2), st.integers(1, 10_000), st.booleans()),
    max_size=60,
)


@given(offers)
def test_every_elite_lies_in_the_cell_of_its_numbers_and_no_cell_overflows(
    offered: list[tuple[float, float, int, bool]],
) -> None:
    archive = Archive()
    for number, (value, noise, nodes, measured) in enumerate(offered):
        archive.add(
            str(number),
            Place(Complexity(nodes, 0, 0, 0)),
            make_score(value, noise=noise, measured=measured),
        )
    for cell in archive.cells:
        assert len({cell_of(e.place, e.score) for e in cell}) == 1
        assert 1 <= len(cell) <= ELITES_PER_CELL
    assert len(archive.top) == min(TOP_SIZE, len(offered))
    ranks = [e.score.rank for e in archive.top]
    assert ranks == sorted(ranks, reverse=True)
