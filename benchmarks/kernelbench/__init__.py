"""``ksmith bench kernelbench``: KernelBench's own files, searched without a model.

Each problem gets fresh baselines, a search (``compiler``, then ``mutate``) within the same
budget, and a confirmation of the winner. Problems come in an order drawn once (``order.py``).
A row is written as each problem ends, so that any later session goes on from there, within
a problem too: its run directory is kept. The figures are defined in ``figures.py``.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.first_path import machine_name
from benchmarks.kernelbench.baseline import measure_baselines
from benchmarks.kernelbench.figures import details, kernelbench_figures
from benchmarks.kernelbench.order import fixed_order
from benchmarks.kernelbench.rows import Outcome, Row, RowFile, row_of_run
from benchmarks.kernelbench.table import write_table
from benchmarks.result import BenchmarkResult
from bot.pipeline import SearchOrder, search_stage
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

ROWS_FILE = "rows.jsonl"
RUNS_DIRECTORY = "runs"
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
    """Of this session; no problem is begun later."""
    most_gib: float | None = None
    """Of a problem's arguments: judging moves them dozens of times."""


@dataclass
class _Session:
    """What one session knows."""

    root: Path
    work: Path
    backend: BackendName
    plan: Plan
    rows: RowFile
    policy: EvaluatorPolicy
    observer: Observer
    say: Callable[[str], None]
    commit: str | None
    environment: Environment | None = None
    begun: float = field(default_factory=time.monotonic)

    def out_of_time(self) -> bool:
        """Whether no further problem is begun."""
        minutes = self.plan.minutes
        return minutes is not None and time.monotonic() - self.begun > 60 * minutes


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
        rows=RowFile(work / ROWS_FILE),
        policy=EvaluatorPolicy.default(),
        observer=observer,
        say=say,
        commit=commit_of(root),
    )
    _measure_all(session, [f for f in chosen if f.id not in session.rows.rows])
    wanted = {f.id for f in chosen}
    return _result(session, [r for i, r in session.rows.rows.items() if i in wanted])


def forget(work: Path) -> None:
    """Remove the rows and runs of ``work``; what else lies there stays."""
    (work / ROWS_FILE).unlink(missing_ok=True)
    shutil.rmtree(work / RUNS_DIRECTORY, ignore_errors=True)


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


def _measure_all(session: _Session, missing: Sequence[KernelBenchFile]) -> None:
    """Add a row for each file until the session's time is over."""
    trouble = 0
    for number, file in enumerate(missing, start=1):
        if session.out_of_time():
            session.say("the time is over; run again with the same --work to go on")
            return
        session.say(f"{file.id} ({number} of {len(missing)})")
        row = _measure(session, file)
        session.rows.add(row)
        session.say(f"{file.id}: {_told(row)}")
        trouble = trouble + 1 if row.outcome is Outcome.FAILED else 0
        if trouble == _TROUBLE_LIMIT:
            raise MachineTrouble(
                f"{trouble} problems in a row could not be measured, the last one: {row.reason}. "
                "Mend the machine (`ksmith doctor`), then run the same command again"
            )


def _measure(session: _Session, file: KernelBenchFile) -> Row:
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
        row = _searched(session, file, row)
    except SandboxUnavailable:
        raise
    except TooLarge as error:
        row = row.model_copy(update={"outcome": Outcome.TOO_LARGE, "reason": str(error)})
    except (NotCarried, ReferenceFailed) as error:
        row = row.model_copy(update={"outcome": Outcome.REFUSED, "reason": str(error)})
    except (EvaluatorError, MachineTrouble) as error:
        row = row.model_copy(update={"outcome": Outcome.FAILED, "reason": str(error)})
    return row.model_copy(update={"seconds": round(time.monotonic() - began, 1)})


def _searched(session: _Session, file: KernelBenchFile, row: Row) -> Row:
    run_path = session.work / RUNS_DIRECTORY / file.id
    loaded = _problem(session, file, run_path)
    baselines = measure_baselines(loaded, session.backend, session.policy)
    session.environment = baselines.environment
    row = row.model_copy(
        update={
            "compiled": baselines.compiled,
            "degenerate": (*row.degenerate, *baselines.degenerate),
        }
    )
    order = SearchOrder(
        backend=session.backend,
        steps=session.plan.steps,
        minutes=session.plan.problem_minutes,
        seed=session.plan.seed,
    )
    search_stage(loaded, run_path, order, resume=run_path.exists(), observer=session.observer)
    with Run.open(run_path) as run:
        return row_of_run(run, row, library_share=session.policy.census.library_share)


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


def _result(session: _Session, rows: Sequence[Row]) -> BenchmarkResult:
    environment = session.environment or machine.environment(
        device="cpu" if session.backend is BackendName.CPP else "cuda", threads=1, sandbox=""
    )
    name = machine_name(environment)
    plan = session.plan
    return BenchmarkResult.create(
        f"kernelbench-{name}",
        figures=kernelbench_figures(rows, name),
        versions={"torch": environment.torch, "triton": environment.triton or "absent"},
        machines={name: environment.model_dump(mode="json", exclude_none=True)},
        details={
            "kernelbench_commit": session.commit,
            "proposers": ["compiler", "mutate"],
            "backend": session.backend.value,
            "steps": plan.steps,
            "minutes_per_problem": plan.problem_minutes,
            "seed": plan.seed,
            "most_gib": plan.most_gib,
            "rows": str(write_table(rows, session.work)),
            **details(rows),
        },
    )
