"""The live view of a search: a panel on a terminal, plain lines elsewhere; on stderr alone."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from evaluator.evaluation import Evaluation, Speedup, Status
from evolver.progress import Phase, Progress
from evolver.summary import describe


class View(Protocol):
    """An observer that is open for as long as the search runs."""

    def __call__(self, progress: Progress) -> None:
        """Show ``progress``."""

    def __enter__(self) -> Self:
        """Begin to show."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave the terminal as it was."""


def make_view() -> View:
    """Return the view that fits standard error."""
    console = Console(stderr=True)
    return Panel(console) if console.is_terminal else Lines()


class Lines:
    """One line per finished evaluation, for logs."""

    def __call__(self, progress: Progress) -> None:
        """Print what has just ended."""
        if progress.finished is not None:
            print(line_of(progress, progress.finished), file=sys.stderr, flush=True)
        elif progress.phase is Phase.CONFIRMING:
            print("confirming the best in fresh processes", file=sys.stderr, flush=True)
        elif progress.phase is Phase.STOPPED:
            print(f"stopped: {progress.description}", file=sys.stderr, flush=True)
            print(f"spent: {spent_of(progress)}", file=sys.stderr, flush=True)

    def __enter__(self) -> Self:
        """Say what the first seconds go into."""
        print("starting the evaluator: reference and baselines", file=sys.stderr, flush=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End; nothing to restore."""


class Panel:
    """A few lines that are redrawn four times a second, so that the clock moves."""

    def __init__(self, console: Console) -> None:
        self._progress: Progress | None = None
        self._received = time.monotonic()
        self._live = Live(console=console, get_renderable=self._render, transient=True)

    def __call__(self, progress: Progress) -> None:
        """Redraw with ``progress``."""
        self._progress = progress
        self._received = time.monotonic()

    def __enter__(self) -> Self:
        """Take the lines."""
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Give them back."""
        self._live.stop()

    def _render(self) -> RenderableType:
        if self._progress is None:
            return Text("starting the evaluator ...")
        elapsed = self._progress.elapsed_seconds + time.monotonic() - self._received
        return panel_of(self._progress, elapsed)


def panel_of(progress: Progress, elapsed_seconds: float) -> RenderableType:
    """Return the panel of one moment."""
    table = Table.grid(padding=(0, 2))
    table.add_row("best so far", best_of(progress.best))
    table.add_row("candidates", counts_of(progress))
    doing = f"{progress.proposer}: {progress.phase.value}".removeprefix(": ")
    table.add_row(
        "now", Text(f"{doing}  {progress.description}", overflow="ellipsis", no_wrap=True)
    )
    table.add_row("time", clock_of(progress, elapsed_seconds))
    table.add_row("spent", Text(spent_of(progress), overflow="ellipsis", no_wrap=True))
    share = progress.budget.fraction(steps=progress.evaluated, seconds=elapsed_seconds)
    if share is None:
        return table
    return Group(table, ProgressBar(total=1.0, completed=share, width=60))


def line_of(progress: Progress, finished: Evaluation) -> str:
    """Return one line about an evaluation that has just ended."""
    speedup = finished.speedup()
    found = describe(speedup) if speedup else finished.message
    kind = "confirmed" if finished.confirmed else finished.status.value
    return (
        f"[{duration(progress.elapsed_seconds)}] {progress.evaluated:>4} "
        f"{progress.proposer or 'again':<10} {kind:<16} {found}"
    )


def best_of(best: Speedup | None) -> str:
    """Return the best speedup so far; a screening's number is marked as one."""
    return f"{describe(best)}, screened" if best else "nothing correct yet"


def counts_of(progress: Progress) -> str:
    """Return how the candidates ended, the most frequent first."""
    ordered = sorted(progress.counts.items(), key=lambda item: -item[1])
    parts = [f"{count} {_word(status)}" for status, count in ordered]
    return f"{progress.evaluated}" + (f" ({', '.join(parts)})" if parts else "")


def clock_of(progress: Progress, elapsed_seconds: float) -> str:
    """Return the time that has passed, and what is left where it can be told."""
    passed = duration(elapsed_seconds)
    share = progress.budget.fraction(steps=progress.evaluated, seconds=elapsed_seconds)
    if share is None or share == 0.0:
        return passed
    left = elapsed_seconds * (1 - share) / share
    minutes = progress.budget.minutes
    if minutes is not None:
        left = min(left, max(0.0, 60 * minutes - elapsed_seconds))
    return f"{passed}, about {duration(left)} left"


def spent_of(progress: Progress) -> str:
    """Return what all steps cost, and why the search goes on."""
    return f"{progress.cost}; {progress.advice}" if progress.advice else str(progress.cost)


def duration(seconds: float) -> str:
    """Return ``1:02:03`` or ``2:03``."""
    hours, rest = divmod(int(seconds), 3600)
    minutes, left = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"


def _word(status: Status) -> str:
    return status.value.replace("_", " ")
