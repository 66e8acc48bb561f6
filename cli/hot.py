"""``ksmith hot``: profiler traces become a ranking of functions."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.failures import ExitCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from integrations.traces.compare import Change, HotComparison
    from integrations.traces.report import HotReport, HotTarget

_DETAILED = 3


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("hot")(hot)


def hot(
    traces: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="TRACE...",
            help="Chrome traces of torch.profiler; .gz too.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    repo: Annotated[
        Path | None, typer.Option("--repo", help="The checkout; names become path::qualname.")
    ] = None,
    capture: Annotated[
        list[Path] | None,
        typer.Option(
            help="Trace of the graph capture whose replays are in TRACE. Repeatable.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    compare: Annotated[
        tuple[Path, Path] | None,
        typer.Option(
            "--compare",
            metavar="A B",
            help="Two traces: before and after.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    top: Annotated[int, typer.Option("--top", min=1, help="How many functions to list.")] = 20,
    export: Annotated[
        Path | None, typer.Option(help="Write the ranking as a trace for Perfetto (.gz packs).")
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Write the ranking as a page.")] = None,
    json: Annotated[bool, typer.Option("--json", help="The report as one JSON object.")] = False,
) -> None:
    """Rank the functions of a repository by what faster kernels would give, from traces.

    Exit 1: nothing in the traces could be ranked.
    """
    if bool(traces) == bool(compare) or (compare and (export or html)):
        raise typer.BadParameter("give either traces, or --compare with a trace before and after")
    if compare:
        _compare(compare, repo, capture or [], top, as_json=json)
        return
    report = _rank(traces or [], repo, capture or [], top, export)
    if html is not None:
        from integrations.traces.page import render_page

        html.write_text(render_page(report), encoding="utf-8")
    if json:
        print(report.model_dump_json(indent=1))
    else:
        _show(report)
    raise typer.Exit(ExitCode.DONE if report.targets else ExitCode.NO)


def _rank(
    traces: list[Path], repo: Path | None, captures: list[Path], top: int, export: Path | None
) -> HotReport:
    from integrations.traces.export import Timeline
    from integrations.traces.ranking import rank_traces

    timeline = Timeline()
    with _progress() as progress:
        report = rank_traces(
            traces,
            repository=repo,
            captures=captures,
            top=top,
            progress=progress,
            each=timeline.add if export is not None else lambda _: None,
        )
    if export is not None:
        timeline.write(report, export)
    return report


def _compare(
    pair: tuple[Path, Path], repo: Path | None, captures: list[Path], top: int, *, as_json: bool
) -> None:
    from integrations.traces.compare import compare
    from integrations.traces.ranking import rank_traces

    with _progress() as progress:
        before, after = (
            rank_traces([path], repository=repo, captures=captures, progress=progress)
            for path in pair
        )
    found = compare(before, after, top)
    if as_json:
        print(found.model_dump_json(indent=1))
    else:
        _show_comparison(found)


@contextmanager
def _progress() -> Iterator[Callable[[float], None]]:
    """A bar on standard error where that is a terminal."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("reading", total=1.0)
        yield lambda share: bar.update(task, completed=share)


def _show(report: HotReport) -> None:
    what = "device time" if report.on_device else "time in CPU operators"
    pieces = "kernels and copies" if report.on_device else "operators"
    print(
        f"{_time(report.device_us)} of {what} in {sum(t.kernels for t in report.traces)} {pieces}; "
        f"busy {_part(report.busy_us, report.span_us)} of {_time(report.span_us)}"
    )
    print(_HEAD)
    for target in report.targets:
        print(_line(target))
    for target in report.targets[:_DETAILED]:
        print("\n".join(_detail(target)))
    print("\n".join(tail_of(report)))
    best = next((t.target for t in report.targets if t.score.value), None)
    if best is not None:
        print(f"next: ksmith extract {best} --repo {report.repository or 'DIR'} -o PROBLEM")


_HEAD = (
    f"{'#':>3} {'score':>6} {'saving':>6} {'open':>4} {'device':>9} {'share':>6} {'incl.':>6} "
    f"{'launches':>8} {'calls':>6} {'gaps':>9} {'host':>9} {'kernels are':<13} function"
)


