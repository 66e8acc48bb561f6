"""The MACA operators are real problems: references run, repeat themselves and tell inputs apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.maca45 import problems, write_problems
from evaluator.problem import LoadedProblem, OutputKind, load_problem
from evaluator.tensors import plain_arguments
from evaluator.worker.inputs import generate
from evaluator.workload import Workload

ALL = [problem for group in problems().values() for problem in group]
each = pytest.mark.parametrize("loaded", ALL, ids=lambda loaded: loaded.problem.id)


def run(loaded: LoadedProblem, workload: Workload, seed: int) -> torch.Tensor:
    module: dict[str, Any] = {}
    exec(loaded.reference_source, module)
    values = generate(plain_arguments(workload), seed=seed)
    before = {name: value.clone() for name, value in values.items()}
    result = module[loaded.problem.entry.function](*values.values())
    assert all(torch.equal(values[name], value) for name, value in before.items())
    assert isinstance(result, torch.Tensor)
    return result


def checkable(loaded: LoadedProblem) -> list[Workload]:
    """What a CPU computes in no time; the large one has the same shapes otherwise."""
    return [w for w in loaded.problem.workloads if w.total_bytes < 1 << 22]


def test_there_are_as_many_of_each_class_as_in_the_paper() -> None:
    counts = {name: len(group) for name, group in problems().items()}
    assert counts == {"activation": 15, "normalisation": 8, "reduction": 17, "loss": 5}
    assert len({loaded.problem.id for loaded in ALL}) == 45


@each
def test_a_reference_repeats_itself_and_its_output_depends_on_its_input(
    loaded: LoadedProblem,
) -> None:
    workloads = checkable(loaded)
    assert len(workloads) >= 2
    for workload in workloads:
        once, again, other = (run(loaded, workload, seed) for seed in (1, 1, 2))
        assert torch.equal(once, again)
        assert not torch.equal(once, other)
        assert once.isfinite().all()
        exact = loaded.problem.contract.outputs[0].kind is OutputKind.EXACT
        assert once.dtype == (torch.int64 if exact else torch.float32)


@each
def test_workloads_go_from_small_to_large_and_one_is_odd_and_held_out(
    loaded: LoadedProblem,
) -> None:
    small, large, odd = loaded.problem.workloads
    assert small.total_bytes < large.total_bytes < 1 << 30
    assert odd.held_out
    assert any(extent % 2 for spec in odd.tensors.values() for extent in spec.shape)


def test_problems_are_written_as_directories_that_can_be_evaluated(tmp_path: Path) -> None:
    written = write_problems(tmp_path)
    assert [load_problem(folder) for folder in written] == ALL
