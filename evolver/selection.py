"""Who is shown to a proposer: pure functions of one island and a random generator."""

from __future__ import annotations

import random
from collections.abc import Sequence

from evolver.archive import Archive, Elite

GREEDY_SHARE = 0.7
"""How often the parent comes from the top list; else from a strategy taken uniformly."""
BEST_EXEMPLARS = 3
DIVERSE_EXEMPLARS = 2
FAILURES_SHOWN = 3


def choose_parent(archive: Archive, rng: random.Random) -> Elite | None:
    """Return an elite to improve on; None before anything is correct.

    In the top list, and within a strategy, weights fall as 1, 1/2, 1/3 with the rank.
    Strategies are taken uniformly, so that one that is slow so far is improved on as often as
    the one that is crowded.
    """
    top = archive.top
    if not top:
        return None
    strategies = list(archive.by_strategy.values())
    if rng.random() < GREEDY_SHARE or not strategies:
        return _by_rank(top, rng)
    return _by_rank(rng.choice(strategies), rng)


def choose_exemplars(archive: Archive, rng: random.Random, parent: Elite | None) -> Sequence[Elite]:
    """Return good attempts, then the best of other strategies; the parent is not among them."""
    apart = {parent.candidate_id} if parent else set()
    best = [e for e in archive.top if e.candidate_id not in apart][:BEST_EXEMPLARS]
    shown = {e.place.strategy for e in [*best, *([parent] if parent else [])]}
    others = [elites[0] for kind, elites in archive.by_strategy.items() if kind not in shown]
    return [*best, *rng.sample(others, min(DIVERSE_EXEMPLARS, len(others)))]


def choose_failures(archive: Archive) -> Sequence[str]:
    """Return the ids of failures that are worth a repair, the most promising last.

    Of failures with the same cause the latest stands for all: that it still occurs is news,
    how often is not. Of causes those come first that are nearest to success.
    """
    by_cause = {failure.cause: (index, failure) for index, failure in enumerate(archive.failures)}
    ranked = sorted(by_cause.values(), key=lambda pair: (pair[1].score, pair[0]))
    return [failure.candidate_id for _, failure in ranked[-FAILURES_SHOWN:]]


def _by_rank(elites: Sequence[Elite], rng: random.Random) -> Elite:
    return rng.choices(elites, weights=[1 / (rank + 1) for rank in range(len(elites))])[0]
