"""``ksmith capture``: real workloads of a function, from the repository's own command."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.options import SandboxOption, use_sandbox

if TYPE_CHECKING:
    from integrations.capture.running import Captured


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("capture")(capture_command)


def capture_command(
    target: Annotated[str, typer.Argument(help="path/to/file.py::function or ::Class.method")],
    command: Annotated[
        list[str],
        typer.Argument(metavar="-- COMMAND...", help="What to run, from the repository's root."),
    ],
    repo: Annotated[
        Path, typer.Option(help="The repository.", file_okay=False, exists=True)
    ] = Path(),
    output: Annotated[Path, typer.Option("-o", "--output", help="Workloads file to write.")] = Path(
        "workloads.captured.yml"
    ),
    most: Annotated[int, typer.Option(min=1, help="Most workloads to keep.")] = 8,
    most_mb: Annotated[int, typer.Option(min=1, help="Most MB of one workload's tensors.")] = 2048,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
    no_sandbox: Annotated[
        bool,
        typer.Option("--no-sandbox", help="Run in place: your environment, files and network."),
    ] = False,
    sandbox: SandboxOption = None,
    minutes: Annotated[float, typer.Option(min=0.1, help="Most time, in the sandbox.")] = 20.0,
    json: Annotated[bool, typer.Option("--json", help="The result as one JSON object.")] = False,
) -> None:
    """Store what a function is really called with: shapes, types, strides, aliases, values."""
    from evaluator import machine
    from integrations.capture.running import CaptureSettings, capture, in_place, in_sandbox

    use_sandbox(sandbox)
    if no_sandbox:
        run = in_place(repo, command)
    else:
        run = in_sandbox(
            repo,
            command,
            seconds=60 * minutes,
            threads=machine.cpu_count(),
            gpu=bool(machine.gpus()),
        )
    settings = CaptureSettings(most, most_mb << 20)
    found = capture(target, repo, run, output, settings, force=force)
    if found.status != 0:
        how = "ran out of time" if found.status is None else f"ended with status {found.status}"
        print(f"ksmith: the command {how}; what it showed until then is kept", file=sys.stderr)
    if json:
        print(found.model_dump_json(indent=1))
    else:
        _show(found, repo)


def _show(found: Captured, repo: Path) -> None:
    print(f"{found.calls} calls of {found.target} in {found.processes} process(es)")
    for workload in found.workloads:
        shapes = ", ".join(f"{n} {list(s)}" for n, s in workload.shapes.items())
        print(f"  {workload.name}: {workload.calls} calls, {shapes}")
    for left in found.left_out:
        print(f"  left out: {left.calls} calls: {'; '.join(left.reasons)}")
    for name, owner in found.aliases.items():
        print(f"  alias: {name} shares the elements of {owner}")
    if found.writes:
        print(f"  writes: {', '.join(found.writes)}")
    if found.unread:
        print(f"  too large to see every write: {', '.join(found.unread)}")
    for note in found.notes:
        print(f"  note: {note}")
    print(
        f"next: ksmith extract {found.target} --repo {repo} -o PROBLEM --workloads {found.output}"
    )
