"""``ksmith bench noise``: how far the evaluator's numbers and verdicts can be trusted.

Triton kernels are judged against themselves, where every difference is noise, and against
themselves with 2 % more work, where the difference is known. Each candidate is a fresh
process with a device context of its own. What others time with runs beside, in processes of
the same kind. Rows are kept as they come; a later run continues them.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from benchmarks.first_path import machine_name
from benchmarks.noise import problems
from benchmarks.noise.figures import FRESH_PROCESSES, kernel_table, noise_figures
from benchmarks.noise.rows import Row, RowFile, Study
from benchmarks.result import BenchmarkResult, require_gpu
from evaluator import machine
from evaluator.candidate import BackendName
from evaluator.errors import EvaluatorError
from evaluator.evaluation import Environment, Evaluation, Status
from evaluator.problem import LoadedProblem
from evaluator.sandbox import Sandbox
from evaluator.supervisor import CompiledBaseline, LocalEvaluator
from evaluator.workers import shared_zygote
from policies.model import EvaluatorPolicy

ROWS_FILE = "rows.jsonl"
_RUNS = 3
"""The comparisons of one problem are spread over so many evaluators, each with a new reference."""
_COMPARISONS = 600
_PLANTED_SHARE = 0.02
_PLANTED_SCREENS = 40
_FULL_VERDICTS = 8


@dataclass(frozen=True)
class Plan:
    """How much is measured, in all sessions together."""

    minutes: float
    null_searches: int = 50
    null_copies: int = 200


class OutOfTime(Exception):
    """The session's minutes are over."""


def run_noise(work: Path, plan: Plan, *, say: Callable[[str], None]) -> BenchmarkResult:
    """Measure what is missing in ``work`` for up to ``plan.minutes`` and sum up.

    Args:
        work: holds the rows; a later call goes on from there.
        plan: how much and how long.
        say: told what happens, one line each.

    Raises:
        EvaluatorError: the machine, the sandbox or a reference fails.
    """
    require_gpu("ksmith bench noise")
    rows = RowFile(work / ROWS_FILE)
    deadline = time.monotonic() + plan.minutes * 60
    sandbox = shared_zygote()
    bench = _Bench(rows, deadline, sandbox, say)
    try:
        bench.self_comparisons()
        bench.planted()
        bench.yardsticks()
        bench.full_verdicts()
        bench.null_searches(plan.null_searches, plan.null_copies)
    except OutOfTime:
        say("the time is over; run again with the same --work to go on")
    finally:
        sandbox.close()
    environment = bench.environment or _environment()
    name = machine_name(environment)
    return BenchmarkResult.create(
        f"noise-{name}",
        figures=noise_figures(rows.rows, name),
        versions={"torch": environment.torch, "triton": environment.triton or "absent"},
        machines={name: environment.model_dump(mode="json", exclude_none=True)},
        details={
            "kernels": kernel_table(rows.rows),
            "statuses": _counts(rows.rows),
            "planted": _planted_table(rows.rows),
        },
    )


