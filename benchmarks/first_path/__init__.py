"""``ksmith bench first-path``: the whole path on three functions of published engines.

Each target is extracted, searched, integrated into a copy of its repository and reported
on. A figure exists only where a confirmation upheld a winner; what happened otherwise
stands in the details. The repositories come from PyPI's wheels (``make real-repos``).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.result import BenchmarkResult, Figure
from bot.pipeline import SearchOrder, search_stage
from evaluator.candidate import BackendName
from evaluator.evaluation import Baseline, Environment, Speedup, WorkloadTiming
from evaluator.problem import load_problem
from evolver.errors import MachineTrouble
from evolver.progress import Observer
from evolver.run import Run
from evolver.summary import Outcome, Summary

FIGURE_NAMES = {Baseline.EAGER: "vs_eager", Baseline.COMPILED: "vs_compile"}


@dataclass(frozen=True)
class Target:
    """One function of a published engine."""

    name: str
    distribution: str
    path_and_name: str

    @property
    def workloads(self) -> Path:
        """The inputs that the benchmark uses."""
        return Path(__file__).with_name(f"{self.name}.yml")


TARGETS = (
    Target(
        "lmdeploy_router",
        "lmdeploy",
        "lmdeploy/pytorch/backends/default/moe_router.py::DefaultRouterNoauxTCImpl.forward",
    ),
    Target("sglang_rms_norm", "sglang", "sglang/srt/layers/layernorm.py::RMSNorm.forward_native"),
    Target(
        "lmdeploy_rotary",
        "lmdeploy",
        "lmdeploy/pytorch/backends/default/apply_rotary_emb.py::DefaultApplyRotaryEmbImpl.forward",
    ),
)


@dataclass(frozen=True)
class TargetResult:
    """What one target came to."""

    target: Target
    summary: Summary
    details: Mapping[str, Any]


def run_first_path(
    repositories: Path,
    work: Path,
    *,
    backend: BackendName,
    minutes: float,
    steps: int | None,
    seed: int,
    observer: Observer,
    say: Callable[[str], None],
) -> Iterator[BenchmarkResult]:
    """Take every target down the path, with ``minutes`` of search for each.

    After each target the result of all so far is yielded, so that an interruption loses
    the target at hand alone.

    Args:
        repositories: holds the unpacked ``lmdeploy`` and ``sglang``, as ``make real-repos`` does.
        work: problems, repository copies and runs; a run that is there is resumed.
        backend: what candidates are written in.
        minutes: wall time of each search, over all sessions.
        steps: most candidates per target; None leaves it to the time.
        seed: of the searches.
        observer: watches the searches.
        say: told what happens, one line each.
    """
    outcomes = []
    for target in TARGETS:
        order = SearchOrder(backend=backend, steps=steps, minutes=minutes, seed=seed)
        outcomes.append(_take(target, repositories, work / target.name, order, observer, say))
        yield _result(outcomes)


def _result(outcomes: Sequence[TargetResult]) -> BenchmarkResult:
    environments = [o.summary.environment for o in outcomes if o.summary.environment]
    if not environments:
        raise MachineTrouble(
            "no candidate of the first target was evaluated, so there is nothing to report: "
            f"{outcomes[0].summary.message}"
        )
    machine = machine_name(environments[0])
    return BenchmarkResult.create(
        f"first-path-{machine}",
        figures=[figure for outcome in outcomes for figure in _figures(outcome, machine)],
        versions=outcomes[0].summary.versions,
        machines={machine: environments[0].model_dump(mode="json", exclude_none=True)},
        details={o.target.name: dict(o.details) for o in outcomes},
    )


def _take(
    target: Target,
    repositories: Path,
    work: Path,
    order: SearchOrder,
    observer: Observer,
    say: Callable[[str], None],
) -> TargetResult:
    from bot.landing import integrate_stage
    from evolver.report import write_report

    problem = extracted(target, repositories, work, say)
    copy, run = work / target.distribution, work / "run"
    say(f"{target.name}: searching")
    summary = search_stage(
        load_problem(problem), run, order, resume=run.exists(), observer=observer
    )
    say(f"{target.name}: {summary.message}")
    details: dict[str, Any] = {
        "target": target.path_and_name,
        "outcome": summary.outcome.value,
        "message": summary.message,
        "counts": {status.value: n for status, n in summary.counts.items()},
        "proposers": [p.model_dump(mode="json") for p in summary.proposers],
        "search_seconds": round(summary.seconds, 1),
    }
    if summary.outcome is Outcome.FASTER:
        result = integrate_stage(run, copy, replace=True)
        details["branch_files"] = [str(f) for f in result.files]
    with Run.open(run) as opened:
        write_report(opened)
        best = opened.best()
        if best is not None:
            details["winner"] = best.candidate.description or best.proposer
            details["workloads"] = _workload_rows(best.evaluation.timings)
    return TargetResult(target, summary, details)


def extracted(target: Target, repositories: Path, work: Path, say: Callable[[str], None]) -> Path:
    """Return the problem directory of ``target``, made in ``work`` where it is not there.

    Raises:
        IntegrationError: the target cannot be found or extracted.
    """
    from integrations.extraction.pipeline import extract

    work.mkdir(parents=True, exist_ok=True)
    copy, problem = work / target.distribution, work / "problem"
    if not copy.exists():
        say(f"{target.name}: copying {target.distribution}")
        _commit_copy(repositories / target.distribution, copy)
    if not problem.exists():
        say(f"{target.name}: extracting {target.path_and_name}")
        extract(target.path_and_name, copy, problem, workloads=target.workloads)
    return problem


def _commit_copy(source: Path, copy: Path) -> None:
    """Copy an unpacked wheel and commit it, since ksmith works on git repositories."""
    import git

    partial = copy.with_name(f".{copy.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    shutil.copytree(source, partial)
    with git.Repo.init(partial) as repository:
        repository.git.add("--all", "--force")
        author = git.Actor("ksmith bench", "bench@example.invalid")
        repository.index.commit(f"{source.name} as published", author=author, committer=author)
    partial.rename(copy)


def _figures(outcome: TargetResult, machine: str) -> list[Figure]:
    return [_figure(outcome.target.name, s, machine) for s in outcome.summary.speedups]


def _figure(name: str, speedup: Speedup, machine: str) -> Figure:
    return Figure(
        name=f"{name}.{FIGURE_NAMES[speedup.baseline]}",
        value=speedup.value,
        unit="x",
        low=speedup.low,
        high=speedup.high,
        n=speedup.blocks,
        machine=machine,
    )


def _workload_rows(timings: Sequence[WorkloadTiming]) -> list[dict[str, Any]]:
    return [timing.model_dump(mode="json") for timing in timings]


def machine_name(environment: Environment) -> str:
    """The short name of a machine in file names and figures: ``h200``, or ``cpu``."""
    if "cuda" not in environment.device:
        return "cpu"
    inside = environment.device.partition("(")[2].rstrip(")")
    return (inside.split() or ["gpu"])[-1].lower()
