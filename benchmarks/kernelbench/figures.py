"""KernelBench's figures from rows: pure functions, each rule once.

Of the problems that could be carried, by level (design.md section 9):

    corr_percent      share with a correct candidate
    fast_1, fast_1.5, fast_2   share with a confirmed win by more than that
    amsr              mean speedup, 0 where nothing is confirmed as faster
    amsr_40           amsr had the search stopped after 40 evaluations
    amsr_without_top_3   amsr of the others
    median_speedup, percentile_10, percentile_90
                      of the speedup over eager, of problems with a correct candidate
    geomean_vs_eager, geomean_vs_compile   likewise, geometric means
    p_vs_compile      one-sided Wilcoxon signed-rank test of the same ratios to torch.compile
    trivial_share     of the winners, those not worth a maintainer's time
    amsr_vs_compile   amsr over torch.compile's own amsr on the same problems, ``_low`` the end
                      of its interval; ``_without_top_3`` leaves out the three on which either
                      gains most
    gpu_seconds_per_problem   for how long evaluations held the device

Suffixes: ``.clean`` leaves out degenerate problems; ``.own`` counts wins by own kernels alone;
``.paper`` is the table of its own rules (``tables.py``); ``.point`` counts any ratio of 1 or more
as the papers do, confirmed or not, unless the candidate's work is the library's. Intervals are
bootstraps over problems at 95 %; those of ratios draw both sides together.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.bands import Band
from benchmarks.bootstrap import (
    Statistic,
    first_geomean,
    first_mean,
    interval,
    ratio_of_means,
)
from benchmarks.kernelbench.rows import Outcome, Row
from benchmarks.result import Figure

STEPS = 40
"""As many as Kernel-Smith's evolution takes."""
TOP = 3
_CURVE = (1, 2, 5, 10, 15, 20, 30, 40, 60, 80, 120, 160, 240, 320, 512)
_FEWEST_PAIRS = 6
"""Below, no signed-rank test can reach 5 %."""
_AMSR = re.compile(r"level1\.amsr((?:\.\w+)*)")
_BARS = {
    "corr_percent": (">= 97.5", ">= 97.5", ">= 97.5"),
    "amsr_vs_compile_low": (">= 1.10", ">= 1.10", ">= 1.05"),
    "geomean_vs_compile": (">= 1.1", ">= 1.15", ">= 1.05"),
}
"""By level, of the main table."""

Found = tuple[float, float, float] | float


def kernelbench_figures(
    rows: Sequence[Row], machine: str, paper: Sequence[Row] = ()
) -> list[Figure]:
    """Return every figure that the rows of the two tables allow; what they do not is absent."""
    found: list[Figure] = []
    for level in sorted({r.level for r in (*rows, *paper)}):
        of_level = [r for r in carried(rows) if r.level == level]
        of_paper = [r for r in carried(paper) if r.level == level]
        for suffix, some in (("", of_level), (".paper", of_paper)):
            found += _level(some, _Maker(level, suffix, machine))
            found += _point(some, _Maker(level, f"{suffix}.point", machine))
            clean = [r for r in some if not r.degenerate]
            found += _level(clean, _Maker(level, f"{suffix}.clean", machine))
        found += _own(of_level, _Maker(level, ".own", machine))
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


def compiled_score(row: Row) -> float:
    """What ``torch.compile`` gives by the same rule: 0 where it is not clearly faster."""
    return row.compiled.value if row.compiled and row.compiled.faster else 0.0


def vs_compiled(row: Row) -> float | None:
    """The candidate over ``torch.compile``: timed together, or else through eager."""
    if row.found is None:
        return None
    if row.found_vs_compiled is not None:
        return row.found_vs_compiled.value
    return row.found.value / row.compiled.value if row.compiled else None


def curves(rows: Sequence[Row]) -> dict[str, dict[str, Band]]:
    """Per level, amsr after so many evaluations, with its interval."""
    found: dict[str, dict[str, Band]] = {}
    for level in sorted({r.level for r in carried(rows)}):
        some = [r for r in carried(rows) if r.level == level]
        at = [n for n in _CURVE if n <= max(STEPS, *(r.evaluated for r in some))]
        points = [interval(first_mean, [r.score_after(n) for r in some]) for n in at]
        value, low, high = zip(*points, strict=True)
        found[f"level {level}"] = {f"{len(some)} problems": Band(at, value, low, high)}
    return found


def details(rows: Sequence[Row]) -> dict[str, object]:
    """What stands beside the figures, per level."""
    return {
        f"level{level}": _details([r for r in rows if r.level == level])
        for level in sorted({r.level for r in rows})
    }


@dataclass(frozen=True)
class _Maker:
    """Names figures of one level and view."""

    level: int
    suffix: str
    machine: str

    def __call__(self, name: str, found: Found, unit: str, n: int) -> Figure:
        value, *bounds = found if isinstance(found, tuple) else (found,)
        low, high = bounds or (None, None)
        bars = _BARS.get(name) if not self.suffix else None
        return Figure(
            name=f"level{self.level}.{name}{self.suffix}",
            value=value,
            unit=unit,
            low=low,
            high=high,
            n=n,
            machine=self.machine,
            bar=bars[self.level - 1] if bars else None,
        )


