"""Whether a candidate computes in a lower precision than its reference, whatever the tolerance.

The error against float64 that nine elements of ten keep to, relative to the output's magnitude,
tells the precision of the arithmetic: about 2^-24 for float32, 2^-12 for TF32 and float16
inputs, 2^-9 for bfloat16. It is compared with the reference's own, so an ill-conditioned problem
accuses nobody, and it is a quantile, so that a few unlucky or wrong elements do not either. A
tolerance of 1e-2 hides nothing here. Large outputs are sampled.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from evaluator.correctness.budget import epsilon, unit
from evaluator.tensors import Array
from evaluator.workload import DType

_QUANTILE = 0.9
_SAMPLE = 1 << 16
_ROUNDING = 0.45
"""What nine of ten roundings to nearest keep to, in units of the last place."""
_SUSPECT_RATIO: Mapping[str, float] = {DType.FLOAT16: 4.0, DType.BFLOAT16: 4.0}
_USUAL_RATIO = 16.0
"""Times the reference's error; 16-bit outputs hide what lies below their own rounding."""
_LEAST_UNITS = 64.0
"""Wide types: errors below this many units are another order of summation, not another type."""
_WRONG_FROM = 2.0**-5
"""Relative errors of this size are no matter of precision."""
_NAMES = ((2.0**-9.5, "bfloat16 or coarser"), (2.0**-13.5, "TF32 or float16"))
_OTHER_NAME = "an approximation (fast math)"


@dataclass(frozen=True)
class Precision:
    """Typical relative errors of one output against float64."""

    output: str
    candidate: float
    reference: float
    suspect_from: float
    """A candidate's error from here on is that of a lower precision."""

    @property
    def looks_like(self) -> str | None:
        """What arithmetic such an error is typical of; None where it is the reference's."""
        if not self.candidate >= self.suspect_from:
            return None
        return next((n for least, n in _NAMES if self.candidate >= least), _OTHER_NAME)

    @property
    def is_low(self) -> bool:
        """Whether the error is one of precision; of a larger one the values' check speaks."""
        return self.looks_like is not None and self.candidate < _WRONG_FROM

    @property
    def sentence(self) -> str:
        """The finding for people."""
        return (
            f"{self.output} is as imprecise as {self.looks_like}: relative error "
            f"2^{_exponent(self.candidate)} where the reference has 2^{_exponent(self.reference)}"
        )


def measure_precision(
    output: str,
    expected: Array,
    native: Array | None,
    got: Array,
    *,
    dtype: str,
    reduction_length: int,
) -> Precision | None:
    """Compare the errors of candidate and reference; None where nothing can be said.

    Args:
        output: its name.
        expected: float64 values.
        native: the reference's own; None where ``expected`` is that.
        got: the candidate's, same shape.
        dtype: the output's type.
        reduction_length: the longest extent over which the function may sum.
    """
    last_place = epsilon(dtype)
    if not last_place or not expected.size:
        return None
    true, mine = _sampled(expected, got)
    own = true
    if native is not None:
        true, mine, own = _sampled(expected, got, native)
    usable = np.isfinite(true) & np.isfinite(mine) & np.isfinite(own)
    if not usable.any():
        return None
    true, mine, own = true[usable], mine[usable], own[usable]
    candidate, reference, magnitude = (
        float(np.quantile(np.abs(a), _QUANTILE)) for a in (mine - true, own - true, true)
    )
    if not magnitude > 0:
        return None
    least = unit(dtype, reduction_length) - (1 - _ROUNDING) * last_place
    suspect = _SUSPECT_RATIO.get(dtype, _USUAL_RATIO) * max(reference / magnitude, least)
    if dtype not in _SUSPECT_RATIO:
        suspect = max(suspect, _LEAST_UNITS * last_place)
    return Precision(output, candidate / magnitude, reference / magnitude, suspect)


def _sampled(*arrays: Array) -> tuple[Array, ...]:
    """The same elements of each array in float64; other ones each time."""
    flat = [a.reshape(-1) for a in arrays]
    if flat[0].size > _SAMPLE:
        chosen = np.random.default_rng().integers(0, flat[0].size, _SAMPLE)
        flat = [a[chosen] for a in flat]
    with np.errstate(invalid="ignore"):
        return tuple(a.astype(np.float64) for a in flat)


def _exponent(error: float) -> str:
    return f"{math.log2(error):.1f}" if error > 0 and math.isfinite(error) else "-inf"
