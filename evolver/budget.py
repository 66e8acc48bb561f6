"""Budgets: when a search has to stop. Pure; the caller brings the counts and the clock."""

from __future__ import annotations

from dataclasses import dataclass

from evolver.costs import Cost

DEFAULT_STEPS = 40
"""As many as Kernel-Smith's evolution takes."""
USUAL_SECONDS = 3600.0
"""What wall time is measured against where it has no limit."""


@dataclass(frozen=True)
class Budget:
    """What a run may spend over all its sessions; None is no limit.

    Steps and machine time end the search. Tokens and money end the asking of models; who costs
    neither goes on.
    """

    steps: int | None = None
    """Evaluations of new candidates."""
    minutes: float | None = None
    """Wall time."""
    gpu_seconds: float | None = None
    """For which the device was held."""
    tokens: int | None = None
    """Of models, in and out."""
    money_usd: float | None = None

    @property
    def limits_time(self) -> bool:
        """Whether a device that idles wastes what is limited."""
        return self.limits_machine or self.steps is None

    @property
    def limits_machine(self) -> bool:
        """Whether wall time or the device's time has an end."""
        return self.minutes is not None or self.gpu_seconds is not None

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
        if _within(seconds, 60 * self.minutes, reserve_seconds):
            return None
        return f"the budget of {self.minutes:g} minutes is spent"

    def out_of_device_time(self, seconds: float, *, reserve_seconds: float = 0.0) -> str | None:
        """Return why the device may be held no longer after ``seconds``, or None."""
        if self.gpu_seconds is None or _within(seconds, self.gpu_seconds, reserve_seconds):
            return None
        return f"the budget of {self.gpu_seconds:g} GPU seconds is spent"

    def out_of_models(self, cost: Cost) -> str | None:
        """Return why no model may be asked after ``cost``, or None."""
        if self.tokens is not None and cost.tokens >= self.tokens:
            return f"the budget of {self.tokens} tokens is spent"
        if self.money_usd is not None and cost.money_usd >= self.money_usd:
            return f"the budget of {self.money_usd:g} USD is spent"
        return None

    def price(self, cost: Cost, *, evaluations: int = 0) -> float:
        """Return what a step costs in one number: the sum of its shares of all that is limited.

        A share of the steps counts like the same share of the minutes or of the money. Wall
        time always counts; without a limit of its own, against an hour.
        """
        shares = [
            (cost.seconds, 60 * self.minutes if self.minutes else USUAL_SECONDS),
            (evaluations, self.steps),
            (cost.device_seconds, self.gpu_seconds),
            (cost.tokens, self.tokens),
            (cost.money_usd, self.money_usd),
        ]
        return sum(spent / limit for spent, limit in shares if limit)

    def fraction(self, *, steps: int, seconds: float, device_seconds: float = 0.0) -> float | None:
        """Return the share that is spent, in [0, 1], of the limit that is nearest; None without.

        Only limits count that end the search.
        """
        limits = (
            (steps, self.steps),
            (seconds, None if self.minutes is None else 60 * self.minutes),
            (device_seconds, self.gpu_seconds),
        )
        shares = [spent / limit if limit else 1.0 for spent, limit in limits if limit is not None]
        return min(1.0, max(shares)) if shares else None


def _within(spent: float, limit: float, reserve: float) -> bool:
    return spent + min(reserve, limit / 2) < limit
