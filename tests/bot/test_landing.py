"""What must not land: a winner that a memory checker objects to."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from bot.landing import deep_stage
from bot.pipeline import SearchOrder, search_stage
from evaluator.candidate import BackendName
from evaluator.evaluation import Evaluation, Status
from evolver.costs import Cost
from evolver.errors import SearchError
from evolver.run import Run, StoredAttempt
from integrations.patch.errors import PatchError
from tests import samples
from tests.builders import make_candidate, make_evaluation, make_problem
from tests.evolver.toys import make_run


def run_with_winner(path: Path, source: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    make_run(path).close()
    candidate = make_candidate(source)
    winner = StoredAttempt(
        number=1,
        candidate=candidate,
        evaluation=make_evaluation(candidate, confirmed=True),
        proposer="test",
        cost=Cost(seconds=1.0),
        island=0,
        at=datetime(2026, 1, 2, tzinfo=UTC),
    )
    monkeypatch.setattr(Run, "best", lambda run: winner)
    return path


@pytest.mark.real
def test_a_winner_that_writes_one_element_too_far_must_not_land(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wild = "float total = 0.0f; out[rows * cols] = 0.0f;"
    source = samples.RMS_NORM_CPP.replace("float total = 0.0f;", wild)
    run = run_with_winner(tmp_path / "run", source, monkeypatch)
    with pytest.raises(PatchError, match=r"must not land.*heap-buffer-overflow"):
        deep_stage(run)
    written = Evaluation.model_validate_json((run / "deep.json").read_text())
    assert written.status is Status.INCORRECT


@pytest.mark.real
def test_a_clean_winner_may_land(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_with_winner(tmp_path / "run", samples.RMS_NORM_CPP, monkeypatch)
    (check,) = deep_stage(run)
    assert check.ran


def test_a_run_without_a_winner_has_nothing_to_land(tmp_path: Path) -> None:
    make_run(tmp_path / "run").close()
    with pytest.raises(PatchError, match="no confirmed winner"):
        deep_stage(tmp_path / "run")


def test_a_search_that_nobody_proposes_for_is_refused_at_once(tmp_path: Path) -> None:
    order = SearchOrder(backend=BackendName.CUDA)
    with pytest.raises(SearchError, match=r"--backend triton or cpp.*ksmith evaluate"):
        search_stage(make_problem(), tmp_path / "run", order)
    assert not (tmp_path / "run").exists()
