"""Who is shown to a proposer: pure functions of the archive and a random generator."""

from __future__ import annotations

import random
from collections.abc import Sequence

from evolver.archive import Archive, Elite

GREEDY_SHARE = 0.7
"""How often the parent comes from the top list; else from a cell taken uniformly."""
BEST_EXEMPLARS = 3
DIVERSE_EXEMPLARS = 2
FAILURES_SHOWN = 3


def choose_parent(archive: Archive, rng: random.Random) -> Elite | None:
    """Return an elite to improve on; None before anything is correct.

    Of the top list, weights fall as 1, 1/2, 1/3 with the rank; cells are
    taken uniformly, so that a lone simple kernel is as likely as a crowd of good ones.
    """
    top = archive.top
    if not top:
        return None
    if rng.random() < GREEDY_SHARE:
        return rng.choices(top, weights=[1 / (rank + 1) for rank in range(len(top))])[0]
    return rng.choice(rng.choice(archive.cells))


def choose_exemplars(archive: Archive, rng: random.Random, parent: Elite | None) -> Sequence[Elite]:
    """Return good attempts, then the best of other cells; the parent is not among them."""
    apart = {parent.candidate_id} if parent else set()
    best = [e for e in archive.top if e.candidate_id not in apart][:BEST_EXEMPLARS]
    apart |= {e.candidate_id for e in best}
    others = [cell[0] for cell in archive.cells if cell[0].candidate_id not in apart]
    return [*best, *rng.sample(others, min(DIVERSE_EXEMPLARS, len(others)))]


def choose_failures(archive: Archive) -> Sequence[str]:
    """Return the ids of the latest failures."""
    return archive.failures[-FAILURES_SHOWN:]
