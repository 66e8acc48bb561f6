"""Whole candidates: what they look like, what the source policy says, what the evaluator says."""

from __future__ import annotations

import random
import re

import pytest

from evaluator.candidate import BackendName, Candidate
from evaluator.evaluation import Status
from evaluator.source_policy import check_source
from evaluator.supervisor import CompiledBaseline, LocalEvaluator
from evolver.proposers.base import ProposalContext
from evolver.proposers.synth import Lowerings, SynthSeeder, ir
from evolver.proposers.synth.emit import EmitError, Variant, emit, emit_source
from evolver.proposers.synth.emit.reference import Reference
from evolver.proposers.synth.guesses import first_guesses
from evolver.proposers.synth.plan import plan
from policies.model import EvaluatorPolicy
from tests.builders import make_problem
from tests.evolver.proposers.synth.emit.drawn import PARAMETERS, drawn_program, source_of
from tests.evolver.proposers.synth.programs import lowered

BACKENDS = (BackendName.CPP, BackendName.TRITON)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_source_policy_has_nothing_to_say_of_any_program(backend: BackendName) -> None:
    for seed in range(6):
        program = drawn_program(random.Random(seed), columns=24)
        genes = first_guesses(program, on_gpu=backend is BackendName.TRITON)[0]
        try:
            source = source_of(program, genes, backend)
        except EmitError:
            continue
        candidate = Candidate.create(source, backend=backend, proposer="synth")
        policy = EvaluatorPolicy.default().source
        assert check_source(candidate, entry_function="f", policy=policy) == []
        # The number of rows is an argument at run time: no compilation per batch size.
        assert re.search(r"BLOCK_\w+=triton.next_power_of_2\(n\)", source) is None


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_kernel_has_the_references_names_and_points_at_its_lines(backend: BackendName) -> None:
    loaded = make_problem("router")
    (group,) = lowered(loaded)
    assert group.program is not None
    genes = first_guesses(group.program, on_gpu=backend is BackendName.TRITON)[0]
    source = emit(loaded, [(group.graph.group, plan(group.program, genes))], backend)
    assert "Line 6: scores = torch.sigmoid(logits) + self.bias" in source
    assert re.search(r"\bscores\b", source.replace("scores = torch", ""))
    assert "def route(logits, bias, top_k):" in source


def test_what_cannot_be_written_is_refused_with_the_reason() -> None:
    b = ir.Builder()
    x = b.add(ir.Input("x", ir.tensor(ir.ElementType.FLOAT64, 4, 100000)))
    order = b.add(ir.TopK(3, 1), x)
    program = b.finish([ir.Returned(node=order)])
    made = Variant(plan(program, first_guesses(program)[0]))
    reference = Reference("", PARAMETERS, "f")
    with pytest.raises(EmitError, match="does not fit in a program"):
        emit_source([made], reference, BackendName.TRITON)
    with pytest.raises(EmitError, match="writes no maca"):
        emit_source([made], reference, BackendName("maca"))


def test_two_groups_of_workloads_are_told_apart_by_what_differs() -> None:
    b = ir.Builder()
    x = b.add(ir.Input("x", ir.tensor(ir.ElementType.FLOAT32, 4, 8)))
    program = b.finish([ir.Returned(node=b.add(ir.Pointwise("neg"), x))])
    made = Variant(plan(program, first_guesses(program)[0]))
    with pytest.raises(EmitError, match="tell them apart"):
        emit_source([made, made], Reference("", PARAMETERS, "f"), BackendName.CPP)


@pytest.mark.real
@pytest.mark.sandbox
@pytest.mark.parametrize(
    ("name", "backend"), [("router", "cpp"), ("rotary", "cpp"), ("router", "triton")]
)
def test_a_real_target_becomes_one_correct_kernel(name: str, backend: str) -> None:
    loaded = make_problem(name)
    language = BackendName(backend)
    context = ProposalContext(loaded, language, random.Random(0), 0, None)
    candidate = SynthSeeder(Lowerings()).propose(context)
    assert candidate is not None
    assert len(re.findall(r"native\.\w+\(|_kernel\w*\[\(", candidate.source)) == 1
    with LocalEvaluator(loaded, language, compiled=CompiledBaseline.NEVER) as evaluator:
        evaluation = evaluator.screen(candidate)
    assert evaluation.status in (Status.OK, Status.NOT_MEASURED, Status.MACHINE_UNFIT), (
        evaluation.message
    )
    assert all(w.passed for w in evaluation.correctness)


def test_what_is_written_in_place_comes_back_whatever_its_strides() -> None:
    loaded = make_problem("rotary")
    (group,) = lowered(loaded)
    assert group.program is not None
    genes = first_guesses(group.program, on_gpu=False)[0]
    source = emit(loaded, [(group.graph.group, plan(group.program, genes))], BackendName.CPP)
    assert "query.copy_(query_rows)" in source
