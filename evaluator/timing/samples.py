"""Every timed round as it was measured, for whoever wants more than the record's medians.

The record stays small; a caller that wants the rounds gives the evaluator a sink. Times are
float64 nanoseconds per call, in the order of the rounds, one list for the candidate and one
for each baseline; the n-th entries of all lists belong to one round.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Literal

Purpose = Literal["screen", "confirmation", "other clock", "reference against itself"]


@dataclass(frozen=True)
class TimingSamples:
    """The rounds of one workload in one process pair."""

    candidate_id: str
    purpose: Purpose
    process_pair: int
    workload: str
    clock: str
    calls_per_block: int
    per_call_ns: Mapping[str, list[float]]

    def to_json(self) -> str:
        """Return one line of JSON; floats keep all their digits."""
        return json.dumps(asdict(self))


SampleSink = Callable[[TimingSamples], None]
