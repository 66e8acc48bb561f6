"""``ksmith integrate``: a run's winner as one commit on a new branch of the repository."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command()(integrate)


def integrate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory with a winner.")],
    repo: Annotated[
        Path, typer.Option(help="The folder that the target's path starts in.", file_okay=False)
    ],
    branch: Annotated[
        str | None, typer.Option(metavar="NAME", help="Default: ksmith/<problem>.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace the branch if it is there.")
    ] = False,
    deep: Annotated[bool, typer.Option(help="Run the winner under memory checkers first.")] = True,
    json: Annotated[bool, typer.Option("--json", help="The result as one JSON object.")] = False,
) -> None:
    """Put the winner into the repository, as a branch; your checkout is not touched.

    Exit 0: the branch is there. 1: no winner, it accesses memory wrongly, or the target cannot
    take it. 2: the repository is not clean, or the branch exists.
    """
    from bot.landing import deep_stage, integrate_stage

    for check in deep_stage(run, progress=_progress) if deep else ():
        print(f"ksmith: {check.tool}: {check.message}", file=sys.stderr)
    result = integrate_stage(run, repo, branch=branch, replace=force)
    if json:
        print(result.model_dump_json(indent=2))
        return
    print(f"branch {result.branch}, commit {result.commit[:10]} on top of {result.base[:10]}")
    for path in result.files:
        print(f"  {path}")
    print(f"look at it: git -C '{repo}' show {result.branch}")
    print(f"check it:   ksmith verify '{run}' --repo '{repo}' -- LATENCY COMMAND")


def _progress(what: str) -> None:
    print(f"ksmith: {what} ...", file=sys.stderr, flush=True)
