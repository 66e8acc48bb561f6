"""The two tables, and the rules that candidates of each are judged by.

A table is precision times library. ``main`` asks for the reference's precision and lets the
library compute regions of the problem. ``paper`` is Kernel-Smith's: a tolerance of 1e-2, TF32
allowed, nothing of the library's, winners timed 100 times; its numbers alone are compared with
theirs. They are two searches, since what one may offer the other may not.
"""

from __future__ import annotations

from enum import StrEnum

from evaluator.backends import language_of
from evaluator.candidate import BackendName
from policies.model import EvaluatorPolicy

PAPER_TIMINGS = 100
_PAPER_PROCESSES = 5


class Table(StrEnum):
    """A set of rules, and of rows."""

    MAIN = "main"
    PAPER = "paper"

    @property
    def infix(self) -> str:
        """What the table's files and folders have in their names."""
        return "" if self is Table.MAIN else f"-{self.value}"


def policy_of(table: Table, backend: BackendName) -> EvaluatorPolicy:
    """Return the rules of ``table`` for candidates of ``backend``."""
    policy = EvaluatorPolicy.default()
    if table is Table.MAIN:
        return policy.with_source_preset("kernelbench")
    native = language_of(backend).native
    policy = policy.with_source_preset("keck-cuda" if native else "keck-triton")
    rounds = PAPER_TIMINGS // _PAPER_PROCESSES
    confirm = policy.timing.confirm.model_copy(
        update={
            "process_pairs": _PAPER_PROCESSES,
            "min_rounds": rounds,
            "max_rounds": max(rounds, policy.timing.confirm.max_rounds),
        }
    )
    loose = policy.correctness.model_copy(update={"allow_lower_precision": True})
    timing = policy.timing.model_copy(update={"confirm": confirm})
    return policy.model_copy(update={"correctness": loose, "timing": timing})
