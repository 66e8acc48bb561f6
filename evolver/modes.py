"""What a proposal starts from, by the search's mode: pure functions of state and random numbers.

``evolve`` is the search itself. The others leave parts of it out and spend the same budget, so
that a comparison tells what the parts are worth: one chain of attempts, many first attempts,
or an archive in which nothing is chosen.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import StrEnum

from evolver.archive import Archive, Elite
from evolver.selection import (
    BEST_EXEMPLARS,
    DIVERSE_EXEMPLARS,
    choose_exemplars,
    choose_failures,
    choose_parent,
)
from evolver.state import SearchState


class SearchMode(StrEnum):
    """How a search uses what it has found."""

    EVOLVE = "evolve"
    """Islands of good and diverse attempts; parents, exemplars and failures from there."""
    SEQUENTIAL = "sequential"
    """One chain: each proposal starts from the attempt before it."""
    BEST_OF_N = "best-of-n"
    """Each proposal starts from a seed, as if it were the first."""
    RANDOM = "random"
    """Parents and exemplars are drawn uniformly from all that is correct."""

    @property
    def one_at_a_time(self) -> bool:
        """Whether a proposal needs the evaluation of the one before."""
        return self is SearchMode.SEQUENTIAL


@dataclass(frozen=True)
class Choice:
    """Candidates by id that a proposer is shown, and the island that its proposal belongs to."""

    island: int = 0
    parent_id: str | None = None
    exemplar_ids: Sequence[str] = ()
    failure_ids: Sequence[str] = ()


def choose(
    mode: SearchMode,
    state: SearchState,
    ticket: int,
    rng: Callable[[str], random.Random],
    *,
    seeders: AbstractSet[str],
) -> Choice:
    """Return what the proposal with number ``ticket`` starts from.

    Args:
        mode: the run's.
        state: what is known by now.
        ticket: of the proposal, from 1.
        rng: gives the ticket's generator for a purpose.
        seeders: the names of those whose candidates are seeds.
    """
    island = state.islands.for_ticket(ticket)
    match mode:
        case SearchMode.EVOLVE:
            return _evolve(state, island, rng)
        case SearchMode.SEQUENTIAL:
            return Choice(island, _latest_or_best(state))
        case SearchMode.BEST_OF_N:
            seeds = [i for name in sorted(seeders) for i in state.correct.get(name, ())]
            return Choice(island, rng("parent").choice(seeds) if seeds else None)
        case SearchMode.RANDOM:
            return _uniform(state, island, rng)


def _evolve(state: SearchState, island: int, rng: Callable[[str], random.Random]) -> Choice:
    archive = state.islands.island(island)
    pick = _other_parent if state.exploring else choose_parent
    parent = pick(archive, rng("parent"))
    return Choice(
        island=island,
        parent_id=parent.candidate_id if parent else None,
        exemplar_ids=[e.candidate_id for e in choose_exemplars(archive, rng("exemplars"), parent)],
        failure_ids=choose_failures(archive),
    )


def _other_parent(archive: Archive, rng: random.Random) -> Elite | None:
    """Return an elite whose strategy is not the leader's, where there is one."""
    if archive.leader is None:
        return None
    leading = archive.leader.place.strategy
    others = [elites for kind, elites in archive.by_strategy.items() if kind != leading]
    return rng.choice(rng.choice(others)) if others else choose_parent(archive, rng)


def _latest_or_best(state: SearchState) -> str | None:
    """Return the latest attempt, once; where nothing new came of it, the best so far."""
    leader = state.islands.leader
    if state.fruitless and leader is not None:
        return leader.candidate_id
    return state.latest


def _uniform(state: SearchState, island: int, rng: Callable[[str], random.Random]) -> Choice:
    found = [i for name in sorted(state.correct) for i in state.correct[name]]
    if not found:
        return Choice(island)
    parent = rng("parent").choice(found)
    others = [i for i in found if i != parent]
    shown = min(len(others), BEST_EXEMPLARS + DIVERSE_EXEMPLARS)
    return Choice(island, parent, rng("exemplars").sample(others, shown))
