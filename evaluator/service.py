"""The interface between the search and the evaluator; the local one lies in ``supervisor.py``."""

from __future__ import annotations

from typing import Protocol

from evaluator.candidate import Candidate
from evaluator.evaluation import Evaluation


class Evaluator(Protocol):
    """Judges candidates of one problem on one backend.

    An implementation holds what is costly and shared (the reference's worker, expected
    outputs, baselines) between calls, and is a context manager that frees it.
    """

    @property
    def lanes(self) -> int:
        """How many candidates may be screened at once, from threads; 1 where nothing else may run.

        Where it is 1 the host is what is timed, and whoever asks keeps still meanwhile.
        """

    def screen(self, candidate: Candidate, *, incumbent_us: float | None = None) -> Evaluation:
        """Judge ``candidate`` as cheaply as its fate allows.

        Every failure of the candidate is a status, never an exception. A candidate that
        is clearly slower than ``incumbent_us`` (weighted geometric mean of the incumbent's
        workload medians) is timed coarsely.

        Raises:
            EvaluatorError: the machine, the sandbox or the reference fails, not the candidate.
        """

    def confirm(self, candidate: Candidate) -> Evaluation:
        """Judge ``candidate`` again in fresh processes, with fresh seeds and full timing.

        The published number comes from this alone (design.md section 4).
        """
