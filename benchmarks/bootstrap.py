"""Intervals of any statistic over problems, by a bootstrap that draws whole problems."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Statistic = Callable[[Floats], Any]
"""From an array (columns, ..., problems) to one without the first and the last axis."""

DRAWS = 4000
CONFIDENCE = 0.95


def interval(statistic: Statistic, *columns: Sequence[float]) -> tuple[float, float, float]:
    """Return (value, low, high) of ``statistic`` by a bootstrap over problems, at 95 %.

    ``columns`` hold one number per problem each; those of one problem are drawn together. The
    same columns give the same interval.
    """
    data = np.asarray(columns, dtype=np.float64)
    count = data.shape[1]
    picks = np.random.default_rng(0).integers(count, size=(DRAWS, count))
    drawn = np.asarray(statistic(data[:, picks]))
    drawn = drawn[np.isfinite(drawn)]
    value = float(statistic(data))
    if not drawn.size:
        return value, value, value
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail])
    return value, min(value, float(low)), max(value, float(high))


def clustered_interval(groups: Sequence[Sequence[float]]) -> tuple[float, float, float]:
    """Return (value, low, high) of the mean of the groups' means, at 95 %.

    A draw takes groups (problems) with replacement, and within each its members (seeds): the
    interval is as wide as problems differ, not as narrow as seeds are many.
    """
    rng = np.random.default_rng(0)
    arrays = [np.asarray(g, dtype=np.float64) for g in groups]
    drawn = np.stack([a[rng.integers(len(a), size=(DRAWS, len(a)))].mean(axis=1) for a in arrays])
    picks = rng.integers(len(arrays), size=(len(arrays), DRAWS))
    means = np.take_along_axis(drawn, picks, axis=0).mean(axis=0)
    value = float(np.mean([a.mean() for a in arrays]))
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return value, min(value, float(low)), max(value, float(high))


def first_mean(columns: Floats) -> Any:
    """Mean of the first column."""
    return columns[0].mean(axis=-1)


def first_geomean(columns: Floats) -> Any:
    """Geometric mean of the first column."""
    return np.exp(np.log(columns[0]).mean(axis=-1))


def ratio_of_means(columns: Floats) -> Any:
    """Mean of the first column over that of the second; infinite where that is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.divide(*columns.mean(axis=-1))
