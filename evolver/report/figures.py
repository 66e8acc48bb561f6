"""The figures, as SVG that takes its colours and its font from the page.

Matplotlib draws with stand-in colours, which are then replaced by the page's CSS variables,
so that one drawing fits light and dark. Points link to their rows in the table.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from evolver.archive import LOG2_SCORE_EDGES, LOG2_SIZE_EDGES
from evolver.report.content import CurvePoint, MapPoint

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, FAINT, GRID, ACCENT, GOOD = "#010101", "#020202", "#030303", "#040404", "#050505"
_VARIABLES = {INK: "ink", FAINT: "faint", GRID: "line", ACCENT: "accent", GOOD: "good"}
_SETTINGS: Any = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9.5,
    "text.color": INK,
    "axes.edgecolor": GRID,
    "axes.labelcolor": FAINT,
    "xtick.color": GRID,
    "ytick.color": GRID,
    "xtick.labelcolor": FAINT,
    "ytick.labelcolor": FAINT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
}


def best_score_curve(
    screened: Sequence[CurvePoint], confirmed: Sequence[CurvePoint], *, attempts: int
) -> str:
    """Draw screened speedups over attempts, the best so far, and confirmations apart."""
    figure, axes = _axes()
    axes.axhline(1.0, color=FAINT, linewidth=0.8, linestyle=(0, (4, 3)))
    numbers, values = [p.number for p in screened], [p.speedup.value for p in screened]
    dots = axes.scatter(numbers, values, s=18, color=FAINT, label="screened", zorder=3)
    dots.set_urls([f"#attempt-{n}" for n in numbers])
    best = list(accumulate(values, max))
    if best:
        axes.step([*numbers, attempts], [*best, best[-1]], where="post", color=ACCENT,
                  linewidth=1.6, label="best screened so far")  # fmt: skip
    if confirmed:
        _draw_confirmed(axes, confirmed)
    axes.set_xlabel("candidates evaluated")
    axes.set_ylabel("speedup over eager")
    axes.set_xlim(0, attempts + 1)
    _ratio_axis(axes, [*values, *(p.speedup.value for p in confirmed), 1.0])
    return _svg(figure, axes, name="curve")


def _draw_confirmed(axes: Axes, confirmed: Sequence[CurvePoint]) -> None:
    values = [p.speedup.value for p in confirmed]
    below = [p.speedup.value - p.speedup.low for p in confirmed]
    above = [p.speedup.high - p.speedup.value for p in confirmed]
    axes.errorbar([p.number for p in confirmed], values, yerr=[below, above], fmt="D", color=GOOD,
                  markersize=6, capsize=4, label="confirmed, with interval", zorder=4)  # fmt: skip


def archive_map(points: Sequence[MapPoint]) -> str:
    """Draw measured candidates over the archive's grid, the featured one apart."""
    figure, axes = _axes()
    for edge in LOG2_SIZE_EDGES:
        axes.axvline(2.0**edge, color=GRID, linewidth=0.5, zorder=0)
    for edge in LOG2_SCORE_EDGES:
        axes.axhline(2.0**edge, color=GRID, linewidth=0.5, zorder=0)
    axes.axhline(1.0, color=FAINT, linewidth=0.8, linestyle=(0, (4, 3)))
    groups = ((False, FAINT, 22, "candidate"), (True, GOOD, 64, "the best"))
    for is_featured, color, size, label in groups:
        group = [p for p in points if p.is_featured is is_featured]
        if group:
            dots = axes.scatter([p.size for p in group], [p.score for p in group], s=size,
                                color=color, label=label, zorder=3)  # fmt: skip
            dots.set_urls([f"#attempt-{p.number}" for p in group])
    axes.set_xscale("log", base=2)
    sizes = [p.size for p in points]
    axes.set_xlim(min(sizes) / 1.6, max(sizes) * 1.6)
    axes.xaxis.set_major_formatter(lambda value, _position: f"{value:g}")
    axes.set_xlabel("complexity of the kernels")
    axes.set_ylabel("speedup, 99 % lower bound")
    _ratio_axis(axes, [*(p.score for p in points), 1.0])
    return _svg(figure, axes, name="map")


def cost_bar(parts: Sequence[tuple[str, float]]) -> str:
    """Draw named seconds as one bar of shares, left to right, with a legend of what they are."""
    figure, axes = _axes(height=1.5)
    total = sum(seconds for _, seconds in parts)
    begun = 0.0
    for (name, seconds), (color, alpha) in zip(parts, _SHADES, strict=False):
        share = seconds / total
        axes.barh(0, share, left=begun, height=1, color=color, alpha=alpha, edgecolor=GRID,
                  linewidth=0.5, label=f"{name} {share:.0%}")  # fmt: skip
        begun += share
    axes.set_xlim(0, 1)
    axes.set_axis_off()
    return _svg(figure, axes, name="cost", columns=4)


_SHADES = tuple((color, alpha) for color in (ACCENT, GOOD, FAINT) for alpha in (1.0, 0.6, 0.25))
"""Three of the page's colours in three strengths each; more cannot be told apart."""
MOST_PARTS = len(_SHADES)


def _axes(height: float = 3.2) -> tuple[Figure, Axes]:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(_SETTINGS):
        # A Figure of its own, not pyplot's: no global state, no window toolkit.
        figure = Figure(figsize=(6.0, height), layout="constrained")
        return figure, figure.add_subplot()


def _ratio_axis(axes: Axes, values: Sequence[float]) -> None:
    """Make the y axis logarithmic, since ratios multiply, and label it in plain ratios."""
    from matplotlib.ticker import FixedLocator, NullLocator

    low, high = min(values) / 1.15, max(values) * 1.15
    axes.set_yscale("log", base=2)
    axes.set_ylim(low, high)
    axes.yaxis.set_major_locator(FixedLocator(_ticks(low, high)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(lambda value, _position: f"{value:g}×")


def _ticks(low: float, high: float) -> list[float]:
    """Return round ratios in [low, high], finer where the range is narrow."""
    if high / low > 8:
        return [2.0**n for n in range(math.ceil(math.log2(low)), math.floor(math.log2(high)) + 1)]
    step = next(s for s in (0.05, 0.1, 0.25, 0.5, 1.0) if (high - low) / s <= 8 or s == 1.0)
    first, last = math.ceil(low / step), math.floor(high / step)
    return [round(n * step, 2) for n in range(first, last + 1)]


def _svg(figure: Figure, axes: Axes, *, name: str, columns: int = 3) -> str:
    import matplotlib as mpl

    # Ids are hashes with this salt: reproducible, and apart from those of the other figure.
    with mpl.rc_context({**_SETTINGS, "svg.hashsalt": name}):
        axes.legend(
            loc="lower left",
            fontsize="small",
            bbox_to_anchor=(0, 1.02),
            ncols=columns,
            borderaxespad=0,
        )
        drawn = io.StringIO()
        figure.savefig(drawn, format="svg", transparent=True)
    return _for_page(drawn.getvalue())


def _for_page(svg: str) -> str:
    """Cut what only a file of its own needs, and give colours, font and size to the page."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<g id="[^"]*"', "<g", svg)
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font-size: \1", svg)
    for stand_in, variable in _VARIABLES.items():
        svg = svg.replace(stand_in, f"var(--{variable})")
    return svg
