"""Programs for problems whose entry is a class."""

from __future__ import annotations

import torch

from evaluator.candidate import BackendName, Candidate
from evaluator.problem import Entry
from evaluator.source_policy import check_source
from evaluator.workload import Workload
from evolver.proposers.compiler.constructed import as_candidate, emitted_function
from evolver.proposers.compiler.emitter.reference import flat_function
from evolver.proposers.compiler.emitter.workloads import request_from_json
from evolver.proposers.compiler.process import request_of
from policies.model import EvaluatorPolicy
from tests.builders import make_problem, make_tensor

REFERENCE = """
import torch


class Model(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inner = torch.nn.Linear(width, 2)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls.add_(1)
        return self.inner(x)
"""
LOADED = make_problem(
    source=REFERENCE,
    entry=Entry(
        function="forward", class_name="Model", candidate_function="ModelNew", constructor=(3,)
    ),
    arguments=("x",),
    state=("inner__weight", "inner__bias", "calls"),
    workloads=(
        Workload(
            name="one",
            arguments={
                "x": make_tensor(4, 3),
                "inner__weight": make_tensor(2, 3),
                "inner__bias": make_tensor(2),
                "calls": make_tensor(),
            },
        ),
    ),
)
EMITTED = """
import torch


def call_kernels(x, inner__weight, inner__bias, calls):
    return x
"""


def test_a_module_is_called_with_the_states_tensors_and_writes_into_them() -> None:
    request = request_from_json(request_of(LOADED, BackendName.CPP))
    x, weight, bias, calls = torch.rand(4, 3), torch.rand(2, 3), torch.rand(2), torch.zeros(())
    found = flat_function(request)(x, weight, bias, calls)
    assert torch.allclose(found, x @ weight.T + bias)
    assert calls == 1


def test_the_emitted_function_stands_behind_a_class_that_the_source_policy_takes() -> None:
    assert request_of(LOADED, BackendName.CPP)["candidate_function"] == "call_kernels"
    source = as_candidate(EMITTED, LOADED.problem)
    candidate = Candidate.create(source, backend=BackendName.CPP, proposer="compiler")
    policy = EvaluatorPolicy.default().source
    assert check_source(candidate, entry_function="ModelNew", policy=policy, constructed=True) == []
    made: dict[str, object] = {}
    exec(source, made)
    model = made["ModelNew"](3)  # type: ignore[operator]
    shapes = [tuple(t.shape) for t in model.state_dict().values()]
    assert shapes == [(2, 3), (2,), ()]


def test_a_function_needs_no_class() -> None:
    plain = make_problem().problem
    assert emitted_function(plain) == plain.entry.candidate_function
    assert as_candidate(EMITTED, plain) == EMITTED
