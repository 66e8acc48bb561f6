"""The whole Triton half: traced and lowered in the sandbox, judged by the evaluator.

Without a GPU the evaluator compiles each program for sm_90 and runs it under the interpreter.
"""

from __future__ import annotations

import random

import pytest

from evaluator.candidate import BackendName, Candidate
from evaluator.evaluation import Status
from evaluator.problem import LoadedProblem
from evaluator.supervisor import CompiledBaseline, LocalEvaluator
from evolver.proposers.base import ProposalContext
from evolver.proposers.compiler import CompilerProposer
from tests.builders import make_problem

pytestmark = [pytest.mark.real, pytest.mark.sandbox]


def all_candidates(loaded: LoadedProblem) -> list[Candidate]:
    proposer = CompilerProposer()
    found: list[Candidate] = []
    context = ProposalContext(loaded, BackendName.TRITON, random.Random(0), 0, None)
    while (candidate := proposer.propose(context)) is not None:
        found.append(candidate)
    return found


@pytest.mark.parametrize("name", ["rms_norm", "router", "rotary"])
def test_every_program_offered_for_a_real_target_compiles_and_is_correct(name: str) -> None:
    loaded = make_problem(name)
    candidates = all_candidates(loaded)
    assert len({c.id for c in candidates}) == len(candidates) >= 3
    with LocalEvaluator(loaded, BackendName.TRITON, compiled=CompiledBaseline.NEVER) as evaluator:
        for candidate in candidates:
            evaluation = evaluator.screen(candidate)
            right = evaluation.status in (Status.OK, Status.NOT_MEASURED)
            assert right, (candidate.description, evaluation.message)


def test_a_reference_that_branches_on_values_gives_nothing_and_says_why() -> None:
    source = (
        "import torch\n\n"
        "def rms_norm(*values):\n"
        "    return values[0] if values[0].sum().item() > 0 else -values[0]\n"
    )
    base = make_problem("rms_norm").problem
    entry = base.entry.model_copy(update={"function": "rms_norm", "class_name": None})
    loaded = make_problem("rms_norm", source=source, entry=entry)
    proposer = CompilerProposer()
    context = ProposalContext(loaded, BackendName.TRITON, random.Random(0), 0, None)
    assert proposer.propose(context) is None
    assert any("cannot be traced" in failure for failure in proposer.failures)
