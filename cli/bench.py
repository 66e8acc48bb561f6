"""``ksmith bench``: the benchmarks, each of which writes its file under ``benchmarks/results/``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from cli.options import backend_named

bench = typer.Typer(help="Measure ksmith itself; results go to benchmarks/results/.")


def register(app: typer.Typer) -> None:
    """Add the group to ``app``."""
    app.add_typer(bench, name="bench")


@bench.callback()
def _group() -> None:
    """Measure ksmith itself; results go to benchmarks/results/."""


@bench.command("first-path")
def first_path(
    repos: Annotated[
        Path, typer.Option(help="Holds lmdeploy/ and sglang/ (`make real-repos`).", exists=True)
    ] = Path(".real"),
    work: Annotated[
        Path, typer.Option(help="Problems, copies and runs; continued when it is there.")
    ] = Path("runs/first-path"),
    backend: Annotated[
        str | None, typer.Option(metavar="[triton|cpp]", help="Default: triton with a GPU.")
    ] = None,
    minutes: Annotated[float, typer.Option(min=0.1, help="Search time per target.")] = 5.0,
    steps: Annotated[int | None, typer.Option(min=1, help="Most candidates per target.")] = None,
    seed: Annotated[int, typer.Option(help="Of the searches.")] = 0,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Default: benchmarks/results/.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="The result as one JSON object.")] = False,
) -> None:
    """Extract, optimise and integrate three functions of LMDeploy and SGLang."""
    from benchmarks.first_path import run_first_path
    from benchmarks.result import RESULTS
    from bot.pipeline import default_backend
    from cli.live import make_view

    with make_view() as view:
        results = run_first_path(
            repos,
            work,
            backend=backend_named(backend) or default_backend(),
            minutes=minutes,
            steps=steps,
            seed=seed,
            observer=view,
            say=lambda line: print(line, file=sys.stderr),
        )
        for result in results:
            path = (output or RESULTS) / f"{result.benchmark}.json"
            result.write(path)
    print(result.model_dump_json(indent=1, exclude_none=True) if json else f"wrote {path}")
