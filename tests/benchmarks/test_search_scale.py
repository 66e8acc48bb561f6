"""The measurement of very long runs, made short."""

from __future__ import annotations

from pathlib import Path

from benchmarks.search.scale import attempts, fill
from evolver.strategy import place_of


def test_candidates_of_a_long_run_differ_in_more_than_their_number() -> None:
    made = list(attempts(range(40)))
    assert len({candidate.id for candidate, _ in made}) == 40
    assert len({place_of(candidate).strategy for candidate, _ in made}) == 3
    assert {evaluation.status.value for _, evaluation in made} == {"ok", "incorrect"}


def test_what_a_run_costs_is_measured_on_a_real_store(tmp_path: Path) -> None:
    scale = fill(tmp_path, 24)
    assert scale.candidates == 24
    assert min(scale.first_ms, scale.last_ms, scale.replay_ms) > 0
    assert scale.database_bytes == (tmp_path / "run.db").stat().st_size
