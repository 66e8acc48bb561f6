"""The kernels that both evaluators judge."""

from __future__ import annotations

import ast

import pytest
import torch

from benchmarks.throughput.problems import OPERATORS, Operator
from evaluator.candidate import BackendName
from evaluator.evaluation import Status
from evaluator.supervisor import CompiledBaseline, LocalEvaluator

every_operator = pytest.mark.parametrize("operator", OPERATORS, ids=lambda o: o.name)


@every_operator
def test_every_candidate_is_another_program(operator: Operator) -> None:
    assert len({c.id for c in operator.candidates(60)}) == 60


@every_operator
def test_kernelbench_gets_the_same_kernel_and_reference(operator: Operator) -> None:
    (text,) = operator.kernels(1)
    as_theirs = operator.as_kernelbench(text)
    ast.parse(as_theirs)
    assert text in as_theirs
    names: dict[str, object] = {}
    exec(operator.as_kernelbench(), names)
    inputs = names["get_inputs"]()  # type: ignore[operator]
    output = names["Model"]()(*inputs)  # type: ignore[operator]
    assert output.shape == inputs[0].shape
    assert torch.isfinite(output).all()


@pytest.mark.sandbox
@every_operator
def test_a_candidate_passes_our_own_checks(operator: Operator) -> None:
    with LocalEvaluator(
        operator.problem(), BackendName.TRITON, compiled=CompiledBaseline.NEVER
    ) as evaluator:
        evaluation = evaluator.screen(operator.candidates(3)[2])
    assert evaluation.status in (Status.OK, Status.NOT_MEASURED), evaluation.message
