"""``ksmith report``: the HTML report of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

INTEGRATION_DIRECTORY = "integration"


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command()(report)


def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")],
    open_: Annotated[bool, typer.Option("--open", help="Show it in the browser.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Where it is, as one JSON object.")] = False,
) -> None:
    """Write RUN/report.html: result, search, candidates, lineage, how to reproduce."""
    import json as json_module

    from evolver.report import write_report
    from evolver.run import Run

    with Run.open(run) as opened:
        path = write_report(opened, diff=_repository_diff(run))
    print(json_module.dumps({"report": str(path)}) if json else path)
    if open_:
        typer.launch(str(path))


def _repository_diff(run: Path) -> str | None:
    """Return the diffs that ``ksmith integrate`` left in the run, one after the other."""
    diffs = sorted((run / INTEGRATION_DIRECTORY).glob("*.diff"))
    texts = [d.read_text(encoding="utf-8", errors="replace") for d in diffs]
    return "\n".join(texts) if texts else None
