"""The modes: from what each lets a proposal start, in whole searches in miniature."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from evaluator.candidate import Candidate
from evolver.modes import SearchMode
from evolver.proposers.base import ProposalContext
from evolver.run import Run
from evolver.store import EntryKind, LogEntry
from tests.evolver.toys import Nudge, ToyEvaluator, make_run, make_search, toy_candidate

SEEDS = (0.8, 1.1, 0.9)
STEPS = 40


class Watched(Nudge):
    """Keeps what it was shown."""

    def __init__(self) -> None:
        self.contexts: list[ProposalContext] = []

    def propose(self, context: ProposalContext) -> Candidate | None:
        self.contexts.append(context)
        return super().propose(context)


def searched(
    path: Path, mode: SearchMode, lanes: int = 1, **config: Any
) -> tuple[Sequence[ProposalContext], list[LogEntry]]:
    watched = Watched()
    with make_run(path, mode=mode, **config) as run:
        search = make_search(
            run, ToyEvaluator(lanes=lanes), seeds=SEEDS, proposers=[watched], steps=STEPS
        )
        search.search()
        return watched.contexts, list(run.log())


def parents(contexts: Sequence[ProposalContext]) -> list[str]:
    return [c.parent.candidate.id for c in contexts if c.parent is not None]


def test_evolving_shows_good_others_of_the_proposals_own_island(tmp_path: Path) -> None:
    contexts, log = searched(tmp_path / "run", SearchMode.EVOLVE, islands=3)
    assert any(c.exemplars for c in contexts)
    assert {e.island for e in log if e.kind is EntryKind.PROPOSED} == {0, 1, 2}
    assert all(c.parent not in c.exemplars for c in contexts)


@pytest.mark.parametrize("lanes", [1, 3])
def test_in_a_chain_each_proposal_starts_from_the_attempt_before(
    tmp_path: Path, lanes: int
) -> None:
    contexts, log = searched(tmp_path / "run", SearchMode.SEQUENTIAL, lanes)
    judged = {e.ticket: e.candidate_id for e in log if e.kind is EntryKind.EVALUATED}
    repeats = {e.ticket for e in log if e.kind is EntryKind.DUPLICATE}
    for context in contexts:
        before = context.attempt_number - 1
        if before not in repeats:
            assert context.parent is not None
            assert context.parent.candidate.id == judged[before]
        assert not context.exemplars


def test_best_of_n_starts_from_seeds_alone_and_tells_nothing(tmp_path: Path) -> None:
    contexts, _ = searched(tmp_path / "run", SearchMode.BEST_OF_N)
    seeds = {toy_candidate(speed, proposer="seeds").id for speed in SEEDS}
    assert set(parents(contexts)) == seeds
    assert not any(c.exemplars or c.failures for c in contexts)


def test_random_parents_are_any_that_are_correct(tmp_path: Path) -> None:
    contexts, log = searched(tmp_path / "run", SearchMode.RANDOM)
    correct = {e.candidate_id for e in log if e.evaluation and e.evaluation.speedups}
    drawn = parents(contexts)
    assert set(drawn) <= correct
    assert len(set(drawn)) > STEPS / 4  # neither the best alone nor the seeds alone


def test_a_mode_is_the_runs_own_and_a_resumption_goes_on_in_it(tmp_path: Path) -> None:
    searched(tmp_path / "run", SearchMode.BEST_OF_N)
    watched = Watched()
    with Run.resume(tmp_path / "run") as run:
        make_search(run, seeds=SEEDS, proposers=[watched], steps=STEPS + 5).search()
    assert not any(c.exemplars or c.failures for c in watched.contexts)


def test_an_adaptive_search_ends_on_a_plateau_and_says_so(tmp_path: Path) -> None:
    class Slower(Nudge):
        """Finds nothing better, ever."""

        def propose(self, context: ProposalContext) -> Candidate | None:
            return toy_candidate(round(context.rng.uniform(0.5, 0.9), 6), proposer=self.name)

    with make_run(tmp_path / "run", adaptive=True) as run:
        summary = make_search(run, proposers=[Slower()], seeds=(1.5,), steps=400).search()
        log = list(run.log())
    assert summary.evaluated < 200
    assert "plateau" in log[-1].detail
    advised = [e for e in log if e.kind is EntryKind.ADVISED]
    assert all(e.detail for e in advised)


def test_where_nothing_is_correct_a_search_turns_elsewhere_until_somebody_gains(
    tmp_path: Path,
) -> None:
    class Stubborn(Nudge):
        """Wrong again and again, and right from its eighth proposal on."""

        def __init__(self, name: str) -> None:
            self.name = name
            self._asked = 0

        def propose(self, context: ProposalContext) -> Candidate | None:
            self._asked += 1
            sign = -1 if self._asked < 8 else 1
            return toy_candidate(round(sign * context.rng.uniform(1, 2), 6), proposer=self.name)

    proposers = [Stubborn("this"), Stubborn("that")]
    with make_run(tmp_path / "run", adaptive=True) as run:
        search = make_search(run, proposers=proposers, seeds=(), steps=80)
        search.search()
        log = list(run.log())
    advised = next(e for e in log if e.kind is EntryKind.ADVISED)
    assert "nothing correct" in advised.detail
    gained = next(e.sequence for e in log if e.evaluation and e.evaluation.speedups)
    between = {
        e.proposer
        for e in log
        if e.kind is EntryKind.PROPOSED and advised.sequence < e.sequence < gained
    }
    assert advised.proposer not in between
    assert len(between) == 1
    assert search.state.resting == set()
