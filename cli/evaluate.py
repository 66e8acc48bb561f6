"""``ksmith evaluate``: one candidate of one problem, one verdict."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.failures import ExitCode
from cli.options import SandboxOption, backend_named, policy_named, use_sandbox

if TYPE_CHECKING:
    from rich.table import Table

    from evaluator.candidate import BackendName, Candidate
    from evaluator.evaluation import Evaluation, Speedup, WorkloadTiming
    from evaluator.timing.samples import SampleSink


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command()(evaluate)


def evaluate(
    problem: Annotated[Path, typer.Argument(help="A problem directory.", metavar="PROBLEM")],
    candidate: Annotated[Path, typer.Argument(help="A Python file.", metavar="CANDIDATE")],
    backend: Annotated[
        str | None, typer.Option(help="Of those that `ksmith doctor` names; told from the source.")
    ] = None,
    confirm: Annotated[
        bool, typer.Option("--confirm", help="Several fresh process pairs, full timing.")
    ] = False,
    deep: Annotated[
        bool, typer.Option("--deep", help="Then run it under memory checkers, on small inputs.")
    ] = False,
    compiled: Annotated[
        bool, typer.Option(help="Also time torch.compile of the reference (slower to start).")
    ] = True,
    samples: Annotated[
        Path | None, typer.Option(help="Write every timed round there, one JSON object a line.")
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            metavar="[strict|kernelbench|keck-cuda|keck-triton]",
            help="What the source may hold. Default: strict.",
        ),
    ] = None,
    sandbox: SandboxOption = None,
    json: Annotated[bool, typer.Option("--json", help="The record as one JSON object.")] = False,
) -> None:
    """Judge CANDIDATE against PROBLEM: correct? faster, and by how much?

    Exit 0: correct and not slower; 1: slower, incorrect or refused; 3: the machine cannot.
    """
    from evaluator.problem import load_problem
    from evaluator.supervisor import CompiledBaseline, LocalEvaluator

    use_sandbox(sandbox)
    baseline = CompiledBaseline.ALWAYS if compiled else CompiledBaseline.NEVER
    loaded = load_problem(problem)
    chosen = _read_candidate(candidate, backend)
    with (
        _samples_file(samples) as sink,
        LocalEvaluator(
            loaded,
            chosen.backend,
            policy=policy_named(policy),
            compiled=baseline,
            progress=_progress,
            samples=sink,
        ) as evaluator,
    ):
        evaluation = evaluator.confirm(chosen) if confirm else evaluator.screen(chosen)
        if deep:
            evaluation = evaluator.check_deeply(chosen, evaluation)
    if json:
        print(evaluation.model_dump_json(indent=2))
    else:
        _print_for_people(evaluation)
    raise typer.Exit(exit_code(evaluation))


def exit_code(evaluation: Evaluation) -> ExitCode:
    """0 where the candidate is correct and not slower, 1 where it fails or is no kernel of its
    own, 3 where we do."""
    from evaluator.evaluation import Verdict

    if evaluation.status.is_machines_fault:
        return ExitCode.MACHINE_CANNOT
    if evaluation.status.is_candidates_fault:
        return ExitCode.NO
    speedup = evaluation.speedup()
    no = speedup is not None and speedup.verdict in (Verdict.SLOWER, Verdict.UNIMPROVED)
    return ExitCode.NO if no else ExitCode.DONE


def backend_of(source: str) -> BackendName:
    """Tell the backend: a module that assigns SOURCE is C++ or CUDA, any other is Triton.

    Raises:
        SyntaxError: the source is not Python.
    """
    from evaluator.candidate import BackendName, native_source

    native = native_source(source)
    if native is None:
        return BackendName.TRITON
    return BackendName.CUDA if "__global__" in native else BackendName.CPP


def _read_candidate(path: Path, backend: str | None) -> Candidate:
    from evaluator.candidate import Candidate

    chosen = backend_named(backend)
    try:
        source = path.read_text(encoding="utf-8-sig")
        return Candidate.create(source, backend=chosen or backend_of(source), proposer="user")
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{path} cannot be read: {error}") from error
    except SyntaxError as error:
        raise typer.BadParameter(f"{path} is not Python: {error}") from error
    except RecursionError as error:
        raise typer.BadParameter(f"{path} is nested too deeply to be read") from error


@contextmanager
def _samples_file(path: Path | None) -> Iterator[SampleSink | None]:
    """Open the file for timed rounds, where one is wanted."""
    if path is None:
        yield None
        return
    try:
        file = path.open("w", encoding="utf-8")
    except OSError as error:
        raise typer.BadParameter(f"{path} cannot be written: {error}") from error
    with file:
        yield lambda rounds: print(rounds.to_json(), file=file, flush=True)


def _progress(what: str) -> None:
    print(f"ksmith: {what} ...", file=sys.stderr, flush=True)


def _print_for_people(evaluation: Evaluation) -> None:
    from rich.console import Console

    console = Console()
    colour = "red" if exit_code(evaluation) is not ExitCode.DONE else "green"
    console.print(evaluation.status.value, style=f"bold {colour}", end="  ")
    console.print(evaluation.message, markup=False, highlight=False, soft_wrap=True)
    if evaluation.correctness:
        console.print(_correctness_table(evaluation))
    if evaluation.timings:
        console.print(_timing_table(evaluation))
    for speedup in evaluation.speedups:
        console.print(f"overall against {speedup.baseline.value}: {_shown(speedup)}")
    if (itself := evaluation.aa_check) is not None:
        interval = f"[{itself.low:.4f}, {itself.high:.4f}]"
        console.print(f"reference against itself: {itself.ratio:.4f}x {interval}", markup=False)
    for line in _what_ran(evaluation):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    for kernel in evaluation.resources:
        console.print(
            f"{kernel.kernel} on {kernel.target}: {kernel.registers} registers, "
            f"{kernel.spill_bytes} B spilled, {kernel.shared_bytes} B shared memory"
        )
    for check in evaluation.deep:
        line = f"{check.tool}: {check.message}"
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    for flag in evaluation.flags:
        line = f"{flag.severity.value}: {flag.rule}: {flag.evidence}"
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    if evaluation.status.is_candidates_fault and evaluation.log_tail:
        console.print(evaluation.log_tail.rstrip(), markup=False, highlight=False, style="dim")


def _what_ran(evaluation: Evaluation) -> Iterator[str]:
    """Whose kernels ran, and why the win is not worth a maintainer's time if it is not."""
    from evaluator.census.findings import describe

    if (ran := describe(evaluation.census)) is not None:
        yield ran
    if evaluation.triviality is not None and evaluation.triviality.trivial:
        yield f"trivial: {'; '.join(evaluation.triviality.reasons)}"


