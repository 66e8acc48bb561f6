"""``ksmith extract``: a function of a repository becomes a problem."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from evaluator.problem import Problem


class MachineChoice(StrEnum):
    """Same values as ``integrations.extraction.machines.Machine``, without its imports."""

    CUDA = "cuda"
    CPU = "cpu"


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("extract")(extract_command)


def extract_command(
    target: Annotated[str, typer.Argument(help="path/to/file.py::function or ::Class.method")],
    repo: Annotated[Path, typer.Option("--repo", help="Root of the repository.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder of the problem.")],
    workloads: Annotated[
        Path | None, typer.Option("--workloads", help="Inputs, as docs/workloads.md says.")
    ] = None,
    machine: Annotated[
        MachineChoice, typer.Option("--machine", help="What is_cuda() and its kin answer for.")
    ] = MachineChoice.CUDA,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing problem.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Extract a function into a problem: reference.py and problem.yaml, nothing imported."""
    from integrations.extraction.machines import Machine
    from integrations.extraction.pipeline import extract

    problem = extract(
        target, repo, output, workloads=workloads, machine=Machine(machine.value), force=force
    )
    if as_json:
        print(json.dumps(_summary(problem, output)))
    else:
        _show(problem, output)


def _summary(problem: Problem, output: Path) -> dict[str, Any]:
    dumped = problem.model_dump(mode="json")
    keys = ("id", "origin", "entry", "arguments", "state", "contract", "assumptions")
    return {
        "problem": str(output.absolute()),
        **{key: dumped[key] for key in keys},
        "workloads": [w.name for w in problem.workloads],
        "upstream_compiled": problem.upstream_compiled,
    }


def _show(problem: Problem, output: Path) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console()
    console.print(f"[bold]{escape(problem.origin.target)}[/bold] → {escape(str(output))}")
    console.print(f"arguments: {', '.join(problem.arguments)}")
    if problem.state:
        console.print(f"state of self: {', '.join(problem.state)}")
    if problem.contract.writes:
        console.print(f"writes: {', '.join(problem.contract.writes)}")
    table = Table("line", "assumption", "", title="What was dropped, folded or assumed")
    for assumption in problem.assumptions:
        line = "" if assumption.line is None else str(assumption.line)
        table.add_row(line, assumption.kind, escape(assumption.detail))
    if problem.assumptions:
        console.print(table)
    console.print(f"next: ksmith optimize {escape(str(output))}")