class _Bench:
    def __init__(
        self, rows: RowFile, deadline: float, sandbox: Sandbox, say: Callable[[str], None]
    ) -> None:
        self.environment: Environment | None = None
        self._rows = rows
        self._deadline = deadline
        self._sandbox = sandbox
        self._say = say

    def self_comparisons(self) -> None:
        """Every kernel against itself until there are enough comparisons of all."""
        loaded = problems.self_problems()
        kernels = sum(len(p.problem.workloads) for p in loaded)
        wanted = max(FRESH_PROCESSES, -(-_COMPARISONS // kernels))
        for run, problem in itertools.product(range(1, _RUNS + 1), loaded):
            first = f"{problem.problem.id}.{problem.problem.workloads[0].name}"
            done = len(self._rows.of(Study.SELF, first))
            missing = wanted * run // _RUNS - done
            if missing > 0:
                self._say(f"{problem.problem.id} against itself: {missing} fresh processes")
                self._screen(problem, Study.SELF, missing)

    def planted(self) -> None:
        """The spinning kernel against itself with 2 % more work, in three classes of duration."""
        for name, (elements, iterations) in problems.PLANTED_ITERATIONS.items():
            missing = _PLANTED_SCREENS - len(self._rows.of(Study.PLANTED, name))
            if missing <= 0:
                continue
            extra, truth = self._calibrate(name, elements, iterations)
            self._say(f"planted {name}: {extra} more iterations are {truth - 1:.2%}")
            workload = problems.spin_workload(name, elements, iterations, extra)
            self._screen(problems.spin_problem([workload]), Study.PLANTED, missing, truth=truth)

    def full_verdicts(self) -> None:
        """Confirmations of kernels against themselves."""
        for problem in problems.self_problems()[:2]:
            missing = _FULL_VERDICTS - len(self._rows.of(Study.FULL, problem.problem.id))
            if missing <= 0:
                continue
            self._say(f"full verdicts on {problem.problem.id}")
            with self._evaluator(problem) as evaluator:
                for copy in problems.copies(problem, missing):
                    self._check_time()
                    evaluation = evaluator.confirm(copy)
                    self._rows.add([_whole_row(Study.FULL, problem, evaluation)])

    def null_searches(self, searches: int, copies: int) -> None:
        """Search among copies of one kernel; whatever is published is wrong."""
        problem = _one_workload(problems.self_problems()[0], 1)
        while len(self._rows.of(Study.NULL_SEARCH)) < searches:
            with self._evaluator(problem) as evaluator:
                self._rows.add([self._null_search(problem, evaluator, copies)])

    def yardsticks(self) -> None:
        """The same kernels under the clocks that others use."""
        from benchmarks.noise.yardsticks import Yardsticks

        for problem in problems.self_problems():
            first = f"{problem.problem.id}.{problem.problem.workloads[0].name}"
            missing = FRESH_PROCESSES - len(self._rows.of(Study.YARDSTICK, first))
            if missing <= 0:
                continue
            self._say(f"{problem.problem.id} by do_bench, do_bench_cudagraph and one shot")
            yardsticks = Yardsticks(problem, self._sandbox)
            with ThreadPoolExecutor(4) as pool:
                copies = problems.copies(problem, missing)
                for measured in pool.map(yardsticks.measure, copies):
                    self._rows.add(measured)
                    self._check_time()

    def _null_search(self, problem: LoadedProblem, evaluator: LocalEvaluator, copies: int) -> Row:
        started = time.monotonic()
        candidates = {c.id: c for c in problems.copies(problem, copies)}
        screened = []
        for evaluation in evaluator.screen_many(list(candidates.values())):
            screened.append(evaluation)
            self._check_time()
        best = max(
            (e for e in screened if e.status is Status.OK),
            key=lambda e: e.speedups[0].value,
        )
        confirmed = evaluator.confirm(candidates[best.candidate_id])
        whole = _whole_row(Study.NULL_SEARCH, problem, confirmed)
        seconds = time.monotonic() - started
        published = None if whole.verdict is None else whole.verdict.value == "faster"
        found = f"the best of {len(screened)} screened at {best.speedups[0].value:.4f}x"
        self._say(f"null search: {found}, {confirmed.message}")
        return whole.model_copy(
            update={"published": published, "seconds": seconds, "message": found}
        )

    def _calibrate(self, name: str, elements: int, iterations: int) -> tuple[int, float]:
        """How many iterations are 2 % of the time, and what share they are exactly."""
        twice = [
            problems.spin_workload(f"{name}_{times}", elements, times * iterations, 0)
            for times in (1, 2)
        ]
        problem = problems.spin_problem(twice)
        rows = self._screen(problem, Study.CALIBRATION, 1)
        one, two = (r.us for r in rows)
        if one is None or two is None:
            raise EvaluatorError(
                f"what an iteration costs could not be measured: {rows[0].message}"
            )
        slope_us = (two - one) / iterations
        extra = max(1, round(_PLANTED_SHARE * one / slope_us))
        return extra, 1 + extra * slope_us / one

    def _screen(
        self, problem: LoadedProblem, study: Study, count: int, *, truth: float | None = None
    ) -> list[Row]:
        found: list[Row] = []
        with self._evaluator(problem) as evaluator:
            lean = study is Study.PLANTED
            for evaluation in evaluator.screen_many(problems.copies(problem, count, lean=lean)):
                rows = _rows(study, problem, evaluation, truth)
                self._rows.add(rows)
                found += rows
                self._check_time()
        return found

    def _evaluator(self, problem: LoadedProblem) -> LocalEvaluator:
        self._check_time()
        evaluator = LocalEvaluator(
            problem,
            BackendName.TRITON,
            policy=_policy(),
            sandbox=self._sandbox,
            compiled=CompiledBaseline.NEVER,
        )
        self.environment = evaluator.environment()
        return evaluator

    def _check_time(self) -> None:
        if time.monotonic() > self._deadline:
            raise OutOfTime


def _rows(
    study: Study, problem: LoadedProblem, evaluation: Evaluation, truth: float | None
) -> list[Row]:
    """One row per workload; a workload of a planted problem names its class alone."""
    prefix = f"{problem.problem.id}." if study is Study.SELF else ""
    common = {"study": study, "status": evaluation.status, "seconds": evaluation.seconds}
    if evaluation.status is not Status.OK:
        message = evaluation.message
        names = [f"{prefix}{w.name}" for w in problem.problem.workloads]
        return [Row(kernel=name, message=message, **common) for name in names]
    return [
        Row(
            kernel=f"{prefix}{timing.workload}",
            us=timing.candidate_us,
            low=timing.speedups[0].low,
            ratio=timing.speedups[0].value,
            high=timing.speedups[0].high,
            verdict=timing.speedups[0].verdict,
            truth=truth,
            **common,
        )
        for timing in evaluation.timings
    ]


def _whole_row(study: Study, problem: LoadedProblem, evaluation: Evaluation) -> Row:
    speedup = evaluation.speedup()
    return Row(
        study=study,
        kernel=problem.problem.id,
        status=evaluation.status,
        seconds=evaluation.seconds,
        low=speedup.low if speedup else None,
        ratio=speedup.value if speedup else None,
        high=speedup.high if speedup else None,
        verdict=speedup.verdict if speedup else None,
        message="" if speedup else evaluation.message,
    )


def _one_workload(loaded: LoadedProblem, position: int) -> LoadedProblem:
    workloads = (loaded.problem.workloads[position],)
    problem = loaded.problem.model_copy(update={"workloads": workloads})
    return LoadedProblem(problem=problem, reference_source=loaded.reference_source)


def _counts(rows: Sequence[Row]) -> dict[str, dict[str, int]]:
    counts: dict[str, dict[str, int]] = {}
    for row in rows:
        of_study = counts.setdefault(row.study.value, {})
        of_study[row.status.value] = of_study.get(row.status.value, 0) + 1
    return counts


def _planted_table(rows: Sequence[Row]) -> dict[str, dict[str, object]]:
    planted = [r for r in rows if r.study is Study.PLANTED and r.verdict is not None]
    return {
        name: {
            "n": len(some),
            "true_ratio": some[0].truth,
            "found": sum(r.verdict is not None and r.verdict.value == "faster" for r in some),
            "median_us": sorted(r.us or 0.0 for r in some)[len(some) // 2],
        }
        for name in sorted({r.kernel for r in planted})
        if (some := [r for r in planted if r.kernel == name])
    }


def _policy() -> EvaluatorPolicy:
    """The default without the census, which would call every copy unimproved and hide the rate."""
    policy = EvaluatorPolicy.default()
    census = policy.census.model_copy(update={"enabled": False})
    return policy.model_copy(update={"census": census})


def _environment() -> Environment:
    return machine.environment(device="cuda", threads=1, sandbox="")
