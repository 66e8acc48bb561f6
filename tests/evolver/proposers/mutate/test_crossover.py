"""Crossover: what a child takes from its second parent, and which parents do not fit."""

from __future__ import annotations

import random

from evaluator.candidate import BackendName, Candidate
from evolver.proposers.base import Attempt, ProposalContext
from evolver.proposers.mutate import MutateProposer
from evolver.proposers.mutate.cpp_openmp import schedule_options
from evolver.proposers.mutate.crossover import cpp_crossover, triton_crossover
from evolver.proposers.mutate.triton_grid import grid_options
from tests.builders import make_evaluation, make_problem
from tests.evolver.proposers.mutate.parents import (
    EMITTED_CPP,
    GATED_TRITON,
    SCALE_CPP,
    SILU_TRITON,
)


def edited(options, part: str) -> str:
    return next(o for o in options if part in o.description).build()


def attempt(source: str, backend: BackendName = BackendName.TRITON) -> Attempt:
    candidate = Candidate.create(source, backend=backend, proposer="test")
    return Attempt(candidate, make_evaluation(candidate_id=candidate.id, backend=backend))


PERSISTENT = edited(grid_options(GATED_TRITON), "132 programs in scale_kernel")
OTHER = edited(grid_options(GATED_TRITON), "4 tiles per program in silu_kernel")


def test_a_kernel_moves_together_with_its_grid_and_its_arguments() -> None:
    child = edited(triton_crossover(OTHER, PERSISTENT), "scale_kernel and its launch")
    assert "scale_kernel[(min(triton.cdiv(n, 128), 132),)]" in child
    assert "silu_kernel[((triton.cdiv(n, 128) + 3) // 4,)]" in child
    assert child not in (OTHER, PERSISTENT, GATED_TRITON)


def test_what_would_be_one_of_the_parents_is_not_offered() -> None:
    assert triton_crossover(GATED_TRITON, PERSISTENT) == []
    assert triton_crossover(GATED_TRITON, GATED_TRITON) == []


def test_warps_and_stages_move_alone() -> None:
    mate = PERSISTENT.replace("num_warps=8", "num_warps=2")
    child = edited(triton_crossover(GATED_TRITON, mate), "warps and stages of scale_kernel")
    assert child == GATED_TRITON.replace("num_warps=8", "num_warps=2")


def test_parents_with_other_wrappers_are_not_crossed() -> None:
    mate = PERSISTENT.replace("(middle, gate, out, n,", "(gate, middle, out, n,")
    assert triton_crossover(OTHER, mate) == []
    assert triton_crossover(OTHER, SILU_TRITON) == []


def test_a_cpp_function_moves_with_the_headers_that_it_needs() -> None:
    options = schedule_options(EMITTED_CPP["route"])
    ours, theirs = edited(options, "add_sigmoid"), edited(options, "div_sum")
    theirs = theirs.replace("#include <cmath>", "#include <cmath>\n#include <numeric>", 1)
    child = edited(cpp_crossover(ours, theirs), "div_sum of another parent")
    assert child.count("schedule(") == 2
    assert child.count("#include <numeric>") == 1
    assert cpp_crossover(ours, SCALE_CPP) == []


def test_the_proposer_names_both_parents_and_repeats_itself_for_a_seed() -> None:
    def propose(seed: int) -> Candidate | None:
        return MutateProposer().propose(
            ProposalContext(
                loaded=make_problem(),
                backend=BackendName.TRITON,
                rng=random.Random(seed),
                attempt_number=1,
                parent=attempt(OTHER),
                exemplars=(attempt(PERSISTENT), attempt(OTHER)),
            )
        )

    children = [propose(seed) for seed in range(24)]
    crossed = [c for c in children if c is not None and len(c.parents) == 2]
    assert crossed
    assert {c.parents for c in crossed} == {
        (attempt(OTHER).candidate.id, attempt(PERSISTENT).candidate.id)
    }
    assert propose(3) == propose(3)
