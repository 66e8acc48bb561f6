"""``ksmith demo``: the whole path on a small inference engine, with nothing but this machine."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.failures import ExitCode, Interrupted

if TYPE_CHECKING:
    from bot.demo.path import DemoResult


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command()(demo)


def demo(
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="A new folder. Default: ksmith-demo.", file_okay=False),
    ] = None,
    minutes: Annotated[float, typer.Option(min=0.1, help="Time to search.")] = 2.0,
    json: Annotated[bool, typer.Option("--json", help="The result as one JSON object.")] = False,
) -> None:
    """Optimise a small inference engine: profile, search, branch, tests, latency, report.

    No token, no model, no GPU; under five minutes. Exit 1: nothing faster was found, or the
    engine's own tests refuse it.
    """
    from bot.demo.path import Audience, run_demo
    from cli.live import make_view

    directory = output if output is not None else _free_folder()
    if directory.exists() and any(directory.iterdir()):
        raise typer.BadParameter(f"{directory} is not empty; name a new folder with -o")
    if directory.exists():
        directory.rmdir()
    try:
        result = run_demo(
            directory.absolute(), minutes=minutes, audience=Audience(tell=_tell, watch=make_view)
        )
    except KeyboardInterrupt:
        raise Interrupted(f"interrupted; what was made so far is in {directory}") from None
    print(result.model_dump_json(indent=2) if json else _for_people(result))
    raise typer.Exit(ExitCode.DONE if _succeeded(result) else ExitCode.NO)


def _free_folder() -> Path:
    names = itertools.chain(("ksmith-demo",), (f"ksmith-demo-{n}" for n in itertools.count(2)))
    return next(p for p in map(Path, names) if not p.exists())


def _tell(line: str) -> None:
    from rich.console import Console

    Console(stderr=True, highlight=False).print(line, markup=False, soft_wrap=True)


def _succeeded(result: DemoResult) -> bool:
    from cli.verify import acceptable

    return result.verification is not None and acceptable(result.verification)


def _for_people(result: DemoResult) -> str:
    from cli.verify import describe

    last = result.tried[-1]
    lines = ["", f"{last.target}: {last.summary.message}"]
    if result.verification is not None:
        lines.append(describe(result.verification))
    if result.integration is not None:
        branch = result.integration.branch
        lines.append(f"branch:        git -C {result.repository} show {branch}")
    else:
        lines.append("no branch was made: nothing was proved to be faster in the time given")
    lines += [f"report:        {result.report}", f"took {result.seconds:.0f} s"]
    return "\n".join(lines)
