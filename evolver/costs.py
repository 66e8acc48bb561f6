"""What a step costs, in every currency that a search pays in; pure, and it adds up.

Machine time, the device's time, a model's tokens and its price are never mixed: a budget
limits each by itself, and a report shows each by itself.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Cost:
    """What was spent. Costs add up; nothing is negative."""

    seconds: float = 0.0
    """Wall time of the step itself, whatever went on beside it."""
    device_seconds: float = 0.0
    """For how long the step held the device that candidates are timed on."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    money_usd: float = 0.0
    """By the prices in the configuration; 0 where none is given."""

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            seconds=self.seconds + other.seconds,
            device_seconds=self.device_seconds + other.device_seconds,
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
            money_usd=self.money_usd + other.money_usd,
        )

    def share(self, parts: int) -> Cost:
        """Return one of ``parts`` equal parts; tokens are rounded."""
        return Cost(
            seconds=self.seconds / parts,
            device_seconds=self.device_seconds / parts,
            prompt_tokens=round(self.prompt_tokens / parts),
            completion_tokens=round(self.completion_tokens / parts),
            money_usd=self.money_usd / parts,
        )

    @property
    def tokens(self) -> int:
        """Sent and received together."""
        return self.prompt_tokens + self.completion_tokens

    def __str__(self) -> str:
        """What was spent in one line; what nothing was spent of is left out."""
        parts = [f"{duration(self.seconds)} of work"]
        if self.device_seconds:
            parts.append(f"{duration(self.device_seconds)} on the device")
        if self.tokens:
            parts.append(f"{self.tokens:,} tokens")
        if self.money_usd:
            parts.append(f"{self.money_usd:.2f} USD")
        return ", ".join(parts)


def duration(seconds: float) -> str:
    """Return a wall time in the unit that suits it."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


class Meter:
    """Adds up the costs of one step while it runs; what was charged stays when the step fails."""

    def __init__(self) -> None:
        self._spent = Cost()

    @property
    def spent(self) -> Cost:
        """All that was charged so far."""
        return self._spent

    def charge(self, cost: Cost) -> None:
        """Add ``cost``."""
        self._spent += cost
