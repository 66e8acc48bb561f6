"""``ksmith synth``: what the lowering of our own makes of a problem."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.failures import ExitCode
from cli.options import SandboxOption, backend_named, use_sandbox

if TYPE_CHECKING:
    from rich.console import Console

    from evolver.proposers.synth.explain import Explanation, GroupExplanation, KernelRow


def register(app: typer.Typer) -> None:
    """Add the group to ``app``."""
    group = typer.Typer(no_args_is_help=True, help="Kernels without a model: what is lowered how.")
    group.command("explain")(explain_command)
    app.add_typer(group, name="synth")


def explain_command(
    problem: Annotated[Path, typer.Argument(help="A problem directory.", metavar="PROBLEM")],
    backend: Annotated[
        str | None, typer.Option(help="For whose device the reference is captured: triton, cpp.")
    ] = None,
    program: Annotated[bool, typer.Option("--program", help="Also print the row program.")] = False,
    sandbox: SandboxOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Tell what is fused, what a library keeps and why, and what cannot be lowered.

    Exit 0: all of it can be lowered; 1: something cannot.
    """
    from evaluator.candidate import BackendName
    from evaluator.problem import load_problem
    from evolver.proposers.synth.aten import TraceFailed
    from evolver.proposers.synth.explain import Explanation, explain
    from evolver.proposers.synth.lowering import lower_problem

    use_sandbox(sandbox)
    loaded = load_problem(problem)
    try:
        lowered = lower_problem(loaded, backend_named(backend) or BackendName.TRITON)
        found = explain(loaded.problem.id, lowered)
    except TraceFailed as error:
        found = Explanation(problem=loaded.problem.id, failure=str(error))
    if as_json:
        print(found.model_dump_json(indent=2))
    else:
        _show(found, with_program=program)
    raise typer.Exit(ExitCode.DONE if found.is_lowered else ExitCode.NO)


def _show(found: Explanation, *, with_program: bool) -> None:
    from rich.console import Console

    console = Console(highlight=False, markup=False, soft_wrap=True)
    if found.failure is not None:
        console.print(f"cannot be captured: {found.failure}")
    for group in found.groups:
        _show_group(console, group)
        if with_program and group.program:
            console.print(group.program)


def _show_group(console: Console, group: GroupExplanation) -> None:
    console.print(f"workloads {', '.join(group.workloads)}")
    for refusal in group.refusals:
        place = "" if refusal.line is None else f"line {refusal.line}: "
        console.print(f"  cannot be lowered: {place}{refusal.operator}: {refusal.reason}")
    if not group.is_lowered:
        return
    console.print(f"  {group.nodes} operations in {_counted(group.launches, 'launch', 'launches')}")
    for number, kernel in enumerate(group.kernels):
        _show_kernel(console, number, kernel)
    for library in group.libraries:
        place = "" if library.line is None else f"line {library.line}: "
        console.print(f"  library: {place}{library.operation}: {library.reason}")


def _show_kernel(console: Console, number: int, kernel: KernelRow) -> None:
    rows = " x ".join(kernel.rows) or "one"
    stored = ", ".join(f"{w} in place" for w in kernel.writes) or ", ".join(kernel.stores)
    joined = ", in the launch before" if kernel.joined else ""
    console.print(f"  kernel {number}: {stored}{joined}; {rows} rows, {kernel.lanes} lanes")
    counts = [f"{count} {name}" for name, count in sorted(kernel.operations.items())]
    console.print(f"    {', '.join(counts)}")
    if kernel.lines:
        console.print(f"    lines {', '.join(map(str, kernel.lines))}")
    if kernel.algorithms:
        chosen = [f"{what} by {how}" for what, how in kernel.algorithms.items()]
        console.print(f"    {', '.join(chosen)}")


def _counted(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"
