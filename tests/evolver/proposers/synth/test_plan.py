from __future__ import annotations

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evolver.proposers.synth import ir
from evolver.proposers.synth.extents import Extent
from evolver.proposers.synth.genome import Genes, Genome, Kernel, alternatives, canonical
from evolver.proposers.synth.guesses import first_guesses
from evolver.proposers.synth.interpreter import evaluate, run, sizes_of
from evolver.proposers.synth.plan import LibraryStep, Plan, PlanError, plan, required
from evolver.proposers.synth.variation import cross, mutate
from evolver.proposers.synth.writes import regions

FLOAT, WHOLE = ir.ElementType.FLOAT32, ir.ElementType.INT64


def typed(*extents: int | str) -> ir.TensorType:
    return ir.tensor(FLOAT, *extents)


def router() -> ir.Program:
    """The best of each row, among the experts of the row's best groups."""
    build = ir.Builder([ir.Symbol("n", (1, 4096))])
    x = build.add(ir.Input("logits", typed("n", 256)))
    scores = build.add(ir.Pointwise("sigmoid"), x)
    grouped = build.add(ir.Reshape(typed("n", 8, 32).shape), scores)
    best = build.add(ir.Gather(2), grouped, build.add(ir.TopK(2, 2), grouped))
    groups = build.add(ir.TopK(4, 1), build.add(ir.Reduce("sum", (2,)), best))
    zero, one = (build.add(ir.Constant(v, FLOAT)) for v in (0.0, 1.0))
    empty = build.add(ir.Expand(typed("n", 8).shape), zero)
    ones = build.add(ir.Expand(typed("n", 4).shape), one)
    mask = build.add(ir.Scatter(1), empty, groups, ones)
    mask = build.add(ir.Reshape(typed("n", 8, 1).shape), mask)
    masked = build.add(
        ir.Pointwise("mul"), grouped, build.add(ir.Expand(typed("n", 8, 32).shape), mask)
    )
    ids = build.add(ir.TopK(8, 1), build.add(ir.Reshape(typed("n", 256).shape), masked))
    weights = build.add(ir.Gather(1), scores, ids)
    return build.finish([ir.Returned(node=weights), ir.Returned(node=ids)])


def softmax() -> ir.Program:
    build = ir.Builder([ir.Symbol("n", (64,))])
    x = build.add(ir.Input("x", typed("n", 50000)))
    top = build.add(ir.Reduce("max", (1,)), x)
    wide = typed("n", 50000).shape
    top = build.add(ir.Expand(wide), build.add(ir.Reshape(typed("n", 1).shape), top))
    exp = build.add(ir.Pointwise("exp"), build.add(ir.Pointwise("sub"), x, top))
    total = build.add(ir.Reshape(typed("n", 1).shape), build.add(ir.Reduce("sum", (1,)), exp))
    found = build.add(ir.Pointwise("div"), exp, build.add(ir.Expand(wide), total))
    return build.finish([ir.Returned(node=found)])


def normed_and_shifted() -> ir.Program:
    """Rows are normalised, then each is added to the one before it."""
    build = ir.Builder([ir.Symbol("t", (64, 512))])
    x = build.add(ir.Input("x", typed("t", 1024)))
    total = build.add(ir.Reduce("sum", (1,)), build.add(ir.Pointwise("mul"), x, x))
    scale = build.add(ir.Reshape(typed("t", 1).shape), build.add(ir.Pointwise("rsqrt"), total))
    normed = build.add(ir.Pointwise("mul"), x, build.add(ir.Expand(typed("t", 1024).shape), scale))
    zero = build.add(ir.Constant(0.0, FLOAT))
    shifted = build.add(ir.Pad(0, Extent.of(1), Extent.of(0)), normed, zero)
    shifted = build.add(ir.Slice(0, Extent.of(0), Extent.of("t")), shifted)
    return build.finish([ir.Returned(node=build.add(ir.Pointwise("add"), normed, shifted))])


def linear_and_norm() -> ir.Program:
    build = ir.Builder([ir.Symbol("n", (16,))])
    x, w = build.add(ir.Input("x", typed("n", 64))), build.add(ir.Input("w", typed(64, 64)))
    product = build.add(ir.Matmul(), build.add(ir.Pointwise("tanh"), x), w)
    return build.finish([ir.Returned(node=build.add(ir.Reduce("sum", (1,)), product))])


def in_place(*, shift: int = 0) -> ir.Program:
    """Columns from the second on are doubled where they are, or from where they are shifted."""
    build = ir.Builder([ir.Symbol("n", (16,))])
    x = build.add(ir.Input("x", typed("n", 64)))
    part = build.add(ir.Slice(1, Extent.of(1), Extent.of(32)), x)
    read = build.add(ir.Slice(1, Extent.of(1 + shift), Extent.of(32)), x)
    changed = build.add(ir.Pointwise("add"), part, read)
    whole = build.add(ir.Update(1, Extent.of(1)), x, changed)
    return build.finish([ir.Returned(argument="x")], [("x", whole)])


