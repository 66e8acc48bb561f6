"""``ksmith bench``: the benchmarks, each of which writes its file under ``benchmarks/results/``."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.options import backend_named

if TYPE_CHECKING:
    from benchmarks.result import BenchmarkResult

OutputOption = Annotated[
    Path | None, typer.Option("--output", "-o", help="Default: benchmarks/results/.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="The result as one JSON object.")]
MinutesOption = Annotated[
    float | None, typer.Option(min=0.1, help="For this session. Default: no limit.")
]

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
    output: OutputOption = None,
    json: JsonOption = False,
) -> None:
    """Extract, optimise and integrate three functions of LMDeploy and SGLang."""
    from benchmarks.first_path import run_first_path
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
            say=_say,
        )
        for result in results:
            path = _write(result, output)
    _show(result, path, json=json)


@bench.command()
def noise(
    work: Annotated[
        Path, typer.Option(help="Rows measured so far; continued when it is there.")
    ] = Path("runs/noise"),
    minutes: Annotated[float, typer.Option(min=0.1, help="For this session.")] = 30.0,
    null_searches: Annotated[int, typer.Option(min=0, help="Searches among copies.")] = 50,
    resume: Annotated[
        bool, typer.Option(help="Go on with the rows in --work, or start anew.")
    ] = True,
    output: OutputOption = None,
    json: JsonOption = False,
) -> None:
    """Judge kernels against themselves: what noise does to times and verdicts. Needs a GPU."""
    from benchmarks.noise import ROWS_FILE, Plan, run_noise

    if not resume:
        (work / ROWS_FILE).unlink(missing_ok=True)
    result = run_noise(work, Plan(minutes, null_searches), say=_say)
    _show(result, _write(result, output), json=json)


@bench.command()
def throughput(
    kernelbench: Annotated[
        Path | None,
        typer.Option(help="A checkout of KernelBench, to measure beside ours.", exists=True),
    ] = None,
    candidates: Annotated[int, typer.Option(min=1, help="Ours, per operator.")] = 60,
    fresh: Annotated[int, typer.Option(min=1, help="Its, a fresh process each.")] = 4,
    warm: Annotated[int, typer.Option(min=1, help="Its, in one process.")] = 12,
    output: OutputOption = None,
    json: JsonOption = False,
) -> None:
    """Candidates screened per minute, ours beside KernelBench's evaluator. Needs a GPU."""
    from benchmarks.throughput import run_throughput

    result = run_throughput(kernelbench, candidates=candidates, fresh=fresh, warm=warm, say=_say)
    _show(result, _write(result, output), json=json)


@bench.command()
def exploits(
    corpus: Annotated[
        Path, typer.Option(help="Holds exploits/ and benign/.", exists=True, file_okay=False)
    ] = Path("tests"),
    repos: Annotated[
        Path, typer.Option(help="Packages that real kernels come from (`make real-repos`).")
    ] = Path(".real"),
    work: Annotated[
        Path, typer.Option(help="Cases tried so far; continued when it is there.")
    ] = Path("runs/exploits"),
    backend: Annotated[
        list[str] | None, typer.Option(help="Repeatable. Default: all that this machine runs.")
    ] = None,
    minutes: MinutesOption = None,
    resume: Annotated[
        bool, typer.Option(help="Go on with the cases in --work, or start anew.")
    ] = True,
    output: OutputOption = None,
    json: JsonOption = False,
) -> None:
    """Try to fool the evaluator in every known way, and see that honest kernels pass."""
    from benchmarks.exploits import TRIALS_FILE, Corpus, run_exploits

    if not resume:
        (work / TRIALS_FILE).unlink(missing_ok=True)
    chosen = [name for name in map(backend_named, backend or ()) if name is not None]
    result = run_exploits(Corpus(corpus, repos), work, backends=chosen, minutes=minutes, say=_say)
    _show(result, _write(result, output), json=json)


