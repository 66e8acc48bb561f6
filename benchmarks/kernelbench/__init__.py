"""``ksmith bench kernelbench``: KernelBench's own files, searched without a model.

Each problem gets fresh baselines, a search with all proposers that need no model within the
same budget, and a confirmation of the winner, for each table (``tables.py``). Problems come in
an order drawn once (``order.py``). A row is written as each problem ends, so that any later
session goes on from the rows, wherever they were carried to; where its run directory came
along, within a problem too. The figures are defined in ``figures.py``.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.bands import draw_bands
from benchmarks.deadline import Deadline, expected_seconds
from benchmarks.first_path import machine_name
from benchmarks.kernelbench.baseline import measure_baselines
from benchmarks.kernelbench.figures import curves, details, kernelbench_figures
from benchmarks.kernelbench.order import fixed_order
from benchmarks.kernelbench.rows import Outcome, Row, RowFile, row_of_run
from benchmarks.kernelbench.table import write_table
from benchmarks.kernelbench.tables import Table, policy_of
from benchmarks.result import BenchmarkResult
from bot.pipeline import SearchOrder, make_lineup, search_stage
from evaluator import machine
from evaluator.candidate import BackendName
from evaluator.errors import EvaluatorError, ReferenceFailed, SandboxUnavailable
from evaluator.evaluation import Environment
from evaluator.problem import LoadedProblem, load_problem
from evolver.errors import MachineTrouble
from evolver.progress import Observer, ignore
from evolver.run import PROBLEM_DIRECTORY, Run
from integrations.kernelbench.adapter import load_kernelbench
from integrations.kernelbench.checkout import LEVELS, KernelBenchFile, commit_of, files
from integrations.kernelbench.errors import NotCarried, TooLarge
from policies.model import EvaluatorPolicy

CURVE_FILE = "curve.svg"
_TROUBLE_LIMIT = 3
"""Problems in a row that fail by the machine's fault, after which the session ends."""


@dataclass(frozen=True)
class Plan:
    """What is measured."""

    levels: Sequence[int] = LEVELS
    sample: int | None = None
    """So many of each level, the first of the fixed order; None takes all."""
    steps: int = 40
    """Evaluations per problem."""
    problem_minutes: float | None = 5.0
    """Wall time of each search over all sessions, its confirmation included."""
    seed: int = 0
    """Of the searches."""
    minutes: float | None = None
    """Of this session; no problem is begun that would not end in it, as far as others tell."""
    most_gib: float | None = None
    """Of a problem's arguments: judging moves them dozens of times."""
    tables: Sequence[Table] = (Table.MAIN,)
    """Taken one after the other."""


@dataclass
class _Session:
    """What one session knows."""

    root: Path
    work: Path
    backend: BackendName
    plan: Plan
    rows: Mapping[Table, RowFile]
    observer: Observer
    say: Callable[[str], None]
    commit: str | None
    deadline: Deadline
    environment: Environment | None = None


def run_kernelbench(
    root: Path,
    work: Path,
    plan: Plan,
    *,
    backend: BackendName,
    say: Callable[[str], None],
    observer: Observer = ignore,
) -> BenchmarkResult:
    """Measure what is missing in ``work`` and sum up all that is there.

    Args:
        root: a checkout of KernelBench.
        work: rows and runs; a later call goes on from there.
        plan: what, and how much of it.
        backend: what candidates are written in.
        say: told what happens, one line each.
        observer: watches the searches.

    Raises:
        CheckoutMissing: ``root`` is no checkout.
        MachineTrouble: problems fail in a row and none is to blame.
        SandboxUnavailable: nothing is run without a sandbox.
    """
    chosen = list(choose(root, plan))
    session = _Session(
        root=root,
        work=work,
        backend=backend,
        plan=plan,
        rows={table: RowFile(rows_path(work, table)) for table in Table},
        observer=observer,
        say=say,
        commit=commit_of(root),
        deadline=Deadline(plan.minutes),
    )
    for table in plan.tables:
        missing = [f for f in chosen if f.id not in session.rows[table].rows]
        if not _measure_all(session, table, missing):
            break
    return _result(session, {f.id for f in chosen})


def rows_path(work: Path, table: Table) -> Path:
    """Where the rows of ``table`` lie."""
    return work / f"rows{table.infix}.jsonl"


def _runs_path(work: Path, table: Table) -> Path:
    return work / f"runs{table.infix}"


def forget(work: Path) -> None:
    """Remove the rows and runs of ``work``; what else lies there stays."""
    for table in Table:
        rows_path(work, table).unlink(missing_ok=True)
        shutil.rmtree(_runs_path(work, table), ignore_errors=True)


def choose(root: Path, plan: Plan) -> Iterator[KernelBenchFile]:
    """Yield the files of ``plan`` in the order in which they are taken: levels in turns.

    Raises:
        CheckoutMissing: there is no such level.
    """
    order = fixed_order()
    columns = []
    for level in plan.levels:
        there = files(root, level)
        columns.append([there[n] for n in order[level] if n in there][: plan.sample])
    for position in range(max(map(len, columns), default=0)):
        yield from (column[position] for column in columns if position < len(column))


