"""Curves with bands, drawn as SVG beside the JSON that they come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Band:
    """A curve with its interval, at the same places on the horizontal axis."""

    at: Sequence[float]
    value: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]


def draw_bands(
    path: Path, panels: Mapping[str, Mapping[str, Band]], *, title: str, across: str, up: str
) -> None:
    """Write one figure to ``path``.

    Args:
        path: ends in ``.svg``.
        panels: by title, side by side; each holds its curves by label.
        title: of the whole.
        across: what the horizontal axis shows, with its unit.
        up: the same of the vertical axis.
    """
    from matplotlib.figure import Figure

    path.parent.mkdir(parents=True, exist_ok=True)

    figure = Figure(figsize=(5.5 * max(1, len(panels)), 4), layout="constrained")
    axes = figure.subplots(1, max(1, len(panels)), squeeze=False)[0]
    for axis, (name, curves) in zip(axes, panels.items(), strict=False):
        for label, band in curves.items():
            line = axis.step(band.at, band.value, where="post", label=label)[0]
            axis.fill_between(
                band.at, band.low, band.high, step="post", alpha=0.2, color=line.get_color()
            )
        axis.set(title=name, xlabel=across, ylabel=up)
        axis.grid(alpha=0.3)
        if curves:
            axis.legend()
    figure.suptitle(title)
    figure.savefig(path, metadata={"Date": None})
