"""From rows to the figures of ``search-*.json``: pure functions, each rule once.

    evolve_vs_sequential, evolve_vs_best_of_n
        geometric mean over problems of what ``evolve`` had to show over what the other mode had,
        at equal cost: the device seconds of whichever of the two searches of one problem and
        seed spent less
    naive_wrong_winner_rate, stable_wrong_winner_rate
        share of searches whose candidates' winner, by one naive run each or by our screening,
        is not the winner: a fresh confirmation calls another one faster beyond noise
    adaptive_cost_ratio, adaptive_amsr_ratio
        device seconds, and amsr, of fixed searches cut where the adaptive rule would have ended
        them, over the whole of them; ``adaptive_run_…`` of searches that did end by it
    headroom_rank_correlation
        Spearman's, of the speedup that was thought possible with the one that was confirmed
    overhead_percent
        wall time of searches that was neither proposing nor evaluating

What a search had to show is a lower bound (``SearchRow.value_at``). Intervals are bootstraps at
95 % that draw problems, and seeds within them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from benchmarks.bands import Band
from benchmarks.bootstrap import (
    CONFIDENCE,
    Floats,
    clustered_interval,
    interval,
    ratio_of_means,
)
from benchmarks.result import Figure
from benchmarks.search.rows import KillRow, RankingRow, ScaleRow, SearchRow

EVOLVE, SEQUENTIAL, BEST_OF_N, RANDOM = "evolve", "sequential", "best-of-n", "random"
MODES = (EVOLVE, SEQUENTIAL, BEST_OF_N, RANDOM)
_FEWEST_PROBLEMS = 4
"""Below, a rank correlation says nothing."""
_GRID = 60

Key = tuple[str, int]


def search_figures(
    searches: Sequence[SearchRow],
    rankings: Sequence[RankingRow],
    kills: Sequence[KillRow],
    scale: Sequence[ScaleRow],
    machine: str,
) -> list[Figure]:
    """Return every figure that the rows allow; what they do not is absent."""
    measured = [r for r in searches if not r.failure and r.steps]
    fixed = [r for r in measured if not r.unit.adaptive]
    evolved = [r for r in fixed if r.unit.mode == EVOLVE]
    found = [
        *_against(fixed, SEQUENTIAL, "evolve_vs_sequential", machine),
        *_against(fixed, BEST_OF_N, "evolve_vs_best_of_n", machine),
        *_against(fixed, RANDOM, "evolve_vs_random", machine),
        *_winners([r for r in rankings if not r.failure], machine),
        *_adaptive(evolved, machine),
        *_adaptive_runs(measured, machine),
        *_headroom(evolved, machine),
        *_overhead(fixed, machine),
        *_kills(kills),
    ]
    for row in scale[-1:]:
        n, where = row.candidates, row.machine
        found += [
            _figure("insert_ms_at_100k", row.insert_ms, "ms", n, where, bar="< 5"),
            _figure("peak_gib_at_100k", row.peak_gib, "GiB", n, where, bar="< 1"),
        ]
    return found


def log_ratios(searches: Sequence[SearchRow], mode: str) -> dict[str, list[float]]:
    """Per problem, log of evolve's value over ``mode``'s at equal device seconds; one per seed."""
    by_mode = {m: {_key(r): r for r in searches if r.unit.mode == m} for m in (EVOLVE, mode)}
    found: dict[str, list[float]] = defaultdict(list)
    for key in sorted(by_mode[EVOLVE].keys() & by_mode[mode].keys()):
        ours, theirs = by_mode[EVOLVE][key], by_mode[mode][key]
        spent = min(ours.spent, theirs.spent)
        ratio = ours.value_at(device_seconds=spent) / theirs.value_at(device_seconds=spent)
        found[key[0]].append(math.log(ratio))
    return dict(found)


def curves(searches: Sequence[SearchRow]) -> dict[str, dict[str, Band]]:
    """By what is paid in, then by mode: the geometric mean of what searches had to show."""
    rows = [r for r in searches if not r.failure and r.steps and not r.unit.adaptive]
    modes = sorted({r.unit.mode for r in rows}, key=MODES.index)
    complete = _in_every_mode(rows, modes)
    if not complete:
        return {}
    last = max(s.evaluated for r in complete for s in r.steps)
    longest = float(np.median([r.spent for r in complete]))
    found: dict[str, dict[str, Band]] = {}
    for axis, at in (
        ("evaluated", np.arange(1, last + 1, dtype=float)),
        ("device_seconds", np.linspace(0, longest, _GRID)),
    ):
        found[axis] = {
            mode: _band([r for r in complete if r.unit.mode == mode], axis, at) for mode in modes
        }
    return found


def _band(rows: Sequence[SearchRow], axis: str, at: Iterable[float]) -> Band:
    places = list(at)
    points = []
    for place in places:
        logs: dict[str, list[float]] = defaultdict(list)
        for row in rows:
            logs[row.unit.problem].append(math.log(row.value_at(**{axis: place})))
        points.append([math.exp(x) for x in clustered_interval(list(logs.values()))])
    value, low, high = zip(*points, strict=True)
    return Band(places, value, low, high)


def _in_every_mode(rows: Sequence[SearchRow], modes: Sequence[str]) -> list[SearchRow]:
    """Those of problems and seeds that every mode has searched: the others would bend a mean."""
    had: dict[Key, set[str]] = defaultdict(set)
    for row in rows:
        had[_key(row)].add(row.unit.mode)
    return [r for r in rows if had[_key(r)] == set(modes)]


def _against(searches: Sequence[SearchRow], mode: str, name: str, machine: str) -> Iterable[Figure]:
    logs = log_ratios(searches, mode)
    if logs:
        value, low, high = (math.exp(x) for x in clustered_interval(list(logs.values())))
        n = sum(map(len, logs.values()))
        yield _figure(name, value, "x", n, machine, low=low, high=high)


def _winners(rankings: Sequence[RankingRow], machine: str) -> Iterable[Figure]:
    """Of searches that leave a choice, and whose two picks are both confirmed."""
    naive: list[bool] = []
    stable: list[bool] = []
    for row in rankings:
        pair = row.wrong(row.naive_pick), row.wrong(row.stable_pick)
        if len(row.contenders) > 1 and pair[0] is not None and pair[1] is not None:
            naive.append(pair[0])
            stable.append(pair[1])
    for name, wrong in (("naive", naive), ("stable", stable)):
        if wrong:
            yield _rate(f"{name}_wrong_winner_rate", sum(wrong), len(wrong), machine)


def _adaptive(evolved: Sequence[SearchRow], machine: str) -> Iterable[Figure]:
    """Of the same runs, so that only the rule differs."""
    costs = [r.spent_at(r.stopped_at or math.inf) for r in evolved]
    scores = [_score(r, r.stopped_at or math.inf) for r in evolved]
    yield from _saved("adaptive", evolved, costs, scores, machine)


def _adaptive_runs(searches: Sequence[SearchRow], machine: str) -> Iterable[Figure]:
    """Searches that did stop by themselves, beside those with the same seed that did not."""
    fixed = {_key(r): r for r in searches if r.unit.mode == EVOLVE and not r.unit.adaptive}
    runs = [r for r in searches if r.unit.adaptive and _key(r) in fixed]
    costs, scores = [r.spent for r in runs], [_score(r, math.inf) for r in runs]
    yield from _saved("adaptive_run", [fixed[_key(r)] for r in runs], costs, scores, machine)


def _saved(
    name: str,
    fixed: Sequence[SearchRow],
    costs: Sequence[float],
    scores: Sequence[float],
    machine: str,
) -> Iterable[Figure]:
    for what, bar, parts, wholes in (
        ("cost", "<= 0.6", costs, [r.spent for r in fixed]),
        ("amsr", ">= 0.98", scores, [_score(r, math.inf) for r in fixed]),
    ):
        ours, theirs = _by_problem(fixed, parts), _by_problem(fixed, wholes)
        if sum(theirs):
            value, low, high = interval(ratio_of_means, ours, theirs)
            full, n = f"{name}_{what}_ratio", len(fixed)
            yield _figure(full, value, "", n, machine, low=low, high=high, bar=bar)


def _score(row: SearchRow, evaluated: float) -> float:
    """What amsr counts after so many evaluations: 0 where nothing is faster."""
    value = row.value_at(evaluated=evaluated)
    return value if value > 1 else 0.0


def _headroom(evolved: Sequence[SearchRow], machine: str) -> Iterable[Figure]:
    known = [r for r in evolved if r.headroom is not None]
    thought = _by_problem(known, [r.headroom or 1.0 for r in known])
    found = _by_problem(known, [r.confirmed or 1.0 for r in known])
    if len(found) < _FEWEST_PROBLEMS or len(set(found)) == 1 or len(set(thought)) == 1:
        return
    value, low, high = interval(_rank_correlation, thought, found)
    n = len(found)
    yield _figure("headroom_rank_correlation", value, "", n, machine, low=low, high=high)


def _rank_correlation(columns: Floats) -> Any:
    """Spearman's; not a number where a draw holds one problem alone."""
    from scipy.stats import rankdata

    ranks = rankdata(columns, axis=-1)
    ranks -= ranks.mean(axis=-1, keepdims=True)
    spread = np.sqrt((ranks**2).sum(axis=-1).prod(axis=0))
    with np.errstate(invalid="ignore"):
        return np.divide(ranks.prod(axis=0).sum(axis=-1), spread)