@bench.command()
def kernelbench(
    root: Annotated[Path, typer.Option(help="A checkout of KernelBench.", exists=True)],
    levels: Annotated[str, typer.Option(help="Which, with commas.")] = "1,2,3",
    sample: Annotated[
        int | None, typer.Option(min=1, help="The first N of each level's fixed order.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the searches.")] = 0,
    steps: Annotated[int, typer.Option(min=1, help="Evaluations per problem.")] = 40,
    problem_minutes: Annotated[
        float, typer.Option(min=0.1, help="Search time per problem, confirmation included.")
    ] = 5.0,
    minutes: MinutesOption = None,
    most_gib: Annotated[
        float | None, typer.Option(min=0, help="Pass over problems with larger arguments.")
    ] = None,
    backend: Annotated[
        str | None, typer.Option(metavar="[triton|cpp]", help="Default: triton with a GPU.")
    ] = None,
    work: Annotated[
        Path, typer.Option(help="Rows and runs so far; continued when it is there.")
    ] = Path("runs/kernelbench"),
    tables: Annotated[
        str, typer.Option(help="Which, with commas: main, paper (1e-2, TF32, own kernels only).")
    ] = "main",
    resume: Annotated[
        bool, typer.Option(help="Go on with what is in --work, or start anew.")
    ] = True,
    output: OutputOption = None,
    json: JsonOption = False,
) -> None:
    """Search KernelBench's own problems without a model, beside eager and torch.compile."""
    from benchmarks.kernelbench import CURVE_FILE, Plan, forget, run_kernelbench
    from benchmarks.kernelbench.tables import Table
    from bot.pipeline import default_backend
    from cli.live import make_view

    if not resume:
        forget(work)
    plan = Plan(
        levels=_levels(levels),
        sample=sample,
        steps=steps,
        problem_minutes=problem_minutes,
        seed=seed,
        minutes=minutes,
        most_gib=most_gib,
        tables=[Table(name) for name in _named(tables, list(Table), "--tables")],
    )
    chosen = backend_named(backend) or default_backend()
    with make_view() as view:
        result = run_kernelbench(root, work, plan, backend=chosen, say=_say, observer=view)
    _show(result, _write(result, output, drawing=work / CURVE_FILE), json=json)


@bench.command()
def search(
    problems: Annotated[
        str | None, typer.Option(help="Of our own, with commas. Default: all six.")
    ] = None,
    kernelbench: Annotated[
        Path | None, typer.Option(help="A checkout, whose problems are taken too.", exists=True)
    ] = None,
    sample: Annotated[
        int, typer.Option(min=1, help="The first N of each KernelBench level's fixed order.")
    ] = 3,
    modes: Annotated[
        str, typer.Option(help="Of evolve, sequential, best-of-n and random, with commas.")
    ] = "evolve,sequential,best-of-n,random",
    seeds: Annotated[int, typer.Option(min=1, help="Searches of each problem and mode.")] = 2,
    steps: Annotated[int, typer.Option(min=1, help="Evaluations per search.")] = 40,
    adaptive: Annotated[
        int, typer.Option(min=0, help="Problems that are also searched adaptively.")
    ] = 0,
    long: Annotated[
        bool, typer.Option("--long", help="512 steps on production cases instead.")
    ] = False,
    repos: Annotated[
        Path, typer.Option(help="Holds lmdeploy/ and sglang/ (`make real-repos`); with --long.")
    ] = Path(".real"),
    kills: Annotated[
        int | None, typer.Option(min=0, help="Of a search. Default: 50 with cpp, else none.")
    ] = None,
    scale: Annotated[
        int | None, typer.Option(min=0, help="Candidates. Default: 100,000 with cpp, else none.")
    ] = None,
    minutes: MinutesOption = None,
    backend: Annotated[
        str | None, typer.Option(metavar="[triton|cpp]", help="Default: triton with a GPU.")
    ] = None,
    work: Annotated[
        Path, typer.Option(help="Rows and runs so far; continued when it is there.")
    ] = Path("runs/search"),
    resume: Annotated[
        bool, typer.Option(help="Go on with what is in --work, or start anew.")
    ] = True,
    output: OutputOption = None,
    json: JsonOption = False,
) -> None:
    """Compare search modes at equal cost, and our ranking with a naive clock's."""
    from benchmarks.search import CURVE_FILE, run_search
    from benchmarks.search.figures import MODES
    from benchmarks.search.plan import Plan
    from benchmarks.search.problems import OWN_NAMES
    from benchmarks.search.work import forget
    from bot.pipeline import default_backend
    from cli.live import make_view
    from evaluator.candidate import BackendName

    if not resume:
        forget(work)
    chosen = backend_named(backend) or default_backend()
    on_host = chosen is BackendName.CPP  # what needs no device is not measured on a lent one
    plan = Plan(
        problems=_named(problems or ",".join(OWN_NAMES), OWN_NAMES, "--problems"),
        kernelbench=kernelbench,
        sample=sample,
        repositories=repos,
        modes=_named(modes, MODES, "--modes"),
        seeds=seeds,
        steps=steps,
        adaptive=adaptive,
        long=long,
        kills=kills if kills is not None else 50 * on_host,
        scale=scale if scale is not None else 100_000 * on_host,
        minutes=minutes,
    )
    with make_view() as view:
        result = run_search(work, plan, backend=chosen, say=_say, observer=view)
    _show(result, _write(result, output, drawing=work / CURVE_FILE), json=json)


