"""The 45 operators of Kernel-Smith's MACA evaluation, as problems (``operators.yml``).

The paper gives the classes and their sizes, not the operators. There the reference is a CUDA
implementation that was checked before; here it is torch, which computes in float64 what any
implementation is held to, and eager is the baseline. ``python -m benchmarks.maca45 FOLDER``
writes one problem directory each, for ``ksmith evaluate PROBLEM CANDIDATE --backend maca``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

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

OPERATORS_FILE = Path(__file__).with_name("operators.yml")


def problems() -> dict[str, list[LoadedProblem]]:
    """Return the problems of each class, in the order of the file."""
    document = yaml.safe_load(OPERATORS_FILE.read_text(encoding="utf-8"))
    return {
        name: [
            _problem(name, operator, fields, group["workloads"])
            for operator, fields in group["operators"].items()
        ]
        for name, group in document.items()
    }


def write_problems(folder: Path) -> list[Path]:
    """Write each problem into a directory of its own under ``folder``; return them.

    Raises:
        OSError: they cannot be written.
    """
    written = []
    for loaded in (problem for group in problems().values() for problem in group):
        directory = folder / loaded.problem.id
        directory.mkdir(parents=True, exist_ok=True)
        (directory / PROBLEM_FILE).write_text(loaded.problem.to_yaml(), encoding="utf-8")
        (directory / REFERENCE_FILE).write_text(loaded.reference_source, encoding="utf-8")
        written.append(directory)
    return written


def _problem(
    group: str, operator: str, fields: Mapping[str, Any], sizes: Mapping[str, Mapping[str, Any]]
) -> LoadedProblem:
    arguments = tuple(fields["takes"])
    source = _reference(operator, arguments, fields["returns"])
    problem = Problem(
        id=f"maca45-{group}-{operator}",
        origin=Origin(repository="ksmith", target=f"benchmarks/maca45/operators.yml::{operator}"),
        entry=Entry(function=operator, candidate_function=operator),
        arguments=arguments,
        contract=Contract(
            outputs=(Output(kind=OutputKind(fields.get("kind", "values"))),), returns_tuple=False
        ),
        workloads=tuple(_workload(n, fields["takes"], size) for n, size in sizes.items()),
        reference_sha256=sha256_text(source),
    )
    return LoadedProblem(problem=problem, reference_source=source)


def _reference(operator: str, arguments: tuple[str, ...], returns: str) -> str:
    return f"import torch\n\n\ndef {operator}({', '.join(arguments)}):\n    return {returns}\n"


def _workload(name: str, takes: Mapping[str, Any], size: Mapping[str, Any]) -> Workload:
    return Workload(
        name=name,
        arguments={argument: _tensor(spec, size) for argument, spec in takes.items()},
        held_out=bool(size.get("held_out", False)),
    )


def _tensor(spec: list[str] | Mapping[str, Any], size: Mapping[str, Any]) -> TensorSpec:
    fields: Mapping[str, Any] = spec if isinstance(spec, Mapping) else {"shape": spec}
    if "below" in fields:
        values = Values(kind=ValueKind.INTEGERS, low=0, high=size[fields["below"]])
    elif "low" in fields:
        values = Values(kind=ValueKind.UNIFORM, low=fields["low"], high=fields["high"])
    else:
        values = Values()
    return TensorSpec(
        shape=tuple(size[symbol] for symbol in fields["shape"]),
        dtype=DType(fields.get("dtype", "float32")),
        values=values,
    )
