"""Builders of the nouns for tests: valid by default, each test states only what it is about.

``make_problem("rms_norm" | "router" | "rotary")`` gives a whole problem with small
workloads; ``make_candidate`` a candidate; ``make_evaluation`` a record that fits its status.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from evaluator.candidate import BackendName, Candidate
from evaluator.evaluation import (
    Baseline,
    Clock,
    Environment,
    Evaluation,
    OutputError,
    Speedup,
    Status,
    Verdict,
    WorkloadCorrectness,
    WorkloadTiming,
)
from evaluator.problem import (
    PROBLEM_FILE,
    REFERENCE_FILE,
    Contract,
    Entry,
    LoadedProblem,
    Origin,
    Output,
    OutputKind,
    Problem,
    sha256_text,
)
from evaluator.workload import DType, TensorSpec, ValueKind, Values, Workload
from tests import samples


def make_tensor(*shape: int, dtype: DType = DType.FLOAT32, **changes: Any) -> TensorSpec:
    """A tensor argument: normal values where the type is floating, else integers in [0, 8)."""
    if not dtype.is_floating and "values" not in changes:
        changes["values"] = Values(kind=ValueKind.INTEGERS, low=0, high=8)
    return TensorSpec(shape=shape, dtype=dtype, **changes)


def make_problem(
    name: str = "rms_norm",
    *,
    workloads: tuple[Workload, ...] | None = None,
    source: str | None = None,
    **changes: Any,
) -> LoadedProblem:
    """One of the sample problems, with any field of ``Problem`` replaced by ``changes``."""
    recipe: dict[str, Any] = {
        "rms_norm": _rms_norm,
        "router": _router,
        "rotary": _rotary,
    }[name]()
    reference = recipe.pop("source") if source is None else source
    recipe.pop("source", None)
    if workloads is not None:
        recipe["workloads"] = workloads
    fields: dict[str, Any] = {
        "id": name,
        "origin": Origin(repository="example/engine", target=f"engine/ops.py::{name}"),
        "reference_sha256": sha256_text(reference),
        **recipe,
        **changes,
    }
    return LoadedProblem(problem=Problem(**fields), reference_source=reference)


def save_problem(loaded: LoadedProblem, directory: Path) -> Path:
    """Write ``loaded`` as a problem directory and return it."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / PROBLEM_FILE).write_text(loaded.problem.to_yaml(), encoding="utf-8")
    (directory / REFERENCE_FILE).write_text(loaded.reference_source, encoding="utf-8")
    return directory


def make_candidate(
    source: str = samples.RMS_NORM_CPP,
    *,
    backend: BackendName = BackendName.CPP,
    proposer: str = "test",
    **changes: Any,
) -> Candidate:
    """A candidate of ``source``; by default an honest C++ one for ``rms_norm``."""
    return Candidate.create(source, backend=backend, proposer=proposer, **changes)


def make_environment(**changes: Any) -> Environment:
    """A machine like a small continuous integration runner."""
    fields: dict[str, Any] = {
        "machine": "test-machine",
        "device": "cpu",
        "cpu_count": 2,
        "threads": 2,
        "python": "3.11.7",
        "torch": "2.13.0",
        "sandbox": "test",
    }
    return Environment(**{**fields, **changes})


def make_speedup(value: float = 1.5, *, baseline: Baseline = Baseline.EAGER) -> Speedup:
    """A speedup with a half-width of 0.2 % and the verdict that follows from it."""
    verdict = Verdict.FASTER if value > 1.01 else Verdict.SLOWER if value < 0.99 else Verdict.SAME
    return Speedup(
        baseline=baseline,
        value=value,
        low=value * 0.998,
        high=value * 1.002,
        confidence=0.95,
        lower_99=value * 0.9975,
        blocks=40,
        verdict=verdict,
    )