def _level(rows: Sequence[Row], make: _Maker) -> Iterator[Figure]:
    if not rows:
        return
    n = len(rows)
    yield make("problems", float(n), "problems", n)
    yield make("corr_percent", interval(first_mean, [100.0 * r.correct for r in rows]), "%", n)
    for p in (1, 1.5, 2):
        won = [float(r.score > p) if p > 1 else float(r.score > 0) for r in rows]
        yield make(f"fast_{p:g}", interval(first_mean, won), "share", n)
    yield make("amsr", interval(first_mean, [r.score for r in rows]), "x", n)
    at_40 = [r.score_after(STEPS) for r in rows]
    yield make(f"amsr_{STEPS}", interval(first_mean, at_40), "x", n)
    rest = _without_top(rows, lambda r: r.score)
    if rest:
        scores = [r.score for r in rest]
        yield make(f"amsr_without_top_{TOP}", interval(first_mean, scores), "x", len(rest))
    yield from _spread(rows, make)
    yield from _cost(rows, make)
    yield from _against_compile(rows, make)


def _spread(rows: Sequence[Row], make: _Maker) -> Iterator[Figure]:
    """Of problems with a correct candidate: where their speedups lie."""
    found = [r.found.value for r in rows if r.found]
    if not found:
        return
    yield make("geomean_vs_eager", interval(first_geomean, found), "x", len(found))
    for name, percent in (("median_speedup", 50), ("percentile_10", 10), ("percentile_90", 90)):
        yield make(name, interval(_percentile_of(percent), found), "x", len(found))


def _cost(rows: Sequence[Row], make: _Maker) -> Iterator[Figure]:
    winners = [r for r in rows if r.score > 0 and r.trivial is not None]
    if winners:
        share = interval(first_mean, [float(bool(r.trivial)) for r in winners])
        yield make("trivial_share", share, "share", len(winners))
    seconds = [r.device_seconds for r in rows]
    if all(seconds):
        yield make("gpu_seconds_per_problem", interval(first_mean, seconds), "s", len(rows))


def _against_compile(rows: Sequence[Row], make: _Maker) -> Iterator[Figure]:
    """Amsr over ``torch.compile``'s, by the same rule on the same problems; and the ratios."""
    for word, some in (
        ("", rows),
        (f"_without_top_{TOP}", _without_top(rows, lambda r: max(r.score, compiled_score(r)))),
    ):
        theirs = [compiled_score(r) for r in some]
        if sum(theirs):
            found = interval(ratio_of_means, [r.score for r in some], theirs)
            yield make(f"amsr_vs_compile{word}", found, "x", len(some))
            yield make(f"amsr_vs_compile{word}_low", found[1], "x", len(some))
    ratios = [v for r in rows if (v := vs_compiled(r)) is not None]
    if ratios:
        yield make("geomean_vs_compile", interval(first_geomean, ratios), "x", len(ratios))
    if len(ratios) >= _FEWEST_PAIRS and any(v != 1 for v in ratios):
        yield make("p_vs_compile", signed_rank_p(ratios), "", len(ratios))


def signed_rank_p(ratios: Sequence[float]) -> float:
    """How likely such ratios are where they lie around 1: Wilcoxon's test of their logs."""
    from scipy.stats import wilcoxon

    return float(wilcoxon(np.log(ratios), alternative="greater").pvalue)


def _point(rows: Sequence[Row], make: _Maker) -> Iterator[Figure]:
    """The papers' rule."""
    if rows:
        points = [r.point_score for r in rows]
        won = [float(p > 0) for p in points]
        yield make("fast_1", interval(first_mean, won), "share", len(rows))
        yield make("amsr", interval(first_mean, points), "x", len(rows))


def _own(rows: Sequence[Row], make: _Maker) -> Iterator[Figure]:
    """Wins by own kernels alone; others count as none, so these are lower bounds."""
    if not rows or any(r.score > 0 and r.own is None for r in rows):
        return
    scores = [r.score if r.own else 0.0 for r in rows]
    won = [float(s > 0) for s in scores]
    yield make("fast_1", interval(first_mean, won), "share", len(rows))
    yield make("amsr", interval(first_mean, scores), "x", len(rows))


def _overall(figures: Sequence[Figure], machine: str) -> Iterator[Figure]:
    """The plain mean of the three levels, as the paper has it; absent where one is missing."""
    by_name = {f.name: f for f in figures}
    for suffix in [found[1] for f in figures if (found := _AMSR.fullmatch(f.name))]:
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
    last = max(STEPS, *(r.evaluated for r in counted))
    top = sorted(counted, key=lambda r: r.score, reverse=True)
    return beside | {
        "corr_percent_of_all_taken": 100 * sum(r.correct for r in counted) / len(rows),
        "not_correct": {r.id: r.statuses for r in counted if not r.correct},
        "unimproved": [r.id for r in counted if r.unimproved],
        "amsr_by_evaluations": {
            str(n): _mean([r.score_after(n) for r in counted]) for n in _CURVE if n <= last
        },
        "top": {r.id: r.score for r in top[:TOP]},
        "compiled_amsr": _mean([compiled_score(r) for r in counted]),
        "not_compiled": [r.id for r in counted if r.compiled is None],
        "fewest_rounds_of_a_win": min((r.rounds for r in counted if r.score), default=None),
        "evaluation_seconds_per_problem": _mean([r.evaluation_seconds for r in counted]),
        "seconds_per_problem": _mean([r.seconds for r in counted]),
        "evaluations_per_problem": _mean([r.evaluated for r in counted]),
    }


def _without_top(rows: Sequence[Row], by: Callable[[Row], float]) -> list[Row]:
    return sorted(rows, key=by, reverse=True)[TOP:]


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else 0.0


def _percentile_of(percent: float) -> Statistic:
    return lambda columns: np.percentile(columns[0], percent, axis=-1)
