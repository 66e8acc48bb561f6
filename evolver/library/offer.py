"""What a search is told of the library, and what it must not be told.

A search never learns of its own problem or of a near-duplicate: not the same id, target or
reference (names, numbers and text aside). Where a benchmark is measured, nothing of the same
repository is told either, the benchmark itself among them: its problems' results then depend
on no order. What is told is fixed when a run begins, so that a resumed one goes on alike.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from evaluator.candidate import BackendName
from evaluator.problem import LoadedProblem
from evolver.errors import LibraryUnusable
from evolver.library.entry import Features, Identity, Known, LibraryEntry
from evolver.library.features import features_of, identity_of, similarity
from evolver.library.store import Library

log = logging.getLogger(__name__)

KNOWN_AT_MOST = 12
_PER_PROBLEM = 3
_LEAST_SIMILARITY = 0.1


@dataclass(frozen=True)
class Exclusion:
    """Of whom a search must learn nothing."""

    identity: Identity
    whole_repository: bool = False
    """Also nothing of what comes from the same repository."""

    @classmethod
    def of(cls, loaded: LoadedProblem) -> Self:
        """The problem itself and its near-duplicates: what every search leaves out."""
        return cls(identity_of(loaded))

    @classmethod
    def for_benchmark(cls, loaded: LoadedProblem) -> Self:
        """What a search leaves out whose result is published as a benchmark's."""
        return cls(identity_of(loaded), whole_repository=True)

    def forbids(self, origin: Identity) -> bool:
        """Whether what was learned from ``origin`` must not be told."""
        own = self.identity
        same_place = origin.repository == own.repository
        return (
            origin.problem_id == own.problem_id
            or origin.skeleton == own.skeleton
            or (same_place and (self.whole_repository or origin.target == own.target))
        )


def choose(
    entries: Iterable[LibraryEntry], features: Features, *, excluding: Exclusion
) -> tuple[Known, ...]:
    """Return what may be told, the most telling first: similarity times the gain that is certain.

    Of one problem no more than a few, so that one long run does not speak for all.
    """
    allowed = [e for e in entries if not excluding.forbids(e.origin)]
    rated = [Known(entry=e, similarity=similarity(e.features, features)) for e in allowed]
    near = [k for k in rated if k.similarity >= _LEAST_SIMILARITY]
    chosen: list[Known] = []
    told: dict[str, int] = {}
    for known in sorted(near, key=lambda k: (-weight_of(k), k.entry.id)):
        problem = known.entry.origin.skeleton
        told[problem] = told.get(problem, 0) + 1
        if told[problem] <= _PER_PROBLEM:
            chosen.append(known)
    return tuple(chosen[:KNOWN_AT_MOST])


def weight_of(known: Known) -> float:
    """Return how much an entry says for the problem at hand, in log units of gain."""
    return known.similarity * math.log(known.entry.gain.low)


def known_for(
    library: Library,
    loaded: LoadedProblem,
    backend: BackendName,
    device: str,
    *,
    excluding: Exclusion,
) -> tuple[Known, ...]:
    """Return what a search of ``loaded`` is told; nothing, and a warning, where there is trouble.

    A library that cannot be read costs a search what it could have learned, and nothing else.
    """
    try:
        entries = library.entries(backend)
        return choose(entries, features_of(loaded, backend, device), excluding=excluding)
    except LibraryUnusable as error:
        log.warning("%s; the search goes on without it", error)
        return ()