def make_evaluation(
    candidate: Candidate | None = None,
    *,
    problem: Problem | None = None,
    status: Status = Status.OK,
    speedup: float = 1.5,
    candidate_us: float = 100.0,
    **changes: Any,
) -> Evaluation:
    """An evaluation that fits ``status``; timings and speedups only where it is ok."""
    candidate = candidate if candidate is not None else make_candidate()
    problem = problem if problem is not None else make_problem().problem
    fields: dict[str, Any] = {
        "candidate_id": candidate.id,
        "problem_id": problem.id,
        "backend": candidate.backend,
        "status": status,
        "message": f"{status.value} (made for a test)",
        "finished_at": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        "seconds": 1.0,
        "environment": make_environment(),
        "regime": problem.regime,
    }
    if status in (Status.OK, Status.NOT_MEASURED, Status.INCORRECT):
        passed = status is not Status.INCORRECT
        fields["correctness"] = tuple(_correctness(w.name, passed) for w in problem.workloads)
    if status is Status.OK:
        fields["timings"] = tuple(_timing(w.name, speedup, candidate_us) for w in problem.workloads)
        fields["speedups"] = (make_speedup(speedup),)
    return Evaluation(**{**fields, **changes})


def _correctness(workload: str, passed: bool) -> WorkloadCorrectness:
    error = OutputError(
        name="output 0",
        max_abs_error=1e-7 if passed else 1.0,
        max_rel_error=1e-7 if passed else 1.0,
        budget_used=0.2 if passed else 1e6,
        worst_index=(0, 0),
    )
    reason = None if passed else "output 0 differs from the reference"
    return WorkloadCorrectness(
        workload=workload, passed=passed, trials=2, reason=reason, errors=(error,)
    )


def _timing(workload: str, speedup: float, candidate_us: float) -> WorkloadTiming:
    return WorkloadTiming(
        workload=workload,
        clock=Clock.WALL_PINNED,
        candidate_us=candidate_us,
        baselines_us={Baseline.EAGER: candidate_us * speedup},
        speedups=(make_speedup(speedup),),
        calls_per_block=10,
        buffers=3,
    )


def _rms_norm() -> dict[str, Any]:
    def workload(name: str, rows: int, cols: int, **changes: Any) -> Workload:
        return Workload(
            name=name,
            arguments={
                "x": make_tensor(rows, cols),
                "residual": make_tensor(rows, cols),
                "weight": make_tensor(cols, values=Values(mean=1.0, std=0.2)),
                "eps": 1e-6,
            },
            **changes,
        )

    return {
        "source": samples.RMS_NORM_REFERENCE,
        "entry": Entry(function="rms_norm", candidate_function="rms_norm"),
        "arguments": ("x", "residual", "weight", "eps"),
        "contract": Contract(outputs=(Output(), Output()), returns_tuple=True),
        "workloads": (workload("small", 32, 256), workload("odd", 7, 129, held_out=True)),
    }


def _router() -> dict[str, Any]:
    tokens = Workload(
        name="tokens",
        arguments={"logits": make_tensor(64, 32), "bias": make_tensor(32), "top_k": 4},
    )
    return {
        "source": samples.ROUTER_REFERENCE,
        "entry": Entry(function="forward", class_name="Router", candidate_function="route"),
        "arguments": ("logits",),
        "state": ("bias", "top_k"),
        "contract": Contract(
            outputs=(Output(), Output(kind=OutputKind.INDICES, selects=0)), returns_tuple=True
        ),
        "workloads": (tokens,),
    }


def _rotary() -> dict[str, Any]:
    decode = Workload(
        name="decode",
        arguments={
            "query": make_tensor(16, 8, 64),
            "key": make_tensor(16, 2, 64),
            "cos": make_tensor(16, 64),
            "sin": make_tensor(16, 64),
        },
    )
    return {
        "source": samples.ROTARY_REFERENCE,
        "entry": Entry(function="rotary", candidate_function="rotary"),
        "arguments": ("query", "key", "cos", "sin"),
        "contract": Contract(
            outputs=(Output(alias_of="query"), Output(alias_of="key")),
            returns_tuple=True,
            writes=("query", "key"),
        ),
        "workloads": (decode,),
    }
