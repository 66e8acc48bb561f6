"""Genomes: which kernels a row program becomes, which algorithms they use, how they start.

A genome is a small frozen value, and text in JSON. The program's text is a pure function of
program and genome. A kernel is named by what it stores: everything that it needs and that no
earlier kernel stored is computed within, so that storing a value or computing it again is one
choice, made in one place. ``canonical`` gives equal programs equal genomes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from pydantic import Field, NonNegativeInt, PositiveInt

from evaluator.records import Record
from evolver.proposers.synth import ir

Algorithm = Literal[
    "argmax",
    "packed",
    "bitonic",
    "radix",
    "rank",
    "tree",
    "online",
    "serial",
    "block",
    "compare",
    "memory",
    "library",
    "tiled",
    "rows",
]
"""``argmax``: the best is found, masked and found again. ``packed``: the same on keys that hold
value and position. ``bitonic``: keys are sorted in registers. ``radix``: a threshold is found
digit by digit, so that rows need not fit. ``rank``: each element counts those before it.
``tree``: one reduction per value. ``online``: maximum and sum of exponentials in one pass.
``serial``, ``block``: a scan element by element, or of a block at once. ``compare``: each place
asks every index. ``memory``: through stores. ``library``, ``tiled``, ``rows``: a product by the
library, in tiles, or as sums over rows."""

ALGORITHMS: Mapping[type[ir.Op], tuple[Algorithm, ...]] = {
    ir.TopK: ("packed", "bitonic", "argmax", "radix"),
    ir.ArgSort: ("bitonic", "rank"),
    ir.Reduce: ("tree", "online"),
    ir.Scan: ("block", "serial"),
    ir.Scatter: ("compare", "memory"),
    ir.Matmul: ("library", "tiled", "rows"),
    ir.Convolution: ("library",),
}
"""What each operation can be computed by; the first where nothing is said."""


class Kernel(Record):
    """One kernel: what it stores, and its shape on the device."""

    stores: tuple[NonNegativeInt, ...] = Field(min_length=1)
    """Nodes that it brings to memory, ascending."""
    joined: bool = False
    """Whether it runs in the launch of the kernel before it, as further programs."""
    rows: PositiveInt = 1
    """Rows (elements, where there are no lanes) that one program works on; on a CPU, that one
    thread takes at once."""
    block: PositiveInt | None = None
    """Lanes at a time, a loop over the rest; None for whole rows."""
    split: PositiveInt = 1
    """Programs that share a row; what they found is reduced in a kernel of its own."""
    warps: Literal[1, 2, 4, 8, 16] = 4
    stages: Literal[1, 2, 3, 4] = 1
    persistent: bool = False
    """Whether a fixed number of programs walks over the rows."""


class Genes(Record):
    """How one row program is computed."""

    kernels: tuple[Kernel, ...]
    """In an order in which they can run; products by the library run as soon as they can."""
    algorithms: tuple[tuple[NonNegativeInt, Algorithm], ...] = ()
    """By node, ascending, where it is not the first of ``ALGORITHMS``."""
    rounded: bool = True
    """Whether values of narrow types are rounded after each operation, as eager torch does."""

    def algorithm(self, program: ir.Program, number: int) -> Algorithm | None:
        """How a node is computed; None where there is one way."""
        chosen = dict(self.algorithms).get(number)
        return chosen or next(iter(ALGORITHMS.get(type(program.nodes[number].op), ())), None)


class Genome(Record):
    """The genes of each row program of a problem, one per group of workloads."""

    programs: tuple[Genes, ...] = Field(min_length=1)


def alternatives(program: ir.Program, number: int) -> tuple[Algorithm, ...]:
    """Return the algorithms that a node can take, the usual one first."""
    op = program.nodes[number].op
    found = ALGORITHMS.get(type(op), ())
    if isinstance(op, ir.Reduce):
        return found if online_maximum(program, number) is not None else ("tree",)
    if isinstance(op, ir.Matmul) and program.nodes[number].type.rank != 2:
        return ("library",)
    return found


def online_maximum(program: ir.Program, number: int) -> int | None:
    """Return the maximum that a sum of exponentials is taken against, None where it is none.

    The form is softmax's: ``sum(exp(x - expand(max(x))))`` along one and the same axis.
    """
    node = program.nodes[number]
    if not isinstance(node.op, ir.Reduce) or node.op.kind != "sum":
        return None
    exp = program.nodes[node.operands[0]]
    if exp.op != ir.Pointwise("exp"):
        return None
    difference = program.nodes[exp.operands[0]]
    if difference.op != ir.Pointwise("sub"):
        return None
    x, shift = difference.operands
    while isinstance(program.nodes[shift].op, ir.Expand | ir.Reshape):
        (shift,) = program.nodes[shift].operands
    top = program.nodes[shift]
    return shift if top.op == ir.Reduce("max", node.op.axes) and top.operands == (x,) else None


def library_nodes(program: ir.Program, genes: Genes) -> frozenset[int]:
    """Return the nodes that a library computes: the borders between kernels."""
    return frozenset(
        number
        for number, node in enumerate(program.nodes)
        if isinstance(node.op, ir.Matmul | ir.Convolution)
        and genes.algorithm(program, number) == "library"
    )


def canonical(program: ir.Program, genes: Genes, *, on_gpu: bool = True) -> Genes:
    """Return the one form of all genes that mean the same program."""
    chosen = dict(genes.algorithms)
    algorithms = sorted(
        (number, algorithm)
        for number, algorithm in chosen.items()
        if algorithm in alternatives(program, number)[1:]
    )
    kernels = [_canonical_kernel(kernel, on_gpu=on_gpu) for kernel in genes.kernels]
    if kernels:
        kernels[0] = kernels[0].model_copy(update={"joined": False})
    narrow = any(n.type.dtype.wide is not n.type.dtype for n in program.nodes)
    return Genes(
        kernels=tuple(kernels),
        algorithms=tuple(algorithms),
        rounded=genes.rounded or not narrow,
    )


def _canonical_kernel(kernel: Kernel, *, on_gpu: bool) -> Kernel:
    """Without what has no meaning: on a CPU there are no warps, and whole rows have no stages."""
    update: dict[str, object] = {"stores": tuple(sorted(set(kernel.stores)))}
    if kernel.block is None and not kernel.persistent:
        update["stages"] = 1
    if not on_gpu:
        update |= {"warps": 4, "stages": 1, "split": 1, "persistent": False, "joined": False}
    return kernel.model_copy(update=update)


def stored(genes: Genes) -> frozenset[int]:
    """Return all nodes that some kernel stores."""
    return frozenset(number for kernel in genes.kernels for number in kernel.stores)


def with_kernels(genes: Genes, kernels: Iterable[Kernel]) -> Genes:
    """Return ``genes`` with other kernels."""
    return genes.model_copy(update={"kernels": tuple(kernels)})
