"""The interface of proposers."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from evaluator.candidate import BackendName, Candidate
from evaluator.evaluation import Evaluation
from evaluator.problem import LoadedProblem
from evolver.costs import Meter
from evolver.library.entry import Known


@dataclass(frozen=True)
class Attempt:
    """A candidate with what was found about it."""

    candidate: Candidate
    evaluation: Evaluation


@dataclass(frozen=True)
class ProposalContext:
    """All that a proposer may know.

    ``rng`` is seeded by the run's seed and the attempt's number, so that the same seed
    and the same log give the same proposals.
    """

    loaded: LoadedProblem
    backend: BackendName
    rng: random.Random
    attempt_number: int
    parent: Attempt | None
    """Chosen by the archive; None before anything works."""
    exemplars: Sequence[Attempt] = ()
    """Good and diverse attempts of the same island."""
    failures: Sequence[Attempt] = ()
    """Recent failures, for repair."""
    known: Sequence[Known] = ()
    """What worked on other problems, the most telling first (``evolver/library``)."""
    meter: Meter = field(default_factory=Meter)
    """Where tokens and money are charged as they are spent, by a proposer that fails later too."""


class Proposer(Protocol):
    """Suggests one candidate at a time.

    One that sets ``slow = True`` (a model) is asked from threads, several times at once, while
    evaluations go on. A seeder that sets ``fallback = True`` is asked when the others' seeds are
    judged. One that has ``close`` ends there what it holds and charges for what is under way; it
    may be called more than once, and nothing is asked after it. One that keeps books of its own
    says as ``spent`` what it has cost over all sessions, those that were killed among them.
    """

    name: str

    def propose(self, context: ProposalContext) -> Candidate | None:
        """Return a candidate, or None when this proposer has nothing (more) to offer here.

        A proposal that was seen before is the caller's to discard (by ``Candidate.id``).
        """
