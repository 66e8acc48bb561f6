"""``ksmith optimize``: search for a faster candidate, in a run directory that can be resumed."""

from __future__ import annotations

import shlex
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.failures import ExitCode, Interrupted
from cli.options import SandboxOption, backend_named, llm_named, mode_named, use_sandbox

if TYPE_CHECKING:
    from bot.pipeline import SearchOrder
    from evaluator.problem import LoadedProblem
    from evolver.summary import Summary


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command()(optimize)


def optimize(
    source: Annotated[
        str,
        typer.Argument(metavar="PROBLEM|TARGET", help="A problem directory, or path::qualname."),
    ],
    repo: Annotated[
        Path | None, typer.Option(help="The repository that TARGET lies in.", file_okay=False)
    ] = None,
    workloads: Annotated[
        Path | None, typer.Option(help="Workloads for TARGET, as YAML.", dir_okay=False)
    ] = None,
    backend: Annotated[
        str | None,
        typer.Option(metavar="[triton|cpp]", help="Default: triton with a GPU, else cpp."),
    ] = None,
    steps: Annotated[
        int | None, typer.Option(min=0, help="Candidates to evaluate. Default: 40.")
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(min=0.0, help="Wall time, over all sessions of the run.")
    ] = None,
    gpu_seconds: Annotated[
        float | None, typer.Option(min=0.0, help="Time that the GPU is held, over all sessions.")
    ] = None,
    tokens: Annotated[
        int | None, typer.Option(min=1, help="Of models, in and out; others then go on alone.")
    ] = None,
    money: Annotated[
        float | None, typer.Option(metavar="USD", min=0.0, help="For models that have prices.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Default: 0.")] = None,
    mode: Annotated[
        str | None,
        typer.Option(
            metavar="[evolve|sequential|best-of-n|random]",
            help="What a proposal starts from. Default: evolve.",
        ),
    ] = None,
    islands: Annotated[
        int | None, typer.Option(min=1, max=1000, help="Archives side by side. Default: 2.")
    ] = None,
    adaptive: Annotated[
        bool | None,
        typer.Option(
            "--adaptive/--no-adaptive", help="End on a plateau, before the budget is spent."
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Run directory. Default: runs/<problem>-<date>."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run.")] = False,
    model: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME[=WEIGHT]", help="Ask this model too; repeatable."),
    ] = None,
    endpoint: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Where MODEL answers. Default: serve-model's."),
    ] = None,
    llm: Annotated[
        Path | None,
        typer.Option(help="Models, prices and limits, as YAML; or a run.yaml.", dir_okay=False),
    ] = None,
    library: Annotated[
        bool,
        typer.Option(
            "--library/--no-library",
            help="Learn from what worked elsewhere, and add to it.",
        ),
    ] = True,
    sandbox: SandboxOption = None,
    json: Annotated[bool, typer.Option("--json", help="The summary as one JSON object.")] = False,
) -> None:
    """Search for a faster kernel. Exit 0: found and confirmed; 1: nothing is faster."""
    from bot.pipeline import SearchOrder
    from evolver.library.store import library_path

    use_sandbox(sandbox)
    order = SearchOrder(
        backend=backend_named(backend),
        steps=steps,
        minutes=minutes,
        gpu_seconds=gpu_seconds,
        tokens=tokens,
        money_usd=money,
        seed=seed,
        mode=mode_named(mode),
        islands=islands,
        adaptive=adaptive,
        llm=llm_named(model or [], endpoint, llm),
        library=library_path() if library else None,
    )
    loaded = _problem(source, repo, workloads)
    run_path = output if output is not None else _run_path(loaded.problem.id, resume=resume)
    try:
        summary = _search(loaded, run_path, order, resume=resume)
    except KeyboardInterrupt:
        raise Interrupted(f"interrupted; {_resumption(run_path)}") from None
    if json:
        print(summary.model_dump_json(indent=2))
    else:
        print(_for_people(summary, run_path))
    raise typer.Exit(_exit_code(summary))


def _problem(source: str, repo: Path | None, workloads: Path | None) -> LoadedProblem:
    """Load the problem directory, or extract the target first."""
    from evaluator.problem import load_problem

    if "::" not in source:
        return load_problem(Path(source))
    if repo is None:
        raise typer.BadParameter(f"{source} is a target: name its repository with --repo DIR")
    from bot.pipeline import extract_stage

    return extract_stage(source, repo, workloads=workloads)


def _run_path(problem_id: str, *, resume: bool) -> Path:
    from bot.pipeline import default_run_path, latest_run_path

    latest = latest_run_path(problem_id) if resume else None
    return latest or default_run_path(problem_id, datetime.now().astimezone())


def _search(loaded: LoadedProblem, run_path: Path, order: SearchOrder, *, resume: bool) -> Summary:
    from bot.pipeline import search_stage
    from cli.live import make_view

    print(f"searching in {run_path}", file=sys.stderr)
    with make_view() as view:
        return search_stage(loaded, run_path, order, resume=resume, observer=view)


def _resumption(run_path: Path) -> str:
    if not run_path.exists():
        return "the run had not begun, and nothing was written"
    words = ["ksmith", "optimize", str(run_path / "problem"), "-o", str(run_path), "--resume"]
    return f"continue with: {shlex.join(words)}"


def _for_people(summary: Summary, run_path: Path) -> str:
    from evolver.costs import duration
    from evolver.summary import Outcome

    counts = ", ".join(f"{n} {status.value}" for status, n in summary.counts.items())
    lines = [
        summary.message,
        f"{summary.evaluated} candidates ({counts})",
        f"cost: {summary.costs.total} in {duration(summary.seconds)}",
        f"run: {run_path}",
    ]
    if summary.outcome is Outcome.FASTER:
        lines.append(f"best: {run_path / 'best' / 'candidate.py'}")
    return "\n".join(lines)


def _exit_code(summary: Summary) -> ExitCode:
    from evolver.summary import Outcome

    return {
        Outcome.FASTER: ExitCode.DONE,
        Outcome.NOTHING_FASTER: ExitCode.NO,
        Outcome.UNMEASURED: ExitCode.MACHINE_CANNOT,
        Outcome.UNFINISHED: ExitCode.INTERRUPTED,
    }[summary.outcome]
