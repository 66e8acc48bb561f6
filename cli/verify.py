"""``ksmith verify``: the repository's own tests and latency, before and after the branch."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.failures import ExitCode

if TYPE_CHECKING:
    from integrations.verify import LatencyComparison, TestRun, Verification

_SHOWN = 5


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command()(verify)


def verify(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run that was integrated.")],
    repo: Annotated[Path, typer.Option(help="The repository with the branch.", file_okay=False)],
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[-- COMMAND...]",
            help="Prints the latency: a JSON object with 'value', or a number last.",
        ),
    ] = None,
    rounds: Annotated[int, typer.Option(min=2, help="Rounds of the latency command.")] = 8,
    whole_suite: Annotated[
        bool, typer.Option("--whole-suite", help="All tests, not just those that name the file.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="The result as one JSON object.")] = False,
) -> None:
    """Run tests and latency on both sides, in a sandbox. Exit 1: a test fails, or it is slower."""
    from bot.landing import verify_stage

    found = verify_stage(
        run,
        repo,
        latency_command=command or (),
        rounds=rounds,
        whole_suite=whole_suite,
        progress=lambda step: print(step, file=sys.stderr, flush=True),
    )
    print(found.model_dump_json(indent=2) if json else describe(found))
    raise typer.Exit(ExitCode.DONE if acceptable(found) else ExitCode.NO)


def acceptable(found: Verification) -> bool:
    """Whether the branch may be offered: tests pass and the end to end is not slower."""
    from evaluator.evaluation import Verdict

    slower = found.latency is not None and found.latency.verdict is Verdict.SLOWER
    return found.passed and not slower and found.latency_problem is None


def describe(found: Verification) -> str:
    """The verification in a few lines."""
    lines = []
    for title, run in (
        ("new test:      ", found.new_test),
        ("tests before:  ", found.before),
        ("tests after:   ", found.after),
    ):
        lines += [title + _test_line(run), *_causes(run)]
    if found.broken:
        lines.append("broken by the change: " + ", ".join(found.broken))
    if found.latency is not None:
        lines.append(f"latency:       {latency_line(found.latency)}")
    if found.latency_problem is not None:
        lines.append(f"latency:       not measured: {found.latency_problem}")
    return "\n".join(lines)


def _test_line(run: TestRun) -> str:
    if run.status == "ran" and (run.passed or run.failed or run.skipped):
        return f"{run.passed} passed, {len(run.failed)} failed, {run.skipped} skipped"
    last = run.output_tail.strip().splitlines()[-1:] or ["no output"]
    prefix = "" if run.status == "ran" else f"{run.status.replace('_', ' ')}: "
    return prefix + last[0]


def _causes(run: TestRun) -> list[str]:
    """What pytest says of the failures: a few of its error lines, named by the test."""
    errors = [line for line in run.output_tail.splitlines() if line.startswith("E  ")]
    named = [f"  {name}" for name in run.failed[:_SHOWN]]
    lines = [*named, *(f"    {line[1:].strip()}" for line in errors[:_SHOWN])]
    if any("ModuleNotFoundError" in line for line in errors):
        lines.append("  install the repository's dependencies into the environment of ksmith")
    return lines


def latency_line(latency: LatencyComparison) -> str:
    """The comparison in one line."""
    return (
        f"{latency.metric} {latency.before:.4g} -> {latency.after:.4g}: "
        f"{latency.ratio:.3f}x [{latency.low:.3f}, {latency.high:.3f}] "
        f"({latency.confidence:.0%}, {latency.rounds} rounds), {latency.verdict.value}"
    )