def _line(target: HotTarget) -> str:
    score = target.score
    mark = {"guessed": " (a guess)", "gone": " (not in the checkout)"}.get(target.found.value, "")
    return (
        f"{target.rank:>3} {score.value:>6.2f} {score.saving_share:>6.1%} {score.openness:>4.2f} "
        f"{_time(target.device_us):>9} {target.share:>6.1%} {target.inclusive_share:>6.1%} "
        f"{target.launches:>8} {target.calls:>6} {_time(target.gaps_us):>9} "
        f"{_time(target.host_us):>9} {target.state.value.replace('_', ' '):<13} "
        f"{target.target}{mark}"
    )


def _detail(target: HotTarget) -> list[str]:
    perfect = (
        "no roofline (shapes or the device's limits are missing)"
        if target.perfect_us is None
        else f"a perfect kernel needs {_time(target.perfect_us)} of {_time(target.device_us)}"
    )
    return [
        target.target,
        f"    {perfect}; the recorded span at most {target.end_to_end_percent:.2f} % less",
        *(f"    called by {c.name}" for c in target.callers[:3]),
        *(f"    {k.count:>6} x {k.name[:90]}  {_time(k.device_us)}" for k in target.kernels[:3]),
        *(f"    {s.count:>6} x {s.operator}({s.inputs[:90]})" for s in target.shapes[:3]),
    ]


def tail_of(report: HotReport) -> list[str]:
    """What is said below the table: the unattributed share always, then what to know."""
    lines = [f"unattributed: {report.unattributed_share:.1%} of the time"]
    if report.repository is not None:
        lines[0] += f"; found in the checkout: {_part(report.resolved_us, report.device_us)}"
    lines += [
        f"  {_part(p.device_us, report.device_us):>6}  {p.name}: {p.count} pieces"
        for p in report.unattributed
    ]
    for trace in report.traces:
        if trace.replays_joined:
            how = (
                "by order alone"
                if trace.replay_agreement is None
                else f"{trace.replay_agreement:.1%} of the kernels' names agree"
            )
            lines.append(f"{trace.path}: {trace.replays_joined} replay(s) joined, {how}")
    found = report.disagreement
    if found is not None and found.functions:
        lines.append(
            f"the checkout against the trace: of {found.functions} functions {found.exact} are "
            f"where the trace says, {found.moved} have moved (by {found.median_moved_lines:.0f} "
            f"lines in the median, {found.most_moved_lines} at most), {found.guessed} are "
            f"guesses among several, {found.gone} are gone, {found.unreadable} unreadable"
        )
    if report.targets_total > len(report.targets):
        lines.append(f"{report.targets_total - len(report.targets)} more with --top")
    return [*lines, *report.notes]


def _show_comparison(found: HotComparison) -> None:
    print(
        f"device time {_time(found.device_us_before)} -> {_time(found.device_us_after)}, "
        f"span {_time(found.span_us_before)} -> {_time(found.span_us_after)}"
    )
    print(
        f"{'before':>9} {'after':>9} {'calls':>15} {'launches a call':>15} {'a call':>8} function"
    )
    for c in found.changes:
        calls = f"{c.calls_before} -> {c.calls_after}"
        launches = f"{c.launches_per_call_before:.1f} -> {c.launches_per_call_after:.1f}"
        print(
            f"{_time(c.device_us_before):>9} {_time(c.device_us_after):>9} {calls:>15} "
            f"{launches:>15} {_verdict(c):>8} {c.target}"
        )


def _verdict(change: Change) -> str:
    if change.per_call_ratio is None:
        return change.kind
    return f"{change.per_call_ratio:.3f}x"


def _time(us: float) -> str:
    for limit, unit in ((1e6, "s"), (1e3, "ms")):
        if us >= limit:
            return f"{us / limit:.2f} {unit}"
    return f"{us:.1f} us"


def _part(us: float, whole_us: float) -> str:
    return f"{us / whole_us:.1%}" if whole_us else "0 %"
