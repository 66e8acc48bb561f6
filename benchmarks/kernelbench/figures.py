"""KernelBench's figures from rows: pure functions, each rule once.

Of the problems that could be carried, by level (design.md section 9):

    corr_percent      share with a correct candidate
    fast_1            share with a confirmed winner (``.point``: a ratio of 1 or more)
    amsr              mean speedup, 0 where nothing is confirmed (``.point``: below 1)
    median_speedup    of the speedup over eager, of problems with a correct candidate
    geomean_vs_eager, geomean_vs_compile   likewise, geometric means
    amsr_40           amsr had the search stopped after 40 evaluations
    trivial_share     of the winners, those not worth a maintainer's time
    amsr_vs_compile   amsr over torch.compile's own amsr on the same problems

Intervals are bootstraps over problems at 95 %; those of ratios draw both sides together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from benchmarks.kernelbench.rows import Outcome, Row
from benchmarks.result import Figure

Floats = NDArray[np.float64]

DRAWS = 4000
CONFIDENCE = 0.95
STEPS = 40
"""As many as Kernel-Smith's evolution takes."""
_CURVE = (1, 2, 5, 10, 15, 20, 30, 40, 60, 80, 120, 160, 240, 320, 512)
_TOP = 3


def kernelbench_figures(rows: Sequence[Row], machine: str) -> list[Figure]:
    """Return every figure that the rows allow; what they do not is absent."""
    found: list[Figure] = []
    for level in sorted({r.level for r in rows}):
        of_level = [r for r in carried(rows) if r.level == level]
        clean = [r for r in of_level if not r.degenerate]
        found += _level(of_level, f"level{level}.", "", machine)
        found += _level(clean, f"level{level}.", ".clean", machine)
        found += _own(of_level, f"level{level}.", machine)
    return [*found, *_overall(found, machine)]


def carried(rows: Sequence[Row]) -> list[Row]:
    """The rows that figures count."""
    return [r for r in rows if r.outcome is Outcome.MEASURED]


def amsr(rows: Sequence[Row]) -> float:
    """Mean speedup over eager; 0 where no win is confirmed."""
    return _mean([r.score for r in rows])


def fast_p(rows: Sequence[Row], p: float) -> float:
    """Share of ``rows`` with a confirmed win by more than ``p``."""
    return _mean([float(r.score > p) for r in rows])


def compiled_scores(rows: Sequence[Row]) -> list[float]:
    """What ``torch.compile`` gives by the same rule: 0 where it is not clearly faster."""
    return [r.compiled.value if r.compiled and r.compiled.faster else 0.0 for r in rows]


def vs_compiled(row: Row) -> float | None:
    """The candidate over ``torch.compile``: timed together, or else through eager."""
    if row.found is None:
        return None
    if row.found_vs_compiled is not None:
        return row.found_vs_compiled.value
    return row.found.value / row.compiled.value if row.compiled else None


def interval(
    statistic: Callable[[Floats], float], *columns: Sequence[float]
) -> tuple[float, float, float]:
    """Return (value, low, high) of ``statistic`` by a bootstrap over rows.

    ``columns`` hold one number per problem each; the statistic takes them as a matrix with a
    row per column, so that those of one problem stay together.
    """
    data = np.asarray(columns, dtype=np.float64)
    rng = np.random.default_rng(0)
    picks = rng.integers(data.shape[1], size=(DRAWS, data.shape[1]))
    drawn = np.asarray([statistic(data[:, pick]) for pick in picks])
    drawn = drawn[np.isfinite(drawn)]
    value = statistic(data)
    if not drawn.size:
        return value, value, value
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail])
    return value, min(value, float(low)), max(value, float(high))


def details(rows: Sequence[Row]) -> dict[str, object]:
    """What stands beside the figures, per level."""
    return {
        f"level{level}": _details([r for r in rows if r.level == level])
        for level in sorted({r.level for r in rows})
    }


def _level(rows: Sequence[Row], prefix: str, suffix: str, machine: str) -> Iterator[Figure]:
    if not rows:
        return
    scores = [r.score for r in rows]

    def figure(
        name: str, found: tuple[float, float, float] | float, unit: str, n: int = len(rows)
    ) -> Figure:
        value, *bounds = found if isinstance(found, tuple) else (found,)
        low, high = bounds or (None, None)
        full = f"{prefix}{name}{suffix}"
        return Figure(name=full, value=value, unit=unit, low=low, high=high, n=n, machine=machine)

    yield figure("problems", float(len(rows)), "problems")
    yield figure("corr_percent", interval(_first_mean, [100.0 * r.correct for r in rows]), "%")
    yield figure("fast_1", interval(_first_mean, [float(s > 0) for s in scores]), "share")
    yield figure("amsr", interval(_first_mean, scores), "x")
    yield figure(f"amsr_{STEPS}", interval(_first_mean, [r.score_after(STEPS) for r in rows]), "x")
    if not suffix:
        points = [r.point_score for r in rows]
        share = interval(_first_mean, [float(p > 0) for p in points])
        yield figure("fast_1.point", share, "share")
        yield figure("amsr.point", interval(_first_mean, points), "x")
    for name, values in (
        ("geomean_vs_eager", [r.found.value for r in rows if r.found]),
        ("geomean_vs_compile", [v for r in rows if (v := vs_compiled(r)) is not None]),
    ):
        if values:
            yield figure(name, interval(_first_geomean, values), "x", len(values))
    found = [r.found.value for r in rows if r.found]
    if found:
        yield figure("median_speedup", interval(_first_median, found), "x", len(found))
    winners = [r for r in rows if r.score > 0 and r.trivial is not None]
    if winners:
        share = interval(_first_mean, [float(bool(r.trivial)) for r in winners])
        yield figure("trivial_share", share, "share", len(winners))
    yield from _against_compile(rows, figure)


