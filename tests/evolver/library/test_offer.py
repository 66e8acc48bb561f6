"""What a search is told, and what it never learns of itself."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from evaluator.candidate import BackendName
from evolver.library.features import identity_of
from evolver.library.offer import KNOWN_AT_MOST, Exclusion, choose, known_for
from evolver.library.store import Library
from tests.builders import make_problem
from tests.evolver.library.builders import make_entry, make_features, make_origin

HERE = make_origin(99, repository="own/repo")
NOBODY = Exclusion(make_origin(1000, repository="no/one"))


def told(*entries: Any, excluding: Exclusion = NOBODY) -> list[str]:
    return [k.entry.id for k in choose(entries, make_features(), excluding=excluding)]


@pytest.mark.parametrize("shared", ["problem_id", "skeleton", "target"])
def test_a_search_never_learns_of_its_own_problem_or_a_near_duplicate(shared: str) -> None:
    same = {shared: getattr(HERE, shared)}
    if shared == "target":
        same["repository"] = HERE.repository
    own, other = make_entry(1, origin=make_origin(1, **same)), make_entry(2)
    assert told(own, other, excluding=Exclusion(HERE)) == [other.id]


def test_a_benchmark_learns_nothing_of_its_own_repository() -> None:
    loaded = make_problem()
    repository = identity_of(loaded).repository
    sibling = make_entry(1, origin=make_origin(1, repository=repository))
    assert told(sibling, excluding=Exclusion.of(loaded)) == [sibling.id]
    assert told(sibling, excluding=Exclusion.for_benchmark(loaded)) == []


def test_the_most_telling_comes_first_and_no_problem_speaks_for_all() -> None:
    near, far = make_features(), make_features(size_log2=30.0, device="NVIDIA H200")
    loud = [make_entry(n, low=1.9, origin=make_origin(7)) for n in range(10, 20)]
    weak = make_entry(2, low=1.2, features=near)
    distant = make_entry(3, low=1.4, features=far)
    assert told(distant, weak, *loud) == [*(e.id for e in loud[:3]), weak.id, distant.id]
    assert len(told(*(make_entry(n) for n in range(50)))) == KNOWN_AT_MOST


def test_the_unlike_is_not_told() -> None:
    assert told(make_entry(1, features=make_features(families=frozenset({"sort"})))) == []


def test_an_exclusion_cannot_be_forgotten() -> None:
    with pytest.raises(TypeError, match="excluding"):
        choose([], make_features())  # type: ignore[call-arg]


def test_a_broken_library_costs_a_warning_and_no_search(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "library.db"
    path.write_bytes(b"no database" * 500)
    loaded = make_problem()
    with caplog.at_level(logging.WARNING):
        known = known_for(
            Library(path), loaded, BackendName.CPP, "cpu", excluding=Exclusion.of(loaded)
        )
    assert known == ()
    assert "goes on without it" in caplog.text
