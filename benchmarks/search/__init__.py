"""``ksmith bench search``: is the search worth its parts, and can its numbers be believed?

Each mode searches each problem with each seed, from the same seeds and with the same number of
evaluations; modes are compared by what they had to show at equal device seconds. Beside it, the
candidates of each finished ``evolve`` search are ranked by a naive clock and by ours, the
adaptive rule is replayed over it, a search is killed at random moments, and the archive and the
store are filled with 100,000 candidates. What runs proposed is in the title of the figure: the
curves speak of these proposers alone.

Every piece of work is a line in a file of the work folder; a later session, here or elsewhere,
goes on from those. The figures are defined in ``figures.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.bands import draw_bands
from benchmarks.deadline import Deadline
from benchmarks.first_path import machine_name
from benchmarks.result import BenchmarkResult
from benchmarks.search.figures import curves, search_figures
from benchmarks.search.plan import Plan
from benchmarks.search.problems import (
    Subject,
    kernelbench_subjects,
    own_subjects,
    production_subjects,
)
from benchmarks.search.rows import RankingRow, SearchRow
from benchmarks.search.session import Session
from benchmarks.search.work import Work
from evaluator import machine
from evaluator.candidate import BackendName
from evaluator.evaluation import Environment
from evolver.progress import Observer, ignore
from policies.model import EvaluatorPolicy

CURVE_FILE = "curves.svg"
_AXES = {"evaluated": "candidates evaluated", "device_seconds": "device seconds"}


def run_search(
    work: Path,
    plan: Plan,
    *,
    backend: BackendName,
    say: Callable[[str], None],
    observer: Observer = ignore,
    policy: EvaluatorPolicy | None = None,
) -> BenchmarkResult:
    """Measure what is missing in ``work`` and sum up all that is there.

    Args:
        work: rows and runs; a later call goes on from there.
        plan: what, and how much of it.
        backend: what candidates are written in.
        say: told what happens, one line each.
        observer: watches the searches.
        policy: that candidates are judged by, by default ``policies/default.yml``.

    Raises:
        MachineTrouble: searches fail in a row through no candidate's fault.
        SandboxUnavailable: nothing is run without a sandbox.
        CheckoutMissing: ``plan.kernelbench`` is no checkout.
    """
    session = Session(
        work=Work(work),
        plan=plan,
        backend=backend,
        policy=policy or EvaluatorPolicy.default(),
        say=say,
        observer=observer,
        deadline=Deadline(plan.minutes),
    )
    gpu = backend is not BackendName.CPP
    environment = machine.environment(device="cuda" if gpu else "cpu", threads=1, sandbox="")
    if not plan.long:
        session.kill_all(machine_name(environment))
        session.fill(machine_name(environment))
    session.search_all(list(_subjects(session, gpu=gpu)))
    return _result(session, session.environment or environment)


def _subjects(session: Session, *, gpu: bool) -> Iterator[Subject]:
    plan, work = session.plan, session.work
    if plan.long:
        yield from production_subjects(plan.repositories, work.cases_path, say=session.say)
        return
    yield from own_subjects(plan.problems, gpu=gpu)
    if plan.kernelbench is not None:
        yield from kernelbench_subjects(plan.kernelbench, sample=plan.sample, gpu=gpu)


def _result(session: Session, environment: Environment) -> BenchmarkResult:
    """Sum up, and draw the curves."""
    work, name = session.work, machine_name(environment)
    searches = [r for r in work.searches if r.unit.steps == session.plan.wanted_steps]
    drawn = curves(searches)
    proposers = sorted({p for r in searches for p in r.proposers})
    draw_bands(
        work.path / CURVE_FILE,
        {f"by {_AXES[axis]}": modes for axis, modes in drawn.items()},
        title=f"Search on {name}, proposers: {', '.join(proposers) or 'none'}",
        across="cost",
        up="speedup over eager, lower bound",
    )
    return BenchmarkResult.create(
        f"search{'-long' if session.plan.long else ''}-{name}",
        figures=search_figures(searches, work.rankings, work.kills, work.scale, name),
        versions={"torch": environment.torch, "triton": environment.triton or "absent"},
        machines={name: environment.model_dump(mode="json", exclude_none=True)},
        details={
            "proposers": proposers,
            "backend": session.backend.value,
            "steps": session.plan.wanted_steps,
            "equal_cost": "device seconds of the cheaper of the two searches; the reference's "
            "comparison with itself serves all modes and is in none",
            "searches": {r.unit.name: _search_details(r) for r in searches},
            "rankings": {r.unit.name: _ranking_details(r) for r in work.rankings},
            "failures": work.failures,
            "curves": {a: {m: vars(b) for m, b in modes.items()} for a, modes in drawn.items()},
        },
    )


def _search_details(row: SearchRow) -> dict[str, object]:
    return {
        "confirmed": row.confirmed,
        "at_least": row.value_at(),
        "evaluated": len(row.steps),
        "device_seconds": round(row.spent, 2),
        "seconds": row.seconds,
        "headroom": row.headroom,
        "adaptive_stop": row.stopped_at,
    }


def _ranking_details(row: RankingRow) -> dict[str, object]:
    return {
        "clock": row.clock,
        "candidates": len(row.contenders),
        "naive_wrong": row.wrong(row.naive_pick),
        "stable_wrong": row.wrong(row.stable_pick),
        "confirmed": [c.model_dump(mode="json") for c in row.contenders if c.value is not None],
    }
