"""What is known of one workload and seed before any candidate is seen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from evaluator.tensors import CallResult


@dataclass(frozen=True)
class Expected:
    """The reference's runs, and the inputs as they were."""

    native: CallResult
    """The reference in its own types."""
    lifted: CallResult | None
    """The reference in float64, or None where it cannot be lifted."""
    inputs: Mapping[str, bytes]
    """The storage of each tensor argument before the call."""
    reduction_length: int
    stress: bool = False
    """Whether the inputs are extreme, so that only gross errors count."""
    alternatives: tuple[CallResult, ...] = ()
    """The reference in float64 on inputs moved by a rounding error: what near ties may select."""
    jitter: float = 0.0
    """By how much of themselves those inputs moved, one standard deviation."""
