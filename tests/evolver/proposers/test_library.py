"""The reference's own program as a candidate: what is left when nothing else is correct."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from evaluator.candidate import BackendName, Candidate
from evaluator.evaluation import Status
from evaluator.problem import Entry, LoadedProblem
from evaluator.source_policy import check_source
from evaluator.supervisor import LocalEvaluator
from evolver.budget import Budget
from evolver.proposers.base import Attempt, ProposalContext
from evolver.proposers.library import LibraryProposer, library_program
from evolver.search import Search
from integrations.kernelbench.adapter import load_kernelbench
from integrations.kernelbench.checkout import files
from policies.model import EvaluatorPolicy
from tests.builders import make_candidate, make_evaluation, make_problem
from tests.evolver.toys import Seeds, ToyEvaluator, make_run, toy_candidate
from tests.kernelbench_files import make_checkout

CONVOLUTION = """
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import relu as keep

SCALE = 2.0

class Block(nn.Module):
    def __init__(self, channels):
        super(Block, self).__init__()
        self.conv = nn.Conv2d(channels, 4, 3)

    def forward(self, x):
        return F.gelu(self.conv(x)) * SCALE

class Model(nn.Module):
    def __init__(self, channels):
        super(Model, self).__init__()
        self.block = Block(channels)

    def forward(self, x):
        return keep(self.block(x))

def get_inputs():
    return [torch.rand(2, 3, 8, 8)]

def get_init_inputs():
    return [3]
"""
CONSTRUCTED = Entry(
    function="forward", class_name="Model", candidate_function="ModelNew", constructor=(3,)
)


def context(
    loaded: LoadedProblem | None = None,
    backend: BackendName = BackendName.TRITON,
    exemplars: tuple[Attempt, ...] = (),
) -> ProposalContext:
    return ProposalContext(
        loaded=loaded or make_problem(),
        backend=backend,
        rng=random.Random(0),
        attempt_number=1,
        parent=None,
        exemplars=exemplars,
    )


def refused_by(source: str, preset: str) -> set[str]:
    policy = EvaluatorPolicy.default().with_source_preset(preset).source
    candidate = Candidate.create(source, backend=BackendName.TRITON, proposer="library")
    found = check_source(candidate, entry_function="ModelNew", policy=policy, constructed=True)
    return {v.rule for v in found if v.refuses}


def test_only_what_the_entry_reaches_is_kept_and_only_torch_is_imported() -> None:
    program = library_program(CONVOLUTION, CONSTRUCTED)
    assert program is not None
    imports = [line for line in program.splitlines() if "import" in line]
    assert imports == ["import torch"]
    assert "class Block" in program
    assert "SCALE = 2.0" in program
    assert "torch.nn.functional.gelu" in program
    assert "super(ModelNew, self)" in program
    assert "get_inputs" not in program


def test_a_policy_decides_whether_the_library_may_compute() -> None:
    program = library_program(CONVOLUTION, CONSTRUCTED)
    assert program is not None
    assert refused_by(program, "strict") == set()
    assert refused_by(program, "kernelbench") == set()
    assert "library-compute" in refused_by(program, "keck-triton")


def test_it_is_offered_where_nothing_is_correct_and_a_module_can_be_it() -> None:
    candidate = LibraryProposer().propose(context())
    assert candidate is not None
    assert "def rms_norm" in candidate.source
    known = make_candidate()
    correct = (Attempt(known, make_evaluation(known)),)
    assert LibraryProposer().propose(context(exemplars=correct)) is None
    assert LibraryProposer().propose(context(backend=BackendName.CPP)) is None
    assert LibraryProposer().propose(context(make_problem("router"))) is None


class LastResort:
    """Offers one toy where nothing is correct, as the library does."""

    name = "last resort"
    fallback = True

    def propose(self, context: ProposalContext) -> Candidate | None:
        return None if context.exemplars else toy_candidate(1.0, proposer=self.name)


@pytest.mark.parametrize(("seed", "asked"), [(-1.0, True), (1.5, False)])
@pytest.mark.parametrize("lanes", [1, 3])
def test_a_search_falls_back_on_it_only_when_all_other_seeds_have_failed(
    tmp_path: Path, seed: float, asked: bool, lanes: int
) -> None:
    with make_run(tmp_path / "run") as run:
        evaluator = ToyEvaluator()
        evaluator.lanes = lanes
        Search(
            run,
            evaluator,
            seeders=[Seeds(seed), LastResort()],
            proposers=[],
            budget=Budget(steps=5),
        ).search()
        evaluated = [a.proposer for a in run.attempts()]
    assert evaluated == (["seeds", "last resort"] if asked else ["seeds"])


@pytest.mark.sandbox
@pytest.mark.timeout(120)
def test_it_is_correct_where_the_compiler_leaves_all_to_the_library(tmp_path: Path) -> None:
    root = make_checkout(tmp_path, {(1, "1_Convolution.py"): CONVOLUTION})
    loaded = load_kernelbench(files(root, 1)[1])
    candidate = LibraryProposer().propose(context(loaded))
    assert candidate is not None
    with LocalEvaluator(loaded, BackendName.TRITON) as evaluator:
        evaluation = evaluator.screen(candidate)
    correct = (Status.OK, Status.NOT_MEASURED)  # with a GPU and without one
    assert evaluation.status in correct, evaluation.message