def _overhead(searches: Sequence[SearchRow], machine: str) -> Iterable[Figure]:
    total = math.fsum(r.search_seconds for r in searches)
    if total:
        percent = 100 * math.fsum(r.overhead_seconds for r in searches) / total
        yield _figure("overhead_percent", percent, "%", len(searches), machine, bar="< 2")


def _kills(kills: Sequence[KillRow]) -> Iterable[Figure]:
    """A trial is a kill; what it lost, repeated or changed counts as lost."""
    if kills:
        trials, where = sum(k.kills for k in kills), kills[-1].machine
        lost = sum(k.lost + k.repeated + (not k.same_result) for k in kills)
        yield _figure("kill_resume_trials", trials, "kills", len(kills), where, bar=">= 50")
        yield _figure("kill_resume_lost", lost, "evaluations", trials, where, bar="<= 0")


def _by_problem(rows: Sequence[SearchRow], values: Sequence[float]) -> list[float]:
    """The mean over each problem's seeds, so that every problem counts alike."""
    found: dict[str, list[float]] = defaultdict(list)
    for row, value in zip(rows, values, strict=True):
        found[row.unit.problem].append(value)
    return [math.fsum(v) / len(v) for v in found.values()]


def _key(row: SearchRow) -> Key:
    return row.unit.problem, row.unit.seed


def _rate(name: str, hits: int, trials: int, machine: str) -> Figure:
    from scipy.stats import binomtest

    exact = binomtest(hits, trials).proportion_ci(CONFIDENCE)
    low, high = float(exact.low), float(exact.high)
    return _figure(name, hits / trials, "", trials, machine, low=low, high=high)


def _figure(name: str, value: float, unit: str, n: int, machine: str, **more: Any) -> Figure:
    return Figure(name=name, value=value, unit=unit, n=n, machine=machine, **more)