@bench.command()
def trace(
    traces: Annotated[
        Path, typer.Option(help="Folder with the traces.", exists=True, file_okay=False)
    ],
    repos: Annotated[
        Path, typer.Option(help="Holds traces/ (`scripts/real_repos.sh traces`).")
    ] = Path(".real"),
    hta: Annotated[
        Path | None, typer.Option(help="Python with HolisticTraceAnalysis, to measure beside.")
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Fresh processes per measurement.")] = 5,
    synthetic_events: Annotated[int, typer.Option(min=0, help="0 leaves it out.")] = 5_000_000,
    work: Annotated[Path, typer.Option(help="For the synthetic trace.")] = Path("runs/trace"),
    output: OutputOption = None,
    json: JsonOption = False,
) -> None:
    """Real profiler traces: how many are read, how far they are attributed, how fast."""
    from benchmarks.trace import run_trace

    result = run_trace(
        traces,
        repos,
        hta=hta,
        repeats=repeats,
        synthetic_events=synthetic_events,
        work=work,
        say=_say,
    )
    _show(result, _write(result, output), json=json)


@bench.command()
def extraction(
    repos: Annotated[
        Path, typer.Option(help="Holds what `scripts/real_repos.sh extraction` unpacks.")
    ] = Path(".real"),
    target: Annotated[
        list[str] | None, typer.Option(help="By name; repeatable. Default: all 25.")
    ] = None,
    output: OutputOption = None,
    json: JsonOption = False,
) -> None:
    """Extract 25 functions of published engines, run them, compare with the originals."""
    from benchmarks.extraction import run_extraction

    result = run_extraction(repos, only=tuple(target or ()), say=_say)
    _show(result, _write(result, output), json=json)


def _levels(text: str) -> list[int]:
    """Read ``1,2,3``."""
    return [int(n) for n in _named(text, ("1", "2", "3"), "--levels")]


def _named(text: str, known: Sequence[str], option: str) -> list[str]:
    """Read ``a,b``: each once, in the order of ``known``."""
    named = set(text.replace(" ", "").split(","))
    if not named <= set(known):
        wrong = f"{text!r} names others than {', '.join(known)}"
        raise typer.BadParameter(wrong, param_hint=option)
    return [name for name in known if name in named]


def _say(line: str) -> None:
    print(line, file=sys.stderr)


def _write(result: BenchmarkResult, folder: Path | None, *, drawing: Path | None = None) -> Path:
    """Write the result's file, its drawing beside it, and return where it is."""
    from benchmarks.result import RESULTS

    path = (folder or RESULTS) / f"{result.benchmark}.json"
    result.write(path)
    if drawing is not None:
        shutil.copyfile(drawing, path.with_suffix(".svg"))
    return path


def _show(result: BenchmarkResult, path: Path, *, json: bool) -> None:
    print(result.model_dump_json(indent=1, exclude_none=True) if json else f"wrote {path}")