PROGRAMS = [
    router(),
    softmax(),
    normed_and_shifted(),
    linear_and_norm(),
    in_place(),
    in_place(shift=3),
]


def rows(made: object) -> list[tuple[str, ...]]:
    return [tuple(str(made.axes.extents[a]) for a in k.rows) for k in made.kernels]  # type: ignore[attr-defined]


def test_a_routing_of_experts_is_one_launch_over_tokens() -> None:
    program = router()
    guess = first_guesses(program)[0]
    assert rows(plan(program, guess)) == [("n",)]
    assert guess.kernels[0].block is None
    assert guess.kernels[0].stores == required(program, ())


def test_rows_that_do_not_fit_are_looped_over() -> None:
    guess = first_guesses(softmax())[0]
    assert [k.block is not None for k in guess.kernels] == [True]


def test_what_others_move_is_stored_rather_than_reduced_again_for_each() -> None:
    program = normed_and_shifted()
    assert rows(plan(program, first_guesses(program)[0])) == [("t",), ("t", "1024")]


def test_a_product_lies_between_the_kernels_that_feed_and_read_it() -> None:
    program = linear_and_norm()
    steps = plan(program, first_guesses(program)[0]).steps
    assert [isinstance(step, LibraryStep) for step in steps] == [False, True, False]


def test_a_product_reads_what_was_stored_through_a_view() -> None:
    build = ir.Builder()
    x = build.add(ir.Pointwise("exp"), build.add(ir.Input("x", typed(16, 64))))
    turned = build.add(ir.Permute((1, 0)), x)
    program = build.finish([ir.Returned(node=build.add(ir.Matmul(), x, turned))])
    kernel, library = plan(program, first_guesses(program)[0]).steps
    assert isinstance(library, LibraryStep)
    assert not isinstance(kernel, LibraryStep)
    assert [str(program.nodes[s.node].op) for s in kernel.stores] == ["exp"]


def test_only_the_region_that_changes_is_stored_in_place() -> None:
    program = in_place()
    (parameter, node), *_ = program.writes
    (region,) = regions(program, parameter, node)
    assert str(program.nodes[region.value].type) == "float32[n, 32]"
    assert [(s.axis, str(s.start)) for s in region.spans] == [(1, "1")]
    assert rows(plan(program, first_guesses(program)[0])) == [("n", "32")]


def test_what_is_read_beside_where_it_is_written_stays_in_one_program() -> None:
    program = in_place(shift=3)
    assert rows(plan(program, first_guesses(program)[0])) == [()]


def test_an_argument_is_not_read_after_it_is_overwritten() -> None:
    build = ir.Builder()
    x = build.add(ir.Input("x", typed(16)))
    doubled, root = build.add(ir.Pointwise("add"), x, x), build.add(ir.Pointwise("sqrt"), x)
    program = build.finish([ir.Returned(node=root)], [("x", doubled)])
    (write,) = (n for _, n in program.writes)
    (other,) = {r.node for r in program.returns}
    for joined in (False, True):
        kernels = (Kernel(stores=(write,)), Kernel(stores=(other or 0,), joined=joined))
        with pytest.raises(PlanError, match="read after it is overwritten"):
            plan(program, Genes(kernels=kernels))
    plan(program, Genes(kernels=(Kernel(stores=(other or 0,)), Kernel(stores=(write,)))))


def test_one_launch_does_not_wait_for_itself() -> None:
    program = normed_and_shifted()
    first, second = first_guesses(program)[0].kernels
    with pytest.raises(PlanError, match="another one of its launch"):
        plan(program, Genes(kernels=(first, second.model_copy(update={"joined": True}))))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.nodes[-1].op.name)
def test_first_guesses_are_legal_canonical_and_different(program: ir.Program) -> None:
    for on_gpu in (True, False):
        guesses = first_guesses(program, on_gpu=on_gpu)
        assert guesses
        assert len(set(guesses)) == len(guesses)
        for guess in guesses:
            plan(program, guess)
            assert canonical(program, guess, on_gpu=on_gpu) == guess


def test_a_program_with_nothing_to_do_has_first_guesses_too() -> None:
    build = ir.Builder([ir.Symbol("n", (0, 7))])
    x = build.add(ir.Input("x", typed("n", 16)))
    program = build.finish([ir.Returned(node=build.add(ir.Pointwise("exp"), x))])
    assert first_guesses(program)


