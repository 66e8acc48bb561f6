"""Budgets: when a search has to stop. Pure; the caller brings the counts and the clock."""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_STEPS = 40
"""As many as Kernel-Smith's evolution takes."""


@dataclass(frozen=True)
class Budget:
    """What a run may spend over all its sessions; None is no limit."""

    steps: int | None = None
    """Evaluations of new candidates."""
    minutes: float | None = None
    """Wall time."""

    def out_of_steps(self, evaluated: int) -> str | None:
        """Return why ``evaluated`` candidates are enough, or None."""
        if self.steps is None or evaluated < self.steps:
            return None
        return f"the budget of {self.steps} steps is spent"

    def out_of_time(self, seconds: float, *, reserve_seconds: float = 0.0) -> str | None:
        """Return why the search must stop after ``seconds``, or None.

        ``reserve_seconds`` are kept for the confirmation of the winner, though never more
        than half of the budget: an estimate must not eat the search.
        """
        if self.minutes is None:
            return None
        limit = 60 * self.minutes
        if seconds + min(reserve_seconds, limit / 2) < limit:
            return None
        return f"the budget of {self.minutes:g} minutes is spent"

    def fraction(self, *, steps: int, seconds: float) -> float | None:
        """Return the share that is spent, in [0, 1], of the limit that is nearest; None without."""
        shares = []
        if self.steps is not None:
            shares.append(steps / self.steps if self.steps else 1.0)
        if self.minutes is not None:
            shares.append(seconds / (60 * self.minutes) if self.minutes else 1.0)
        return min(1.0, max(shares)) if shares else None
