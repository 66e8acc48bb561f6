"""The kernels that are measured: problems whose reference is a Triton kernel itself.

A candidate is the same text under other names, so that the true speedup is 1; or, for the
planted ones, the same text without the reference's ``extra`` iterations, so that it is known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from evaluator.candidate import BackendName, Candidate
from evaluator.problem import (
    Contract,
    Entry,
    LoadedProblem,
    Origin,
    Output,
    Problem,
    sha256_text,
)
from evaluator.workload import ArgumentValue, DType, TensorSpec, Workload

_KERNELS = Path(__file__).with_name("kernels")
_SPUN_ELEMENTS = 1 << 19
_FEW_ELEMENTS = 1 << 14
HIDDEN = 4096


def self_problems() -> tuple[LoadedProblem, ...]:
    """Nine kernels in three problems, from about 2 us to about 5 ms on an H200."""
    weight = TensorSpec(shape=(HIDDEN,), dtype=DType.BFLOAT16)
    rows = {"1": 1, "128": 128, "1024": 1024}
    norms = [
        _workload(n, x=TensorSpec(shape=(r, HIDDEN), dtype=DType.BFLOAT16), weight=weight)
        for n, r in rows.items()
    ]
    softmaxes = [_workload(str(r), x=TensorSpec(shape=(r, 2048))) for r in (64, 512, 2048)]
    spins = [spin_workload(str(n), _SPUN_ELEMENTS, n, 0) for n in (3_200, 32_000, 320_000)]
    return (
        _problem("rms_norm", ("x", "weight"), norms),
        _problem("softmax", ("x",), softmaxes),
        _problem("spin", ("x", "iterations", "extra"), spins),
    )


PLANTED_ITERATIONS: Mapping[str, tuple[int, int]] = {
    "2_to_5_us": (_FEW_ELEMENTS, 600),
    "5_to_50_us": (_FEW_ELEMENTS, 8_000),
    "over_50_us": (_SPUN_ELEMENTS, 8_000),
}
"""Per class of duration: elements and iterations, chosen on an H200."""


def spin_problem(workloads: Sequence[Workload]) -> LoadedProblem:
    """The problem of spinning, with these workloads."""
    return _problem("spin", ("x", "iterations", "extra"), workloads)


def spin_workload(name: str, elements: int, iterations: int, extra: int) -> Workload:
    """Spin ``iterations + extra`` times over ``elements`` floats."""
    return _workload(name, x=TensorSpec(shape=(elements,)), iterations=iterations, extra=extra)


def copies(
    loaded: LoadedProblem, count: int, *, first: int = 0, lean: bool = False
) -> list[Candidate]:
    """The reference under ``count`` other names.

    Args:
        loaded: one of these problems.
        count: how many.
        first: the number of the first copy.
        lean: leave out the work that is planted in the reference.
    """
    name = loaded.problem.id
    source = loaded.reference_source
    if lean:
        source = source.replace("iterations + extra", "iterations")
    return [
        Candidate.create(
            # Names do not make a program another; a constant that nobody reads does.
            source.replace(f"_{name}", f"_{name}_{number}") + f"\nCOPY = {number}\n",
            backend=BackendName.TRITON,
            proposer="copy",
        )
        for number in range(first, first + count)
    ]


def _problem(name: str, arguments: tuple[str, ...], workloads: Sequence[Workload]) -> LoadedProblem:
    source = (_KERNELS / f"{name}.py").read_text(encoding="utf-8")
    problem = Problem(
        id=name,
        origin=Origin(repository="ksmith", target=f"benchmarks/noise/kernels/{name}.py::{name}"),
        entry=Entry(function=name, candidate_function=name),
        arguments=arguments,
        contract=Contract(outputs=(Output(),), returns_tuple=False),
        workloads=tuple(workloads),
        reference_sha256=sha256_text(source),
    )
    return LoadedProblem(problem=problem, reference_source=source)


def _workload(name: str, **arguments: ArgumentValue) -> Workload:
    return Workload(name=name, arguments=arguments)
