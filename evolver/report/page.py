"""Lays out a report: the Jinja environment, its filters, and the words for values."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from evaluator.census.findings import describe
from evaluator.evaluation import Baseline, Clock, Evaluation, Flag, Speedup, Status, Verdict
from evaluator.evaluation import Environment as Machine
from evaluator.workload import TensorSpec, Workload
from evolver.costs import duration
from evolver.report import code, figures
from evolver.report.content import Content
from evolver.summary import Outcome

BASELINES = {Baseline.EAGER: "eager PyTorch", Baseline.COMPILED: "torch.compile"}
CLOCKS = {
    Clock.WALL_PINNED: "Wall clock on pinned cores",
    Clock.GRAPH_REPLAY: "CUDA events around graph replays",
    Clock.STREAM_EVENTS: "CUDA events around launches",
}
HEADLINES = {
    Outcome.NOTHING_FASTER: "No faster kernel found",
    Outcome.UNMEASURED: "Correct kernels, none measured",
    Outcome.UNFINISHED: "The search is not finished",
}


@dataclass(frozen=True)
class WorkloadRow:
    """One line of the table of workloads."""

    name: str
    inputs: str
    held_out: bool
    candidate_us: float
    baseline_us: float
    speedup: Speedup


def render(content: Content) -> str:
    """Return the page."""
    environment = Environment(
        loader=PackageLoader("evolver.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        ratio=ratio, interval=interval, micros=micros, duration=duration, short=short,
        python=code.python_html, diff=code.diff_html, inputs=inputs, sentence=sentence,
    )  # fmt: skip
    return environment.get_template("report.html.j2").render(**_context(content))


def _context(content: Content) -> dict[str, object]:
    featured = content.featured.evaluation if content.featured else None
    run_path = content.run_path
    return {
        "c": content,
        "headline": headline(content),
        "rows": list(_workload_rows(content, featured)) if featured else [],
        "measurement": _measurement(featured) if featured else "",
        "curve": _curve(content),
        "archive": _archive(content),
        "cost_bar": _cost_bar(content),
        "flags": list(_flags(content)),
        "baselines": BASELINES,
        "environment": _machine(content),
        "facts": list(_facts(content)),
        "code_colours": code.colours(),
        "ok": (Status.OK, Status.NOT_MEASURED),
        "verdict_class": {v: v.value for v in Verdict},
        "evaluate_command": _command(
            "evaluate", f"{run_path}/problem", f"{run_path}/best/candidate.py"
        ),
        "report_command": _command("report", run_path),
    }


def _command(*words: str) -> str:
    return shlex.join(["ksmith", *words])


def headline(content: Content) -> str:
    """Return the result in a few words."""
    if not content.has_winner:
        return HEADLINES[content.summary.outcome]
    speedup = content.summary.speedups[0]
    return f"{ratio(speedup.value)} as fast as {BASELINES[speedup.baseline]}"


def _curve(content: Content) -> Markup | None:
    if not content.screened:
        return None
    svg = figures.best_score_curve(
        content.screened, content.confirmed, attempts=len(content.attempts)
    )
    return Markup(svg)  # noqa: S704 drawn from numbers alone


def _archive(content: Content) -> Markup | None:
    return Markup(figures.archive_map(content.archive)) if content.archive else None  # noqa: S704


def _cost_bar(content: Content) -> Markup | None:
    """The largest parts, the others in one."""
    parts = sorted(content.summary.costs.stages(), key=lambda part: -part[1])
    shown, small = parts[: figures.MOST_PARTS - 1], parts[figures.MOST_PARTS - 1 :]
    shown.append(("the rest", sum(seconds for _, seconds in small)))
    shown = [part for part in shown if part[1] > 0]
    return Markup(figures.cost_bar(shown)) if shown else None  # noqa: S704


def _workload_rows(content: Content, evaluation: Evaluation) -> Iterator[WorkloadRow]:
    workloads = {w.name: w for w in content.loaded.problem.workloads}
    for timing in evaluation.timings:
        workload = workloads.get(timing.workload)
        for speedup in timing.speedups:
            yield WorkloadRow(
                name=timing.workload,
                inputs=inputs(workload) if workload else "",
                held_out=workload.held_out if workload else False,
                candidate_us=timing.candidate_us,
                baseline_us=timing.baselines_us[speedup.baseline],
                speedup=speedup,
            )


def _measurement(evaluation: Evaluation) -> str:
    clocks = ", ".join(sorted({CLOCKS[t.clock] for t in evaluation.timings})) or "Not timed"
    blocks = min((s.blocks for s in evaluation.speedups), default=0)
    how = (
        "fresh processes that had no part in the search" if evaluation.confirmed else "a screening"
    )
    return (
        f"{clocks}; baseline and candidate in interleaved blocks "
        f"({blocks} per workload at least), in {how}; the interval is a bootstrap over blocks."
        f"{_what_ran(evaluation)}"
    )


def _what_ran(evaluation: Evaluation) -> str:
    """Whose kernels ran, and why the win is trivial if it is."""
    ran = describe(evaluation.census)
    found = f" What ran: {ran}." if ran is not None else ""
    judged = evaluation.triviality
    if judged is not None and judged.trivial:
        found += f" Not worth a change of its own, for {'; '.join(judged.reasons)}."
    return found


def _machine(content: Content) -> Machine | None:
    """Return where the numbers on the page come from, which may differ from the last session."""
    if content.featured is None:
        return content.summary.environment
    return content.featured.evaluation.environment


def _facts(content: Content) -> Iterator[tuple[str, object]]:
    machine, config = _machine(content), content.config
    named = dict(machine) if machine else {}
    for name, value in named.items():
        if value is not None:
            yield name.replace("_", " "), value
    for name, version in config.versions.items():
        if named.get(name) != version:
            yield f"{name}, when the run began" if name in named else name, version
    yield "backend", config.backend.value
    yield "seed", config.seed
    yield "run began", f"{config.created_at:%Y-%m-%d %H:%M %Z}"
    yield "report written", f"{content.written_at:%Y-%m-%d %H:%M %Z}"


def _flags(content: Content) -> Iterator[tuple[int, Flag]]:
    for attempt in content.attempts:
        for flag in attempt.evaluation.flags:
            yield attempt.number, flag


def ratio(value: float) -> str:
    """Return a speedup as people write it: ``1.52×``."""
    return f"{value:.2f}×" if value < 10 else f"{value:.1f}×"


def interval(speedup: Speedup) -> str:
    """Return the two-sided interval of a speedup with its confidence."""
    return f"{speedup.low:.3f} to {speedup.high:.3f} ({speedup.confidence:.0%})"


def micros(value: float) -> str:
    """Return a time given in µs, in µs or ms, with four digits."""
    return f"{value:.4g} µs" if value < 10_000 else f"{value / 1000:.4g} ms"


def sentence(text: str) -> str:
    """Return ``text`` as a sentence begins; unlike ``capitalize``, the rest stays as it is."""
    return text[:1].upper() + text[1:]


def short(identity: str) -> str:
    """Return the first eight characters of an id."""
    return identity[:8]


def inputs(workload: Workload) -> str:
    """Return the arguments of a workload in one line: ``x: float32[8, 64], eps: 1e-06``."""
    parts = []
    for name, value in workload.arguments.items():
        if isinstance(value, TensorSpec):
            extents = ", ".join(map(str, value.shape))
            parts.append(f"{name}: {value.dtype.value}[{extents}]")
        else:
            parts.append(f"{name}: {value}")
    return ", ".join(parts)
