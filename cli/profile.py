"""``ksmith profile``: a trace of a repository's own command, for ``ksmith hot``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from cli.options import SandboxOption, use_sandbox


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("profile")(profile)


def profile(
    command: Annotated[
        list[str],
        typer.Argument(metavar="-- COMMAND...", help="What to run, from the repository's root."),
    ],
    repo: Annotated[
        Path, typer.Option(help="The repository.", file_okay=False, exists=True)
    ] = Path(),
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder for the traces.")] = Path(
        "traces"
    ),
    warmup: Annotated[int, typer.Option(min=0, help="Steps to let pass.")] = 3,
    steps: Annotated[int, typer.Option(min=1, help="Steps to record.")] = 3,
    step: Annotated[
        str,
        typer.Option(
            metavar="path::qualname", help="What a step is. Default: an outermost nn.Module call."
        ),
    ] = "",
    own_profiler: Annotated[
        bool,
        typer.Option(
            "--own-profiler", help="The command profiles itself: add stacks and shapes to that."
        ),
    ] = False,
    no_sandbox: Annotated[
        bool,
        typer.Option("--no-sandbox", help="Run in place: your environment, files and network."),
    ] = False,
    sandbox: SandboxOption = None,
    minutes: Annotated[float, typer.Option(min=0.1, help="Most time, in the sandbox.")] = 20.0,
    json: Annotated[bool, typer.Option("--json", help="The result as one JSON object.")] = False,
) -> None:
    """Record stacks and shapes of a command's warm steps, without changing the repository."""
    from evaluator import machine
    from integrations.profiling import ProfileSettings, profile_here, profile_in_sandbox

    use_sandbox(sandbox)
    settings = ProfileSettings(warmup, steps, step, own_profiler)
    if no_sandbox:
        found = profile_here(repo, command, settings, output)
    else:
        found = profile_in_sandbox(
            repo,
            command,
            settings,
            output,
            seconds=60 * minutes,
            threads=machine.cpu_count(),
            gpu=bool(machine.gpus()),
        )
    if found.status:
        print(f"ksmith: the command ended with status {found.status}", file=sys.stderr)
    if json:
        print(found.model_dump_json(indent=1))
        return
    for process in found.processes:
        print(f"process {process.pid}: {process.recorded} of {process.seen} steps recorded")
    traces = " ".join(str(path) for path in found.traces) or "TRACE"
    print(f"next: ksmith hot {traces} --repo {repo}")