def _against_compile(
    rows: Sequence[Row], figure: Callable[[str, tuple[float, float, float] | float, str], Figure]
) -> Iterator[Figure]:
    theirs = compiled_scores(rows)
    if not sum(theirs):
        return
    found = interval(_ratio_of_means, [r.score for r in rows], theirs)
    yield figure("amsr_vs_compile", found, "x")
    yield figure("amsr_vs_compile_low", found[1], "x")


def _own(rows: Sequence[Row], prefix: str, machine: str) -> Iterator[Figure]:
    """Wins by own kernels alone; others count as none, so these are lower bounds."""
    if not rows or any(r.score > 0 and r.own is None for r in rows):
        return
    scores = [r.score if r.own else 0.0 for r in rows]
    for name, values, unit in (
        ("fast_1", [float(s > 0) for s in scores], "share"),
        ("amsr", scores, "x"),
    ):
        value, low, high = interval(_first_mean, values)
        yield Figure(
            name=f"{prefix}{name}.own",
            value=value,
            unit=unit,
            low=low,
            high=high,
            n=len(rows),
            machine=machine,
        )


def _overall(figures: Sequence[Figure], machine: str) -> Iterator[Figure]:
    """The plain mean of the three levels, as the paper has it; absent where one is missing."""
    by_name = {f.name: f for f in figures}
    for suffix in ("", ".point", ".own", ".clean"):
        levels = [by_name.get(f"level{level}.amsr{suffix}") for level in (1, 2, 3)]
        known = [f for f in levels if f is not None]
        if len(known) == len(levels):
            n = sum(f.n or 0 for f in known)
            value = _mean([f.value for f in known])
            yield Figure(name=f"overall.amsr{suffix}", value=value, unit="x", n=n, machine=machine)


def _details(rows: Sequence[Row]) -> dict[str, object]:
    counted = carried(rows)
    others = {
        outcome.value: {r.id: r.reason for r in rows if r.outcome is outcome}
        for outcome in Outcome
        if outcome is not Outcome.MEASURED
    }
    beside: dict[str, object] = {
        "taken": len(rows),
        "carried": len(counted),
        **others,
        "degenerate": {r.id: list(r.degenerate) for r in counted if r.degenerate},
    }
    if not counted:
        return beside
    ratios = [r.found.value for r in counted if r.found]
    last = max(r.evaluated for r in counted)
    top = sorted(counted, key=lambda r: r.score, reverse=True)
    return beside | {
        "corr_percent_of_all_taken": 100 * sum(r.correct for r in counted) / len(rows),
        "fast_1.5": fast_p(counted, 1.5),
        "fast_2": fast_p(counted, 2.0),
        "percentile_10": _percentile(ratios, 10),
        "percentile_90": _percentile(ratios, 90),
        "amsr_by_evaluations": {
            str(n): _mean([r.score_after(n) for r in counted])
            for n in _CURVE
            if n <= max(last, STEPS)
        },
        "top": {r.id: r.score for r in top[:_TOP]},
        f"amsr_without_top_{_TOP}": amsr(top[_TOP:]) if len(top) > _TOP else None,
        "compiled_amsr": _mean(compiled_scores(counted)),
        "not_compiled": [r.id for r in counted if r.compiled is None],
        "evaluation_seconds_per_problem": _mean([r.evaluation_seconds for r in counted]),
        "seconds_per_problem": _mean([r.seconds for r in counted]),
        "evaluations_per_problem": _mean([r.evaluated for r in counted]),
    }


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else 0.0


def _percentile(values: Sequence[float], percent: float) -> float | None:
    return float(np.percentile(values, percent)) if values else None


def _first_mean(columns: Floats) -> float:
    return float(columns[0].mean())


def _first_median(columns: Floats) -> float:
    return float(np.median(columns[0]))


def _first_geomean(columns: Floats) -> float:
    return float(np.exp(np.log(columns[0]).mean()))


def _ratio_of_means(columns: Floats) -> float:
    ours, theirs = columns.mean(axis=1)
    return float(ours / theirs) if theirs else math.inf
