"""What is searched: six problems of our own, KernelBench's, and production cases.

Ours are reductions and element-wise chains that fuse, since proposers that need no model can
do something about those; each comes in a size for the device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.first_path import TARGETS, Target, extracted
from benchmarks.kernelbench import Plan as KernelBenchPlan
from benchmarks.kernelbench import choose
from evaluator.problem import (
    Contract,
    Entry,
    LoadedProblem,
    Origin,
    Output,
    Problem,
    load_problem,
    sha256_text,
)
from evaluator.workload import ArgumentValue, TensorSpec, Workload
from integrations.kernelbench.adapter import load_kernelbench
from integrations.kernelbench.checkout import commit_of

_REFERENCES = Path(__file__).with_name("references")
_PLACE = "benchmarks/search/references"


@dataclass(frozen=True)
class Subject:
    """A problem by its id, made when it is needed."""

    id: str
    load: Callable[[], LoadedProblem]


@dataclass(frozen=True)
class _Recipe:
    arguments: Callable[[int], Mapping[str, ArgumentValue]]
    """From the number of rows."""
    cpu_rows: int
    gpu_rows: int
    outputs: int = 1


def _tensor(*shape: int) -> TensorSpec:
    return TensorSpec(shape=shape)


_OWN: Mapping[str, _Recipe] = {
    "layer_norm_gelu": _Recipe(
        lambda n: {"x": _tensor(n, 1024), "weight": _tensor(1024), "bias": _tensor(1024)},
        cpu_rows=128,
        gpu_rows=8192,
    ),
    "residual_rms_norm": _Recipe(
        lambda n: {"x": _tensor(n, 4096), "residual": _tensor(n, 4096), "weight": _tensor(4096)},
        cpu_rows=32,
        gpu_rows=2048,
        outputs=2,
    ),
    "masked_softmax": _Recipe(
        lambda n: {"scores": _tensor(n, 1024), "mask": _tensor(n, 1024), "scale": 0.125},
        cpu_rows=128,
        gpu_rows=8192,
    ),
    "smooth_cross_entropy": _Recipe(
        lambda n: {"logits": _tensor(n, 4096), "targets": _tensor(n, 4096)},
        cpu_rows=32,
        gpu_rows=2048,
    ),
    "swiglu": _Recipe(lambda n: {"x": _tensor(n, 4096)}, cpu_rows=32, gpu_rows=4096),
    "group_norm_swish": _Recipe(
        lambda n: {"x": _tensor(n, 32, 16, 16), "weight": _tensor(32), "bias": _tensor(32)},
        cpu_rows=8,
        gpu_rows=1024,
    ),
}
OWN_NAMES = tuple(_OWN)


def own_subjects(names: Sequence[str], *, gpu: bool) -> list[Subject]:
    """Our problems ``names``, in the size for the device."""
    return [Subject(name, partial(own_problem, name, gpu=gpu)) for name in names]


def own_problem(name: str, *, gpu: bool) -> LoadedProblem:
    """One of our problems."""
    recipe = _OWN[name]
    arguments = recipe.arguments(recipe.gpu_rows if gpu else recipe.cpu_rows)
    source = (_REFERENCES / f"{name}.py").read_text(encoding="utf-8")
    problem = Problem(
        id=name,
        origin=Origin(
            repository="ksmith", target=f"benchmarks/search/references/{name}.py::{name}"
        ),
        entry=Entry(function=name, candidate_function=name),
        arguments=tuple(arguments),
        contract=Contract(outputs=(Output(),) * recipe.outputs, returns_tuple=recipe.outputs > 1),
        workloads=(Workload(name="whole", arguments=dict(arguments)),),
        reference_sha256=sha256_text(source),
    )
    return LoadedProblem(problem=problem, reference_source=source)


def kernelbench_subjects(root: Path, *, sample: int, gpu: bool) -> Iterator[Subject]:
    """The first ``sample`` of each level of a checkout, in the order that is fixed there.

    Raises:
        CheckoutMissing: ``root`` is no checkout.
    """
    commit, device = commit_of(root), "cuda" if gpu else "cpu"
    for file in choose(root, KernelBenchPlan(sample=sample)):
        yield Subject(file.id, partial(load_kernelbench, file, device=device, commit=commit))


def production_subjects(
    repositories: Path, work: Path, *, say: Callable[[str], None]
) -> list[Subject]:
    """Functions of published engines, extracted into ``work`` when they are needed."""

    def load(target: Target) -> LoadedProblem:
        return load_problem(extracted(target, repositories, work / target.name, say))

    return [Subject(target.name, partial(load, target)) for target in TARGETS]