@given(st.sampled_from(range(len(PROGRAMS))), st.integers(0, 2**32), st.booleans())
def test_changes_are_legal_new_and_the_same_for_the_same_seed(
    number: int, seed: int, on_gpu: bool
) -> None:
    program = PROGRAMS[number]
    genes = first_guesses(program, on_gpu=on_gpu)[-1]
    rng, again = random.Random(seed), random.Random(seed)
    for _ in range(3):
        change = mutate(program, genes, rng, on_gpu=on_gpu)
        assert change == mutate(program, genes, again, on_gpu=on_gpu)
        if change is None:
            return
        assert change.genes != genes
        assert canonical(program, change.genes, on_gpu=on_gpu) == change.genes
        plan(program, change.genes)
        crossed = cross(program, genes, change.genes, rng, on_gpu=on_gpu)
        assert crossed == cross(program, genes, change.genes, again, on_gpu=on_gpu)
        if crossed is not None:
            plan(program, crossed.genes)
            assert crossed.genes not in (genes, change.genes)
        genes = change.genes


def simulated(
    made: Plan, inputs: dict[str, torch.Tensor]
) -> tuple[list[torch.Tensor], dict[str, torch.Tensor]]:
    """Returned tensors and arguments after the plan's steps ran one by one, writing in place."""
    program, sizes = made.program, sizes_of(made.program, inputs)
    arguments = {name: tensor.clone() for name, tensor in inputs.items()}
    memory: dict[int, torch.Tensor] = {}

    def value(number: int, known: dict[int, torch.Tensor]) -> torch.Tensor:
        if number in known or number in memory:
            return known[number] if number in known else memory[number]
        node = program.nodes[number]
        operands = [value(o, known) for o in node.operands]
        return evaluate(node.op, operands, arguments, sizes)

    for step in made.steps:
        if isinstance(step, LibraryStep):
            memory[step.node] = value(step.node, {})
            continue
        known: dict[int, torch.Tensor] = {}
        for number in step.body:
            assert set(program.nodes[number].operands) <= set(step.loads) | set(known)
            known[number] = value(number, known)
        for store in step.stores:
            if store.parameter is None:
                memory[store.node] = value(store.node, known)
                continue
            for region in store.regions:
                target = arguments[store.parameter]
                for span in region.spans:
                    target = target.narrow(
                        span.axis,
                        span.start.at(sizes),
                        target.shape[span.axis] - span.start.at(sizes),
                    )
                    target = target[(slice(None),) * span.axis + (slice(None, None, span.step),)]
                    target = target.narrow(
                        span.axis, 0, value(region.value, known).shape[span.axis]
                    )
                target.copy_(value(region.value, known))
            memory.setdefault(store.node, arguments[store.parameter].clone())
    returned = [value(r.node, {}) for r in program.returns if r.node is not None]
    return returned, arguments


@settings(max_examples=40)
@given(st.sampled_from([0, 2, 3, 4, 5]), st.integers(0, 2**32))
def test_a_legal_genome_computes_what_its_program_does(number: int, seed: int) -> None:
    program, rng = PROGRAMS[number], random.Random(seed)
    genes = first_guesses(program)[0]
    for _ in range(3):
        change = mutate(program, genes, rng)
        genes = genes if change is None else change.genes
    at = {symbol.name: 3 for symbol in program.symbols}
    inputs = {
        node.op.parameter: torch.rand([e.at(at) for e in node.type.shape])
        for node in program.nodes
        if isinstance(node.op, ir.Input)
    }
    expected = run(program, inputs)
    returned, arguments = simulated(plan(program, genes), inputs)
    torch.testing.assert_close(
        returned,
        [v for v, r in zip(expected.returned, program.returns, strict=True) if r.node is not None],
    )
    torch.testing.assert_close(arguments, {**inputs, **expected.written})


def test_genomes_survive_json() -> None:
    program = router()
    genes = first_guesses(program)[0]
    for seed in range(20):
        change = mutate(program, genes, random.Random(seed))
        assert change is not None
        genome = Genome(programs=(change.genes,))
        text = genome.model_dump_json(exclude_defaults=True)
        assert Genome.model_validate_json(text) == genome


def test_equal_programs_have_one_genome() -> None:
    program = router()
    genes = first_guesses(program)[0]
    top_k = next(n for n, node in enumerate(program.nodes) if isinstance(node.op, ir.TopK))
    spelled = genes.model_copy(update={"algorithms": ((top_k, alternatives(program, top_k)[0]),)})
    staged = [k.model_copy(update={"stages": 3}) for k in genes.kernels]
    assert canonical(program, spelled) == genes
    assert canonical(program, genes.model_copy(update={"kernels": tuple(staged)})) == genes
    assert canonical(program, genes.model_copy(update={"rounded": False})) == genes


def test_only_a_softmax_can_be_summed_online() -> None:
    sums = [
        (n, alternatives(p, n))
        for p in (softmax(), normed_and_shifted())
        for n, node in enumerate(p.nodes)
        if isinstance(node.op, ir.Reduce) and node.op.kind == "sum"
    ]
    assert [options for _, options in sums] == [("tree", "online"), ("tree",)]
