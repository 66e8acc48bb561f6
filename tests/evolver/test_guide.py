"""Adaptive searches: they end on a plateau, say why, and would do so again."""

from __future__ import annotations

from pathlib import Path

from evaluator.candidate import Candidate
from evolver.proposers.base import ProposalContext
from evolver.run import Run
from evolver.store import EntryKind
from policies.model import SearchPolicy
from tests.evolver.toys import make_run, make_search, speed_of, toy_candidate

RULE = SearchPolicy.default().adaptive


class Idle:
    """Offers ever larger candidates that are no faster than the parent."""

    name = "idle"

    def propose(self, context: ProposalContext) -> Candidate | None:
        assert context.parent is not None
        speed = speed_of(context.parent.candidate)
        return toy_candidate(speed, proposer=self.name, size=context.attempt_number)


class Climber(Idle):
    """Raises the parent by a tenth each time."""

    name = "climber"

    def propose(self, context: ProposalContext) -> Candidate | None:
        assert context.parent is not None
        speed = speed_of(context.parent.candidate) * 1.1
        return toy_candidate(speed, proposer=self.name, size=context.attempt_number)


def reasons(run: Run, kind: EntryKind) -> list[str]:
    return [entry.detail for entry in run.log() if entry.kind is kind]


def test_a_search_that_has_become_flat_ends_before_its_budget(tmp_path: Path) -> None:
    with make_run(tmp_path / "run", adaptive=True) as run:
        summary = make_search(run, steps=100, proposers=[Idle()]).search()
        assert RULE.minimum < summary.evaluated < 50
        assert reasons(run, EntryKind.STOPPED)[0].startswith("plateau")


def test_a_search_that_climbs_goes_on_to_its_budget(tmp_path: Path) -> None:
    with make_run(tmp_path / "run", adaptive=True) as run:
        assert make_search(run, steps=30, proposers=[Climber()]).search().evaluated == 30


def test_a_search_that_nobody_asked_to_be_adaptive_spends_its_budget(tmp_path: Path) -> None:
    with make_run(tmp_path / "run") as run:
        assert make_search(run, steps=40, proposers=[Idle()]).search().evaluated == 40


def test_an_adaptive_search_that_is_cut_in_two_ends_where_the_whole_one_does(
    tmp_path: Path,
) -> None:
    with make_run(tmp_path / "whole", adaptive=True) as run:
        whole = make_search(run, steps=100, proposers=[Idle()]).search()
    with make_run(tmp_path / "cut", adaptive=True) as run:
        make_search(run, steps=whole.evaluated - 4, proposers=[Idle()]).search()
    with Run.resume(tmp_path / "cut") as run:
        assert make_search(run, steps=100, proposers=[Idle()]).search().evaluated == whole.evaluated