def _measure_all(session: _Session, table: Table, missing: Sequence[KernelBenchFile]) -> bool:
    """Add a row for each file; whether the session's time sufficed."""
    trouble = 0
    for number, file in enumerate(missing, start=1):
        alike = [r.seconds for r in session.rows[table].rows.values() if r.level == file.level]
        if not session.deadline.allows(expected_seconds(alike)):
            session.say("the time is over; run again with the same --work to go on")
            return False
        session.say(f"{file.id} ({table.value}, {number} of {len(missing)})")
        row = _measure(session, table, file)
        session.rows[table].add(row)
        session.say(f"{file.id}: {_told(row)}")
        trouble = trouble + 1 if row.outcome is Outcome.FAILED else 0
        if trouble == _TROUBLE_LIMIT:
            raise MachineTrouble(
                f"{trouble} problems in a row could not be measured, the last one: {row.reason}. "
                "Mend the machine (`ksmith doctor`), then run the same command again"
            )
    return True


def _measure(session: _Session, table: Table, file: KernelBenchFile) -> Row:
    """Take one problem from its file to its row; what stops it becomes the row's reason."""
    began = time.monotonic()
    known = (file.degenerate,) if file.degenerate else ()
    row = Row(
        id=file.id,
        level=file.level,
        number=file.number,
        outcome=Outcome.FAILED,
        degenerate=known,
    )
    try:
        row = _searched(session, table, file, row)
    except SandboxUnavailable:
        raise
    except TooLarge as error:
        row = row.model_copy(update={"outcome": Outcome.TOO_LARGE, "reason": str(error)})
    except (NotCarried, ReferenceFailed) as error:
        row = row.model_copy(update={"outcome": Outcome.REFUSED, "reason": str(error)})
    except (EvaluatorError, MachineTrouble) as error:
        row = row.model_copy(update={"outcome": Outcome.FAILED, "reason": str(error)})
    return row.model_copy(update={"seconds": round(time.monotonic() - began, 1)})


def _searched(session: _Session, table: Table, file: KernelBenchFile, row: Row) -> Row:
    run_path = _runs_path(session.work, table) / file.id
    loaded = _problem(session, file, run_path)
    policy = policy_of(table, session.backend)
    row = _beside_baselines(session, loaded, row, policy)
    order = SearchOrder(
        backend=session.backend,
        steps=session.plan.steps,
        minutes=session.plan.problem_minutes,
        seed=session.plan.seed,
    )
    resume = run_path.exists()
    summary = search_stage(
        loaded, run_path, order, resume=resume, observer=session.observer, policy=policy
    )
    session.environment = summary.environment or session.environment
    with Run.open(run_path) as run:
        return row_of_run(run, row, library_share=policy.census.library_share)


def _beside_baselines(
    session: _Session, loaded: LoadedProblem, row: Row, policy: EvaluatorPolicy
) -> Row:
    """``row`` with what is known of its problem whatever the search finds; measured once."""
    known = session.rows[Table.MAIN].rows.get(row.id)
    if known is not None and known.outcome is Outcome.MEASURED:
        update: dict[str, object] = {"compiled": known.compiled, "degenerate": known.degenerate}
        return row.model_copy(update=update)
    baselines = measure_baselines(loaded, session.backend, policy)
    session.environment = baselines.environment
    degenerate = (*row.degenerate, *baselines.degenerate)
    return row.model_copy(update={"compiled": baselines.compiled, "degenerate": degenerate})


def _problem(session: _Session, file: KernelBenchFile, run_path: Path) -> LoadedProblem:
    """The problem as a run that is there has it, or from the file."""
    if run_path.exists():
        return load_problem(run_path / PROBLEM_DIRECTORY)
    device = "cuda" if session.backend is not BackendName.CPP and machine.gpus() else "cpu"
    most_gib = session.plan.most_gib
    most_bytes = None if most_gib is None else int(most_gib * 2**30)
    return load_kernelbench(file, device=device, commit=session.commit, most_bytes=most_bytes)


def _told(row: Row) -> str:
    if row.outcome is not Outcome.MEASURED:
        return f"{row.outcome.value}: {row.reason}"
    compiled = f"torch.compile {row.compiled.value:.2f}x" if row.compiled else "not compiled"
    if row.score:
        return f"{row.score:.2f}x by {row.proposer} ({compiled})"
    return f"{'correct, not faster' if row.correct else 'nothing correct'} ({compiled})"


def _result(session: _Session, wanted: set[str]) -> BenchmarkResult:
    main, paper = (
        [r for i, r in session.rows[table].rows.items() if i in wanted]
        for table in (Table.MAIN, Table.PAPER)
    )
    environment = session.environment or machine.environment(
        device="cpu" if session.backend is BackendName.CPP else "cuda", threads=1, sandbox=""
    )
    name = machine_name(environment)
    plan = session.plan
    lineup = make_lineup()
    proposers = [p.name for p in (*lineup.seeders, *lineup.proposers)]
    draw_bands(
        session.work / CURVE_FILE,
        curves(main),
        title=f"KernelBench on {name} without a model: {', '.join(proposers)}",
        across="candidates evaluated",
        up="amsr over eager",
    )
    return BenchmarkResult.create(
        f"kernelbench-{name}",
        figures=kernelbench_figures(main, name, paper),
        versions={"torch": environment.torch, "triton": environment.triton or "absent"},
        machines={name: environment.model_dump(mode="json", exclude_none=True)},
        details={
            "kernelbench_commit": session.commit,
            "proposers": proposers,
            "backend": session.backend.value,
            "steps": plan.steps,
            "minutes_per_problem": plan.problem_minutes,
            "seed": plan.seed,
            "most_gib": plan.most_gib,
            "rows": {
                table.value: write_table(rows, session.work, f"problems{table.infix}").name
                for table, rows in ((Table.MAIN, main), (Table.PAPER, paper))
                if rows
            },
            **details(main),
            **({"paper": details(paper)} if paper else {}),
        },
    )
