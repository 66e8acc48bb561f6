"""Which generator a tensor came from, judged by its moments and a sample of its elements.

Inputs must be told from one another: a triangular matrix or probabilities drawn as plain
uniform numbers would be another problem. Parameters are drawn anew whatever they were, since
weights that training would change must not be known to a candidate in advance.
"""

from __future__ import annotations

import math

import numpy as np
from pydantic import Field

from evaluator.records import Record
from evaluator.tensors import Array
from evaluator.workload import DType, ValueKind, Values

_TELLING = 64
"""Elements below which no test of a distribution says anything."""
_DISTANCE = 1.95
"""Of Kolmogorov and Smirnov, times the root of the sample's size: one honest sample in 1000."""
_EXCESS = 0.5
"""Kurtosis beyond the normal law's; sums of two uniform numbers, say, lack 0.6."""
_CONSTANT_SPREAD = 0.5


class TensorFacts(Record):
    """A tensor as ``inside.py`` tells of it."""

    shape: tuple[int, ...]
    dtype: str
    strides: tuple[int, ...] | None = None
    device: str = "cpu"
    plain: bool = True
    low: float = 0.0
    high: float = 0.0
    finite: bool = True
    sample: tuple[float, ...] = Field(default=(), max_length=4096)
    ascends: bool = False
    row_sums: tuple[float, ...] = Field(default=(), max_length=256)


class Structured(ValueError):
    """No generator draws such values; the message says what they look like."""


def fit_input(facts: TensorFacts) -> Values:
    """Return the generator of an input's elements.

    Raises:
        Structured: they are of none that can be drawn from.
    """
    if not facts.sample:
        return Values(kind=ValueKind.CONSTANT)
    if not facts.finite:
        raise Structured("holds infinities or NaN")
    values = np.asarray(facts.sample, dtype=np.float64)
    if DType(facts.dtype).is_floating:
        return _fit_floats(facts, values)
    return _fit_integers(facts, values)


def fit_state(facts: TensorFacts, *, parameter: bool) -> Values:
    """Return the generator of a parameter's or buffer's elements.

    Floating constants (biases of zero, scales of one, variances) become uniform numbers
    around them, so that no candidate may leave them out.

    Raises:
        Structured: a buffer holds values that mean something, such as indices or a mask.
    """
    if DType(facts.dtype).is_floating and facts.sample and facts.finite:
        if facts.low == facts.high:
            low, high = facts.low - _CONSTANT_SPREAD, facts.low + _CONSTANT_SPREAD
            return Values(kind=ValueKind.UNIFORM, low=low, high=high)
        try:
            return _meaningless(fit_input(facts))
        except Structured:
            if not parameter:
                raise
        values = np.asarray(facts.sample, dtype=np.float64)
        return Values(mean=float(values.mean()), std=float(values.std()) or 1.0)
    return _meaningless(fit_input(facts))


def _meaningless(found: Values) -> Values:
    if found.kind is ValueKind.INTEGERS:
        raise Structured("holds different integers, which mean something, such as a mask")
    return found


def _fit_floats(facts: TensorFacts, values: Array) -> Values:
    if facts.low == facts.high:
        return Values(kind=ValueKind.CONSTANT, low=facts.low)
    if facts.ascends and len(values) > 2:
        raise Structured("ascends from element to element")
    if values.size >= _TELLING and np.array_equal(values, np.rint(values)):
        _refuse_unlike_rows(facts, values)
        return _even_integers(facts, values)
    uniform = _uniform(facts)
    if values.size < _TELLING:
        return uniform if facts.low >= 0 and facts.high <= 1 else _normal(values)
    _refuse_unlike_rows(facts, values)
    normal = _normal(values)
    found = min(uniform, normal, key=lambda law: _distance(values, law))
    tails = abs(_excess_kurtosis(values)) if found is normal else 0.0
    if _distance(values, found) <= _DISTANCE and tails < _EXCESS:
        return found
    share = float((values == 0).mean())
    zeros = f", {share:.0%} of them zero" if share > 0.01 else ""
    raise Structured(
        f"is neither uniform nor normal: {facts.low:.3g} to {facts.high:.3g}, "
        f"mean {values.mean():.3g}, standard deviation {values.std():.3g}{zeros}"
    )


