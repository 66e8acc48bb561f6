from __future__ import annotations

import random

import pytest

from evaluator.candidate import BackendName, Candidate
from evaluator.problem import LoadedProblem
from evolver.proposers.base import Attempt, ProposalContext
from evolver.proposers.mutate import MutateProposer
from evolver.proposers.synth import Lowerings, SynthProposer, SynthSeeder, genome_of
from tests.builders import make_evaluation, make_problem

pytestmark = [pytest.mark.real, pytest.mark.sandbox]


def context(loaded: LoadedProblem, seed: int = 0, *parents: Candidate) -> ProposalContext:
    attempts = [Attempt(p, make_evaluation(p)) for p in parents]
    return ProposalContext(
        loaded=loaded,
        backend=BackendName.CPP,
        rng=random.Random(seed),
        attempt_number=seed,
        parent=attempts[0] if attempts else None,
        exemplars=attempts,
    )


@pytest.fixture(scope="module")
def lowerings() -> Lowerings:
    return Lowerings()


@pytest.mark.parametrize("name", ["rms_norm", "router", "rotary"])
def test_genomes_are_seeded_changed_and_found_again(name: str, lowerings: Lowerings) -> None:
    loaded = make_problem(name)
    seeder, proposer = SynthSeeder(lowerings), SynthProposer(lowerings)
    seed = seeder.propose(context(loaded))
    assert seed is not None
    genome = genome_of(seed)
    assert genome is not None
    known = {seed.id}
    for number in range(6):
        child = proposer.propose(context(loaded, number, seed))
        assert child == proposer.propose(context(loaded, number, seed))
        if child is not None:
            assert genome_of(child) not in (None, genome)
            assert child.parents == (seed.id,)
            known.add(child.id)
    assert len(known) > 1


def test_the_edit_of_another_proposer_has_no_genome(lowerings: Lowerings) -> None:
    loaded = make_problem("router")
    seed = SynthSeeder(lowerings).propose(context(loaded))
    assert seed is not None
    edited = MutateProposer().propose(context(loaded, 1, seed))
    assert edited is not None
    assert genome_of(edited) is None
    orphan = SynthProposer(lowerings).propose(context(loaded, 1, edited))
    assert orphan is None or orphan.parents == ()


def test_what_cannot_be_lowered_is_nobodys_proposal_and_leaves_a_reason() -> None:
    source = "import torch\n\n\ndef rms_norm(x, residual, weight, eps):\n    return x[x > 0]\n"
    loaded = make_problem("rms_norm", source=source)
    lowerings = Lowerings()
    assert SynthSeeder(lowerings).propose(context(loaded)) is None
    assert SynthProposer(lowerings).propose(context(loaded)) is None
    assert ["line 5" in failure for failure in lowerings.failures] == [True]
