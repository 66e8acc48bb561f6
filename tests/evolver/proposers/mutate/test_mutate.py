"""What holds of every mutant, whatever the seed."""

from __future__ import annotations

import ast
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluator.candidate import BackendName, Candidate
from evolver.library.entry import Known
from evolver.proposers.base import Attempt, ProposalContext
from evolver.proposers.mutate import MOST_FAVOUR, OPERATORS, MutateProposer, favour_of, mutate
from evolver.proposers.mutate.operators import in_random_order, operators_in
from tests.builders import make_evaluation, make_problem
from tests.evolver.library.builders import make_known
from tests.evolver.proposers.mutate.parents import CPP_PARENTS, TRITON_PARENTS

PARENTS = [(BackendName.TRITON, n, s) for n, s in TRITON_PARENTS.items()] + [
    (BackendName.CPP, n, s) for n, s in CPP_PARENTS.items()
]
parents = st.sampled_from(PARENTS)
seeds = st.integers(min_value=0, max_value=2**32)


def context_for(source: str, backend: BackendName, seed: int) -> ProposalContext:
    parent = Candidate.create(source, backend=backend, proposer="test")
    evaluation = make_evaluation(candidate_id=parent.id, backend=backend)
    return ProposalContext(
        loaded=make_problem(),
        backend=backend,
        rng=random.Random(seed),
        attempt_number=1,
        parent=Attempt(parent, evaluation),
    )


def entry_arguments(source: str, name: str) -> str:
    functions = [f for f in ast.parse(source).body if isinstance(f, ast.FunctionDef)]
    return next(ast.unparse(f.args) for f in functions if f.name == name)


@settings(max_examples=20)
@given(parents, seeds)
def test_a_child_differs_from_its_parent_and_keeps_the_entry(parent, seed) -> None:
    backend, name, source = parent
    child = MutateProposer().propose(context_for(source, backend, seed))
    original = Candidate.create(source, backend=backend, proposer="test")
    assert child is not None
    assert child.id != original.id
    assert child.parents == (original.id,)
    assert (child.proposer, child.backend) == ("mutate", backend)
    assert entry_arguments(child.source, name) == entry_arguments(source, name)
    assert child.description
    assert "\n" not in child.description


@settings(max_examples=6)
@given(parents, seeds)
def test_edits_compose_over_generations(parent, seed) -> None:
    backend, name, source = parent
    rng = random.Random(seed)
    current = source
    for _ in range(4):
        edit = mutate(current, backend, rng)
        assert edit is not None
        current = edit.source
    assert entry_arguments(current, name) == entry_arguments(source, name)


@settings(max_examples=6)
@given(parents, seeds)
def test_the_same_seed_gives_the_same_child(parent, seed) -> None:
    backend, _, source = parent
    first, second = (mutate(source, backend, random.Random(seed)) for _ in range(2))
    assert first == second


@pytest.mark.parametrize(("backend", "name", "source"), PARENTS, ids=lambda v: str(v)[:12])
def test_every_option_changes_the_source_and_parses(backend, name, source) -> None:
    for operator in OPERATORS[backend]:
        for option in operator.options(source):
            child = option.build()
            assert child != source, option.description
            assert entry_arguments(child, name) == entry_arguments(source, name)


def test_without_a_parent_there_is_no_proposal() -> None:
    context = ProposalContext(
        loaded=make_problem(),
        backend=BackendName.CPP,
        rng=random.Random(0),
        attempt_number=1,
        parent=None,
    )
    assert MutateProposer().propose(context) is None


@pytest.mark.parametrize("backend", list(OPERATORS))
def test_a_candidate_without_kernels_gives_no_proposal(backend) -> None:
    source = "import torch\n\n\ndef entry(x):\n    return x + 1\n"
    assert MutateProposer().propose(context_for(source, backend, 0)) is None


def test_a_child_tells_the_operators_that_made_it() -> None:
    names = {operator.name for operator in OPERATORS[BackendName.TRITON]}
    for seed in range(8):
        edit = mutate(PARENTS[0][2], BackendName.TRITON, random.Random(seed))
        assert edit is not None
        made = operators_in(edit.description)
        assert made
        assert set(made) <= names


def test_what_worked_elsewhere_is_tried_more_often_and_the_rest_still_is() -> None:
    def share(*known: Known) -> float:
        """How often the operator comes first."""
        order = [
            in_random_order(OPERATORS[BackendName.TRITON], random.Random(s), favour_of(known))
            for s in range(400)
        ]
        return sum(o[0].name == "num_warps" for o in order) / len(order)

    assert 1.5 * share() < share(make_known(operators=("num_warps",), low=2.0)) < 0.5
    assert favour_of([make_known(operators=("tile",), low=50.0)]) == {"tile": MOST_FAVOUR}
    unlike = make_known(operators=("tile",), low=2.0, similarity=0.1)
    assert 1.0 < favour_of([unlike])["tile"] < 1.3