def _correctness_table(evaluation: Evaluation) -> Table:
    from rich.table import Table

    table = Table(title="correctness against float64", title_justify="left")
    for heading in ("workload", "", "tensor", "max abs error", "max rel error", "budget used"):
        table.add_column(heading, overflow="fold")
    for workload in evaluation.correctness:
        word = "passed" if workload.passed else "failed"
        if not workload.errors:
            table.add_row(workload.workload, word, "", "", "", "")
        for error in workload.errors:
            table.add_row(
                workload.workload,
                word,
                error.name,
                f"{error.max_abs_error:.2e}",
                f"{error.max_rel_error:.2e}",
                f"{error.budget_used:.1%}"
                if error.budget_used < 100
                else f"{error.budget_used:.3g}x",
            )
    return table


def _timing_table(evaluation: Evaluation) -> Table:
    from rich.table import Table

    table = Table(title="time per call", title_justify="left")
    for heading in ("workload", "candidate", "baseline", "speedup [95 %]", "verdict", "clock"):
        table.add_column(heading, overflow="fold")
    for timing in (*evaluation.timings, *evaluation.other_clock):
        for speedup in timing.speedups:
            table.add_row(
                timing.workload,
                f"{timing.candidate_us:.2f} µs",
                f"{speedup.baseline.value} {timing.baselines_us[speedup.baseline]:.2f} µs",
                f"{speedup.value:.3f}x [{speedup.low:.3f}, {speedup.high:.3f}]",
                speedup.verdict.value,
                f"{timing.clock.value}, {speedup.blocks} blocks of {timing.calls_per_block} calls, "
                f"{timing.buffers} buffers{_seen_of_memory(timing)}",
            )
    return table


def _seen_of_memory(timing: WorkloadTiming) -> str:
    """Whether the cache held the inputs, and how near the call is to what memory allows."""
    told = ""
    if timing.l2_bytes is not None and timing.working_set_bytes is not None:
        told += ", warm cache" if timing.working_set_bytes <= timing.l2_bytes else ", cold cache"
    if timing.roofline_fraction is not None:
        told += f", {timing.roofline_fraction:.0%} of what memory allows"
    return told


def _shown(speedup: Speedup) -> str:
    return (
        f"{speedup.verdict.value}, {speedup.value:.3f}x [{speedup.low:.3f}, {speedup.high:.3f}], "
        f"99 % lower bound {speedup.lower_99:.3f} (from {speedup.blocks} blocks)"
    )
