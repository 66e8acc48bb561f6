from __future__ import annotations

import pytest

from evaluator.candidate import BackendName
from evaluator.correctness.intake import ReferenceFacts, inspect_reference
from evaluator.errors import ReferenceFailed
from evaluator.problem import Contract, Entry, LoadedProblem, Output, OutputKind
from evaluator.supervisor import LocalEvaluator
from evaluator.workload import Workload
from tests.builders import make_problem, make_tensor

pytestmark = pytest.mark.sandbox


def inspect(loaded: LoadedProblem, source: str | None = None) -> ReferenceFacts:
    problem = loaded.problem
    return inspect_reference(
        source or loaded.reference_source,
        problem.entry,
        problem.arguments,
        problem.state,
        problem.workloads,
    )


@pytest.mark.parametrize("name", ["rms_norm", "router", "rotary"])
def test_running_finds_the_contract_that_the_problem_states(name: str) -> None:
    loaded = make_problem(name)
    facts = inspect(loaded)
    stated = loaded.problem.contract
    assert facts.deterministic
    assert facts.writes == stated.writes
    assert facts.returns_tuple == stated.returns_tuple
    assert [o.alias_of for o in facts.outputs] == [o.alias_of for o in stated.outputs]
    kinds = [o.kind for o in facts.contract().outputs]
    wanted = [k.kind for k in stated.outputs]
    assert kinds == [OutputKind.EXACT if k is OutputKind.INDICES else k for k in wanted]


def test_random_numbers_are_seen() -> None:
    loaded = make_problem()
    noisy = loaded.reference_source.replace("x = x + residual", "x = x + torch.rand_like(x)")
    assert not inspect(loaded, noisy).deterministic


def test_a_workload_that_the_reference_cannot_run_is_named_with_its_cause() -> None:
    loaded = make_problem()
    broken = loaded.reference_source.replace("x = x + residual", "x = x + residual[:, :3]")
    with pytest.raises(ReferenceFailed, match=r"'small': RuntimeError: .*line 5"):
        inspect(loaded, broken)


def test_a_reference_that_returns_no_tensors_is_refused() -> None:
    loaded = make_problem()
    broken = loaded.reference_source.replace("return x * weight, residual", "return {'x': x}")
    with pytest.raises(ReferenceFailed, match=r"builtins\.dict"):
        inspect(loaded, broken)


def test_a_reference_that_cannot_be_imported_is_refused() -> None:
    with pytest.raises(ReferenceFailed, match="cannot be imported"):
        inspect(make_problem(), "import does_not_exist")


def test_a_missing_entry_is_refused() -> None:
    loaded = make_problem()
    problem = loaded.problem
    with pytest.raises(ReferenceFailed, match="'absent'"):
        inspect_reference(
            loaded.reference_source,
            Entry(function="absent", candidate_function="absent"),
            problem.arguments,
            problem.state,
            problem.workloads,
        )


def writer(body: str) -> LoadedProblem:
    """A function ``fill(out, x)`` that returns None, with the contract that it should have."""
    return make_problem(
        source=f"import torch\ndef fill(out, x):\n    {body}\n",
        entry=Entry(function="fill", candidate_function="fill"),
        arguments=("out", "x"),
        contract=Contract(
            outputs=(Output(alias_of="out"),),
            returns_tuple=False,
            returns_none=True,
            writes=("out",),
        ),
        workloads=(
            Workload(name="w", arguments={"out": make_tensor(4, 8), "x": make_tensor(4, 8)}),
        ),
    )


def test_a_function_that_returns_none_has_its_written_arguments_for_outputs() -> None:
    loaded = writer("out[:2] = x[:2] * 2")
    assert inspect(loaded).contract() == loaded.problem.contract


def test_a_function_that_returns_none_and_writes_nothing_is_refused_with_the_reason() -> None:
    with pytest.raises(ReferenceFailed, match="leaves every argument as it was"):
        inspect(writer("x + out"))


@pytest.mark.parametrize("body", ["out.mul_(1 + 1e-9)", "out[:0] = x[:0]"])
def test_a_problem_that_a_candidate_solves_by_doing_nothing_is_refused(body: str) -> None:
    with pytest.raises(ReferenceFailed, match="does nothing would pass"):
        LocalEvaluator(writer(body), BackendName.CPP).__enter__()
