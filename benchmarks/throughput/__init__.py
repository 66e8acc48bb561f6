"""``ksmith bench throughput``: candidates judged per minute, beside KernelBench's evaluator.

Both get the same kernels, shapes, seeds per candidate and timing of candidate and reference.
KernelBench's ``eval_kernel_against_ref`` runs in a fresh process per candidate, as its own
scripts advise, and, for the warm figure, one candidate after another in one process.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from benchmarks.first_path import machine_name
from benchmarks.result import BenchmarkResult, Figure, require_gpu
from benchmarks.throughput.problems import OPERATORS, Operator
from evaluator.candidate import BackendName
from evaluator.evaluation import Environment, Evaluation, Status
from evaluator.sandbox import Sandbox, SandboxSpec
from evaluator.sandbox.select import select_sandbox
from evaluator.session import Role, WorkerOptions
from evaluator.supervisor import CompiledBaseline, LocalEvaluator
from evaluator.workers import shared_zygote
from policies.model import EvaluatorPolicy

_INSIDE = Path(__file__).with_name("inside.py")
_SCRIPT, _ROOT = "/ksmith/inside.py", "/ksmith/kernelbench"


def run_throughput(
    kernelbench: Path | None,
    *,
    candidates: int,
    fresh: int,
    warm: int,
    say: Callable[[str], None],
) -> BenchmarkResult:
    """Judge ``candidates`` kernels per operator, and fewer by KernelBench.

    Args:
        kernelbench: a checkout of KernelBench; None leaves its figures out.
        candidates: per operator, ours.
        fresh: per operator, KernelBench's in a fresh process each.
        warm: per operator, KernelBench's in one process.
        say: told what happens, one line each.

    Raises:
        EvaluatorError: the machine, the sandbox or a reference fails.
    """
    require_gpu("ksmith bench throughput")
    details: dict[str, Any] = {}
    with closing(shared_zygote()) as sandbox:
        ours = [_screen(o, candidates, sandbox, say) for o in OPERATORS]
    details["ksmith"] = [seconds_and_counts for seconds_and_counts, _ in ours]
    environment = ours[0][1]
    machine = machine_name(environment)
    rate = _per_minute(details["ksmith"])
    figures = [
        Figure(
            name="screened_per_minute",
            value=rate,
            unit="candidates/min",
            n=candidates * len(OPERATORS),
            machine=machine,
            bar=">= 120",
        )
    ]
    if kernelbench is not None:
        for name, figure, count, bar in (
            ("kernelbench_fresh", "vs_kernelbench_ratio", fresh, ">= 10"),
            ("kernelbench_warm", "vs_kernelbench_warm_ratio", warm, None),
        ):
            details[name] = [
                _kernelbench(o, kernelbench, count, one_each=name.endswith("fresh"), say=say)
                for o in OPERATORS
            ]
            theirs = _per_minute(details[name])
            n = count * len(OPERATORS)
            figures.append(
                Figure(name=figure, value=rate / theirs, unit="x", n=n, machine=machine, bar=bar)
            )
    return BenchmarkResult.create(
        f"throughput-{machine}",
        figures=figures,
        versions={"torch": environment.torch, "triton": environment.triton or "absent"},
        machines={machine: environment.model_dump(mode="json", exclude_none=True)},
        details=details,
    )


def _per_minute(runs: Sequence[dict[str, Any]]) -> float:
    return float(60 * sum(r["judged"] for r in runs) / sum(r["seconds"] for r in runs))


def _screen(
    operator: Operator, count: int, sandbox: Sandbox, say: Callable[[str], None]
) -> tuple[dict[str, Any], Environment]:
    """Screen ``count`` kernels of one operator with a warm evaluator."""
    say(f"ksmith: {count} kernels of {operator.name}")
    begun = time.monotonic()
    loaded, never = operator.problem(), CompiledBaseline.NEVER
    with LocalEvaluator(loaded, BackendName.TRITON, sandbox=sandbox, compiled=never) as evaluator:
        started = time.monotonic()
        found = list(evaluator.screen_many(operator.candidates(count)))
        seconds = time.monotonic() - started
        facts = {
            "operator": operator.name,
            "candidates": count,
            "judged": sum(e.status is not Status.MACHINE_UNFIT for e in found),
            "seconds": round(seconds, 2),
            "start_seconds": round(started - begun, 2),
            "lanes": evaluator.lanes,
            "median_seconds_in_flight": sorted(e.seconds for e in found)[count // 2],
            "statuses": _counts(found),
            "failures": sorted({e.message for e in found if e.status is not Status.OK})[:5],
        }
        return facts, evaluator.environment()


def _counts(found: Sequence[Evaluation]) -> dict[str, int]:
    statuses = [e.status.value for e in found]
    return {status: statuses.count(status) for status in sorted(set(statuses))}


def _kernelbench(
    operator: Operator,
    root: Path,
    count: int,
    *,
    one_each: bool,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Let KernelBench judge ``count`` kernels; its seconds are wall time, start included."""
    how = "a fresh process each" if one_each else "one process"
    say(f"KernelBench: {count} kernels of {operator.name} in {how}")
    texts = [operator.as_kernelbench(text) for text in operator.kernels(count)]
    groups = [[text] for text in texts] if one_each else [texts]
    answers: list[dict[str, Any]] = []
    seconds = 0.0
    for group in groups:
        started = time.monotonic()
        imported, *judged = _ask_kernelbench(operator.as_kernelbench(), group, root)
        took = time.monotonic() - started
        # Warm means that torch is there already: the start does not count.
        seconds += took if one_each else sum(a["seconds"] for a in judged)
        answers += judged
    return {
        "operator": operator.name,
        "candidates": count,
        "judged": len(answers),
        "seconds": round(seconds, 2),
        "correct": sum(a["correct"] for a in answers),
        "median_runtime_ms": sorted(a["runtime_ms"] for a in answers)[len(answers) // 2],
        "import_seconds": round(imported["imported"], 2),
    }


def _ask_kernelbench(
    reference: str, candidates: Sequence[str], root: Path
) -> Iterator[dict[str, Any]]:
    """Yield the lines that ``inside.py`` answers with.

    Raises:
        RuntimeError: it ended early; the message has the end of its log.
    """
    policy = EvaluatorPolicy.default()
    options = WorkerOptions(Role.CANDIDATE, threads=8, gpu=True)
    spec = SandboxSpec(
        argv=[sys.executable, "-P", "-s", _SCRIPT, _ROOT, str(policy.correctness.trials)],
        read_only={_INSIDE: _SCRIPT, root.resolve(): _ROOT},
        environment=options.environment(),
        limits=options.limits(),
        gpu=True,
    )
    process = select_sandbox().start(spec)
    try:
        order = {"reference": reference, "candidates": list(candidates)}
        process.requests.write(json.dumps(order).encode() + b"\n")
        process.requests.flush()
        for _ in range(len(candidates) + 1):
            line = process.replies.readline()
            if not line:
                raise RuntimeError(f"KernelBench ended early: {process.log_tail(2000)}")
            yield json.loads(line)
    finally:
        process.kill()
