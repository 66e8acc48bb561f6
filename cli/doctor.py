"""``ksmith doctor``: what this machine can evaluate, what is missing, what mends it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cli.failures import ExitCode

if TYPE_CHECKING:
    from rich.table import Table

    from evaluator.doctor import Diagnosis


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command()(doctor)


def doctor(
    json: Annotated[bool, typer.Option("--json", help="The diagnosis as one JSON object.")] = False,
) -> None:
    """Say what this machine can evaluate and what is missing. Exit 3: nothing at all."""
    from evaluator.doctor import diagnose

    diagnosis = diagnose()
    if json:
        print(diagnosis.model_dump_json(indent=2))
    else:
        _print_for_people(diagnosis)
    raise typer.Exit(ExitCode.DONE if diagnosis.can_evaluate else ExitCode.MACHINE_CANNOT)


def _print_for_people(diagnosis: Diagnosis) -> None:
    from rich.console import Console

    console = Console()
    console.print(_table(diagnosis))
    remedies = {check.name.value: check.remedy for check in diagnosis.checks if check.remedy}
    if remedies:
        console.print("\nTo mend what is missing:")
    for name, remedy in remedies.items():
        # Plain and unbroken, so that a command can be copied.
        console.print(f"  {name}: {remedy}", markup=False, highlight=False, soft_wrap=True)
    console.print()
    for sentence in diagnosis.conclusion:
        console.print(sentence, style="bold", highlight=False, soft_wrap=True)


def _table(diagnosis: Diagnosis) -> Table:
    from rich.table import Table
    from rich.text import Text

    from evaluator.doctor import State

    colours = {State.OK: "green", State.MISSING: "red", State.WARNING: "yellow"}
    table = Table(title="ksmith doctor", title_justify="left")
    for heading in ("", "state", "found", "needed for"):
        table.add_column(heading, overflow="fold")
    for check in diagnosis.checks:
        state = Text(check.state.value, style=colours[check.state])
        table.add_row(check.name.value, state, Text(check.found), Text(check.needed_for))
    return table