def _fit_integers(facts: TensorFacts, values: Array) -> Values:
    if facts.dtype == DType.BOOL.value:
        share = float(values.mean())
        if values.size >= _TELLING and abs(share - 0.5) > 3 / math.sqrt(values.size):
            raise Structured(f"is a mask that is true for {share:.0%} of its elements")
        return Values(kind=ValueKind.INTEGERS, low=0, high=2)
    if facts.low == facts.high:
        return Values(kind=ValueKind.CONSTANT, low=facts.low)
    if facts.ascends:
        count = math.prod(facts.shape)
        if facts.high - facts.low == count - 1:
            return Values(kind=ValueKind.ARANGE, low=facts.low)
        raise Structured("ascends from element to element")
    return _even_integers(facts, values)


def _even_integers(facts: TensorFacts, values: Array) -> Values:
    """Integers from ``low`` to ``high``, each as likely as the next."""
    found = Values(kind=ValueKind.INTEGERS, low=facts.low, high=facts.high + 1)
    jittered = values + np.random.default_rng(0).random(values.size)
    even = Values(kind=ValueKind.UNIFORM, low=facts.low, high=facts.high + 1)
    if values.size >= _TELLING and _distance(jittered, even) > _DISTANCE:
        raise Structured(
            f"holds integers from {facts.low:.0f} to {facts.high:.0f} that are not equally likely"
        )
    return found


def _uniform(facts: TensorFacts) -> Values:
    spread = facts.high - facts.low
    low, high = (_round_if_near(x, 0.02 * spread) for x in (facts.low, facts.high))
    if abs(low + high) < 0.02 * spread:
        high = max(abs(facts.low), abs(facts.high), high)
        low = -high
    return Values(kind=ValueKind.UNIFORM, low=min(low, facts.low), high=max(high, facts.high))


def _normal(values: Array) -> Values:
    mean, std = float(values.mean()), float(values.std()) or 1.0
    if abs(mean) < 4 * std / math.sqrt(values.size):
        mean = 0.0
    return Values(mean=mean, std=_round_if_near(std, 4 * std / math.sqrt(2 * values.size)) or std)


def _round_if_near(number: float, slack: float) -> float:
    """A person's number where one lies within ``slack``."""
    rounded = round(number, 1)
    return rounded if abs(rounded - number) <= slack else number


def _refuse_unlike_rows(facts: TensorFacts, values: Array) -> None:
    """Refuse rows whose sums are not those of independent elements: normalised or triangular."""
    count, length = len(facts.row_sums), facts.shape[-1] if facts.shape else 1
    if count < 8:
        return
    sums, spread = np.asarray(facts.row_sums), float(values.std())
    if float(sums.std()) < 0.2 * spread * math.sqrt(length):
        raise Structured("has rows that all have one sum")
    error = spread * (math.sqrt(length / count) + length / math.sqrt(values.size))
    if abs(float(sums.mean()) - length * float(values.mean())) > 6 * error:
        raise Structured("has first rows unlike the others, as a triangle has")


def _distance(values: Array, fitted: Values) -> float:
    """Kolmogorov and Smirnov's distance from ``fitted``, times the root of the size."""
    from scipy import stats

    if fitted.kind is ValueKind.UNIFORM:
        law = stats.uniform(loc=fitted.low, scale=fitted.high - fitted.low).cdf
    else:
        law = stats.norm(loc=float(values.mean()), scale=float(values.std())).cdf
    distance = float(stats.kstest(values, law).statistic)
    return distance * math.sqrt(values.size)


def _excess_kurtosis(values: Array) -> float:
    scaled = (values - values.mean()) / values.std()
    return float((scaled**4).mean() - 3)
