"""Random row programs over rows of two matrices, with genes, for the emitters' tests."""

from __future__ import annotations

import random
from collections.abc import Callable

import torch

from evaluator.candidate import BackendName
from evolver.proposers.synth import ir
from evolver.proposers.synth.emit import Variant, emit_source
from evolver.proposers.synth.emit.reference import Reference
from evolver.proposers.synth.genome import Genes
from evolver.proposers.synth.guesses import first_guesses
from evolver.proposers.synth.interpreter import run
from evolver.proposers.synth.plan import plan
from evolver.proposers.synth.variation import mutate

FLOAT = ir.ElementType.FLOAT32
PARAMETERS = ("x", "y", "v", "i")
STEPS = 7


def drawn_program(rng: random.Random, *, columns: int) -> ir.Program:
    """A program of a few operations, whose number of rows varies."""
    b = ir.Builder([ir.Symbol("n", (5, 3))])
    x = b.add(ir.Input("x", ir.tensor(FLOAT, "n", columns)))
    y = b.add(ir.Input("y", ir.tensor(FLOAT, "n", columns)))
    v = b.add(ir.Input("v", ir.tensor(FLOAT, columns)))
    i = b.add(ir.Input("i", ir.tensor(ir.ElementType.INT64, "n", 3)))
    shape = b.type(x).shape
    values = [x, y, b.add(ir.Expand(shape), v)]
    for _ in range(STEPS):
        values.append(rng.choice(_OPERATIONS)(b, rng, values, i))
    values.append(b.add(ir.Pointwise("add"), values[-1], x))
    others = [b.add(ir.Reduce("sum", (1,)), values[-1]), values[-2]]
    returns = [ir.Returned(node=n) for n in dict.fromkeys([values[-1], *others])]
    writes = [("y", values[-1])] if rng.random() < 0.3 else []
    return b.finish(returns, writes)


def _pointwise(b: ir.Builder, rng: random.Random, values: list[int], i: int) -> int:
    del i
    if rng.random() < 0.4:
        return b.add(ir.Pointwise(rng.choice(("sigmoid", "neg", "abs", "tanh"))), values[-1])
    function = rng.choice(("add", "sub", "mul", "maximum", "minimum"))
    return b.add(ir.Pointwise(function), values[-1], rng.choice(values))


def _rounded(b: ir.Builder, rng: random.Random, values: list[int], i: int) -> int:
    del i, rng
    return b.add(ir.Cast(FLOAT), b.add(ir.Cast(ir.ElementType.BFLOAT16), values[-1]))


def _centred(b: ir.Builder, rng: random.Random, values: list[int], i: int) -> int:
    del i
    kind = rng.choice(("max", "sum", "min"))
    n, columns = b.type(values[-1]).shape
    found = b.add(ir.Reduce(kind, (1,)), values[-1])
    column = b.add(ir.Reshape((n, ir.Extent.of(1))), found)
    return b.add(ir.Pointwise("sub"), values[-1], b.add(ir.Expand((n, columns)), column))


def _rotated(b: ir.Builder, rng: random.Random, values: list[int], i: int) -> int:
    del i
    columns = b.type(values[-1]).shape[1].constant or 0
    cut = rng.randrange(1, columns)
    low = b.add(ir.Slice(1, ir.Extent(), ir.Extent.of(cut)), values[-1])
    high = b.add(ir.Slice(1, ir.Extent.of(cut), ir.Extent.of(columns - cut)), values[-1])
    return b.add(ir.Concat(1), high, low)


def _running(b: ir.Builder, rng: random.Random, values: list[int], i: int) -> int:
    del i, rng
    return b.add(ir.Scan("sum", 1), values[-1])


def _best(b: ir.Builder, rng: random.Random, values: list[int], i: int) -> int:
    """The best few of each row, put back where they stood, or at random places."""
    k = rng.randrange(1, 4)
    order = b.add(ir.TopK(k, 1, largest=rng.random() < 0.7), values[-1])
    best = b.add(ir.Gather(1), values[-1], order)
    if k == 3 and rng.random() < 0.5:
        return b.add(ir.Scatter(1, "sum"), values[0], i, best)
    return b.add(ir.Scatter(1), values[1], order, best)


def _sorted(b: ir.Builder, rng: random.Random, values: list[int], i: int) -> int:
    del i
    order = b.add(ir.ArgSort(1, descending=rng.random() < 0.5), values[-1])
    return b.add(ir.Gather(1), values[-1], order)


def _folded(b: ir.Builder, rng: random.Random, values: list[int], i: int) -> int:
    """Half of the row twice over, through a reshape."""
    del i, rng
    n, columns = b.type(values[-1]).shape
    halves = b.add(ir.Reshape((n, ir.Extent.of(2), _half(columns))), values[-1])
    best = b.add(ir.Reduce("max", (1,)), halves)
    return b.add(ir.Concat(1), best, best)


def _half(extent: ir.Extent) -> ir.Extent:
    half = extent.divided_by(ir.Extent.of(2))
    assert half is not None
    return half


_OPERATIONS: tuple[Callable[[ir.Builder, random.Random, list[int], int], int], ...] = (
    *(_pointwise, _pointwise, _rounded, _centred, _rotated, _running, _best, _sorted, _folded),
)


def drawn_genes(program: ir.Program, rng: random.Random, *, on_gpu: bool) -> Genes:
    """A first guess, changed a few times."""
    genes = rng.choice(first_guesses(program, on_gpu=on_gpu))
    for _ in range(rng.randrange(4)):
        change = mutate(program, genes, rng, on_gpu=on_gpu)
        genes = change.genes if change is not None and change.genes.rounded else genes
    return genes


def source_of(program: ir.Program, genes: Genes, backend: BackendName) -> str:
    """What an emitter makes of a program."""
    return emit_source([Variant(plan(program, genes))], Reference("", PARAMETERS, "f"), backend)


def drawn_inputs(columns: int, seed: int, rows: int = 5) -> dict[str, torch.Tensor]:
    """Values without ties, some of them in tensors with gaps between rows."""
    g = torch.Generator().manual_seed(seed)
    return {
        "x": torch.randn(rows, columns, generator=g),
        "y": torch.randn(rows, columns + 3, generator=g)[:, 1:-2],
        "v": torch.randn(columns, generator=g),
        "i": torch.stack([torch.randperm(columns, generator=g)[:3] for _ in range(rows)]),
    }


def check(
    program: ir.Program, inputs: dict[str, torch.Tensor], given: tuple[torch.Tensor, ...], text: str
) -> None:
    """Compare what ``f`` returned, and what it left in ``inputs``, with the interpreter."""
    original = drawn_inputs(inputs["x"].shape[1], SEED, inputs["x"].shape[0])
    wanted = run(program, original)
    for got, expected in zip(given, wanted.returned, strict=True):
        torch.testing.assert_close(
            got, expected, rtol=1e-4, atol=1e-5, msg=lambda m: f"{m}\n{text}"
        )
    after = {**original, **wanted.written}
    for name, tensor in inputs.items():
        torch.testing.assert_close(tensor, after[name], rtol=1e-4, atol=1e-5)


SEED = 7
