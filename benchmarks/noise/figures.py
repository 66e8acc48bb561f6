"""From rows to the figures of ``noise-*.json``: pure functions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.noise.rows import Row, Study
from benchmarks.result import Figure
from evaluator.evaluation import Status, Verdict

FRESH_PROCESSES = 20
_CONFIDENCE = 0.95


def noise_figures(rows: Sequence[Row], machine: str) -> list[Figure]:
    """Return every figure that the rows allow."""
    return [
        *_variation(rows, machine),
        *_comparisons(rows, machine),
        *_planted(rows, machine),
        *_full(rows, machine),
        *_null_search(rows, machine),
    ]


def times_us(rows: Sequence[Row]) -> dict[str, dict[str, list[float]]]:
    """Per way of timing and kernel, what fresh processes said; ours is called ``ksmith``."""
    found: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        named = dict(row.yardsticks_us)
        if row.study is Study.SELF and row.us is not None:
            named["ksmith"] = row.us
        for name, us in named.items():
            found.setdefault(name, {}).setdefault(row.kernel, []).append(us)
    return found


def variation_percent(values: Sequence[float]) -> float:
    """The coefficient of variation (sample standard deviation over mean), in per cent."""
    return float(np.std(values, ddof=1) / np.mean(values) * 100)


def upper_bound(successes: int, trials: int) -> float:
    """The one-sided 95 % Clopper-Pearson bound of a rate."""
    from scipy.stats import binomtest

    interval = binomtest(successes, trials, alternative="less").proportion_ci(_CONFIDENCE)
    return float(interval.high)


def _variation(rows: Sequence[Row], machine: str) -> list[Figure]:
    """Largest and median variation over the kernels that have enough fresh processes."""
    bars = {"max": "<= 1.0", "median": "<= 0.5"}
    figures = []
    for name, kernels in times_us(rows).items():
        ours = name == "ksmith"
        enough = {k: v for k, v in kernels.items() if len(v) >= FRESH_PROCESSES}
        if not enough:
            continue
        spread = [variation_percent(v) for v in enough.values()]
        for word, value in (("max", max(spread)), ("median", float(np.median(spread)))):
            figures.append(
                Figure(
                    name=f"{word}_cv_percent" + ("" if ours else f"_{name}"),
                    value=value,
                    unit="%",
                    n=sum(map(len, enough.values())),
                    machine=machine,
                    bar=bars[word] if ours else None,
                )
            )
    return figures


def _comparisons(rows: Sequence[Row], machine: str) -> list[Figure]:
    of_study = [r for r in rows if r.study is Study.SELF]
    judged = [r for r in of_study if r.verdict is not None]
    if not judged:
        return []
    unfit = sum(r.status is Status.MACHINE_UNFIT for r in of_study)
    faster = sum(r.verdict is Verdict.FASTER for r in judged)
    ambiguous = sum(r.verdict is Verdict.AMBIGUOUS for r in judged)
    n = len(judged)
    upper = upper_bound(faster, n)
    return [
        Figure(name="aa_comparisons", value=n, unit="comparisons", machine=machine, bar=">= 600"),
        _rate("aa_false_faster_rate", faster, n, machine),
        Figure(
            name="aa_false_faster_upper95",
            value=upper,
            unit="",
            n=n,
            machine=machine,
            bar="<= 0.015",
        ),
        _rate("aa_ambiguous_rate", ambiguous, n, machine),
        _rate("aa_unfit_rate", unfit, len(of_study), machine),
    ]


def _planted(rows: Sequence[Row], machine: str) -> list[Figure]:
    """Detection from 5 us up has a bar; below it is reported."""
    judged = [r for r in rows if r.study is Study.PLANTED and r.verdict is not None]
    long = [r for r in judged if not r.kernel.startswith("2_to_5")]
    short = [r for r in judged if r.kernel.startswith("2_to_5")]
    figures = []
    for name, some, bar in (
        ("planted_2pct_detection_rate", long, ">= 0.95"),
        ("planted_2pct_detection_rate_2_to_5_us", short, None),
    ):
        if some:
            found = sum(r.verdict is Verdict.FASTER for r in some)
            figures.append(_rate(name, found, len(some), machine, bar))
    return figures


def _full(rows: Sequence[Row], machine: str) -> list[Figure]:
    full = [r for r in rows if r.study is Study.FULL and r.verdict is not None]
    if not full:
        return []
    seconds = float(np.median([r.seconds for r in full]))
    faster = sum(r.verdict is Verdict.FASTER for r in full)
    return [
        Figure(name="full_verdict_seconds", value=seconds, unit="s", n=len(full), machine=machine),
        _rate("aa_full_false_faster_rate", faster, len(full), machine),
    ]


def _null_search(rows: Sequence[Row], machine: str) -> list[Figure]:
    trials = [r for r in rows if r.study is Study.NULL_SEARCH and r.published is not None]
    if not trials:
        return []
    published = sum(bool(r.published) for r in trials)
    return [
        Figure(
            name="null_search_published",
            value=published,
            unit="winners",
            n=len(trials),
            machine=machine,
            bar="<= 1",
        ),
        Figure(name="null_search_trials", value=len(trials), unit="searches", machine=machine),
    ]


def _rate(name: str, hits: int, trials: int, machine: str, bar: str | None = None) -> Figure:
    from scipy.stats import binomtest

    interval = binomtest(hits, trials).proportion_ci(_CONFIDENCE)
    return Figure(
        name=name,
        value=hits / trials,
        unit="",
        low=float(interval.low),
        high=float(interval.high),
        n=trials,
        machine=machine,
        bar=bar,
    )


def kernel_table(rows: Sequence[Row]) -> dict[str, dict[str, object]]:
    """Per kernel and way of timing: median time and variation, for the details."""
    table: dict[str, dict[str, object]] = {}
    for name, kernels in times_us(rows).items():
        for kernel, values in kernels.items():
            if len(values) > 1:
                table.setdefault(kernel, {})[name] = {
                    "median_us": round(float(np.median(values)), 4),
                    "cv_percent": round(variation_percent(values), 3),
                    "n": len(values),
                }
    return table
