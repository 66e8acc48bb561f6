"""Small legal changes of genes, and crosses of two: what the search does to genomes.

Every change is drawn with the given random numbers alone and is legal: it has a plan. What
means the same program is never returned as a change.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from evolver.proposers.synth import ir
from evolver.proposers.synth.axes import Axes, axes_of
from evolver.proposers.synth.genome import (
    Algorithm,
    Genes,
    Kernel,
    alternatives,
    canonical,
    library_nodes,
    with_kernels,
)
from evolver.proposers.synth.guesses import lanes_of
from evolver.proposers.synth.plan import (
    HEAVY,
    KernelStep,
    Plan,
    PlanError,
    closure,
    plan,
    required,
)

ATTEMPTS = 40
"""Draws before a parent is said to have no other child."""
BLOCKS = (None, 256, 512, 1024, 2048, 4096, 8192)
MOST_ROWS, MOST_SPLIT = 8192, 64


@dataclass(frozen=True)
class Change:
    """New genes, and in a few words what is new about them."""

    genes: Genes
    description: str


@dataclass(frozen=True)
class _Parent:
    program: ir.Program
    axes: Axes
    genes: Genes
    rng: random.Random
    on_gpu: bool


def mutate(
    program: ir.Program, genes: Genes, rng: random.Random, *, on_gpu: bool = True
) -> Change | None:
    """Return ``genes`` with one legal change, None where none was found."""
    parent = _Parent(program, axes_of(program), genes, rng, on_gpu)
    known = canonical(program, genes, on_gpu=on_gpu)
    operators = _FOR_GPU if on_gpu else _FOR_CPU
    if not genes.kernels:
        operators = (_algorithm,)
    for _ in range(ATTEMPTS):
        change = rng.choice(operators)(parent)
        if change is not None:
            made = _legal(parent, change)
            if made is not None and made.genes != known:
                return made
    return None


def cross(
    program: ir.Program, mother: Genes, father: Genes, rng: random.Random, *, on_gpu: bool = True
) -> Change | None:
    """Return the mother's kernels with some launches and algorithms of the father's.

    None where the two differ in nothing that could be taken.
    """
    parent = _Parent(program, axes_of(program), mother, rng, on_gpu)
    theirs = {kernel.stores: kernel for kernel in father.kernels}
    kernels = [
        theirs[k.stores].model_copy(update={"joined": k.joined})
        if k.stores in theirs and rng.random() < 0.5
        else k
        for k in mother.kernels
    ]
    ours, other = dict(mother.algorithms), dict(father.algorithms)
    mixed: dict[int, Algorithm] = {}
    for node in sorted({*ours, *other}):
        taken = (other if rng.random() < 0.5 else ours).get(node)
        if taken is not None:
            mixed[node] = taken
    rounded = rng.choice((mother.rounded, father.rounded))
    genes = Genes(kernels=tuple(kernels), algorithms=tuple(mixed.items()), rounded=rounded)
    made = _legal(parent, Change(genes, "a cross of two genomes"))
    parents = [canonical(program, g, on_gpu=on_gpu) for g in (mother, father)]
    return None if made is None or made.genes in parents else made


def _legal(parent: _Parent, change: Change) -> Change | None:
    genes = canonical(parent.program, change.genes, on_gpu=parent.on_gpu)
    try:
        made = plan(parent.program, genes, parent.axes)
    except PlanError:
        return None
    kernels = [_without_idle_block(made, step) for step in made.kernels]
    return Change(with_kernels(genes, kernels), change.description)


def _without_idle_block(made: Plan, step: KernelStep) -> Kernel:
    """A block that holds the longest row is no loop."""
    block = step.genes.block
    if block is None or block < lanes_of(step, made.axes, made.program):
        return step.genes
    return step.genes.model_copy(update={"block": None})


def _algorithm(parent: _Parent) -> Change | None:
    options = [
        (n, a)
        for n in range(len(parent.program.nodes))
        for a in alternatives(parent.program, n)
        if a != parent.genes.algorithm(parent.program, n)
    ]
    if not options:
        return None
    node, algorithm = parent.rng.choice(options)
    chosen = {**dict(parent.genes.algorithms), node: algorithm}
    genes = parent.genes.model_copy(update={"algorithms": tuple(sorted(chosen.items()))})
    op = parent.program.nodes[node].op
    kernels = _kernels_for(parent, library_nodes(parent.program, genes))
    return Change(with_kernels(genes, kernels), f"{op.name} by {algorithm}")


def _kernels_for(parent: _Parent, libraries: frozenset[int]) -> Sequence[Kernel]:
    """The kernels, with stores added or dropped as the library's share changed."""
    before = library_nodes(parent.program, parent.genes)
    if libraries == before:
        return parent.genes.kernels
    needed = set(required(parent.program, libraries))
    kept = [
        k.model_copy(update={"stores": tuple(n for n in k.stores if n not in libraries)})
        for k in parent.genes.kernels
    ]
    kept = [k for k in kept if k.stores]
    missing = sorted(needed - {n for k in kept for n in k.stores})
    return [*(Kernel(stores=(n,)) for n in missing), *kept]


def _rows(parent: _Parent) -> Change | None:
    return _of_kernel(parent, "rows", lambda k: _doubled_or_halved(parent, k.rows, MOST_ROWS))


def _split(parent: _Parent) -> Change | None:
    return _of_kernel(parent, "split", lambda k: _doubled_or_halved(parent, k.split, MOST_SPLIT))


def _warps(parent: _Parent) -> Change | None:
    return _of_kernel(parent, "warps", lambda k: _doubled_or_halved(parent, k.warps, 16))


def _stages(parent: _Parent) -> Change | None:
    return _of_kernel(parent, "stages", lambda _: parent.rng.choice((1, 2, 3, 4)))


def _block(parent: _Parent) -> Change | None:
    return _of_kernel(parent, "block", lambda _: parent.rng.choice(BLOCKS))


def _persistent(parent: _Parent) -> Change | None:
    return _of_kernel(parent, "persistent", lambda k: not k.persistent)


def _join(parent: _Parent) -> Change | None:
    return _of_kernel(parent, "joined", lambda k: not k.joined)


def _doubled_or_halved(parent: _Parent, value: int, most: int) -> int:
    return min(max(parent.rng.choice((value * 2, value // 2)), 1), most)


def _of_kernel(
    parent: _Parent, gene: str, new: Callable[[Kernel], int | bool | None]
) -> Change | None:
    kernels = list(parent.genes.kernels)
    number = parent.rng.randrange(len(kernels))
    value = new(kernels[number])
    kernels[number] = kernels[number].model_copy(update={gene: value})
    whole = "whole rows" if value is None else f"{gene} = {value}"
    return Change(with_kernels(parent.genes, kernels), f"kernel {number}: {whole}")


def _merge(parent: _Parent) -> Change | None:
    """Two kernels become one."""
    kernels = list(parent.genes.kernels)
    if len(kernels) < 2:
        return None
    first, second = sorted(parent.rng.sample(range(len(kernels)), 2))
    taken = kernels.pop(second)
    stores = tuple(sorted({*kernels[first].stores, *taken.stores}))
    kernels[first] = kernels[first].model_copy(update={"stores": stores})
    # The later place is where everything that either needs is there.
    kernels.insert(second - 1, kernels.pop(first))
    return Change(with_kernels(parent.genes, kernels), f"kernels {first} and {second} fused")


def _part(parent: _Parent) -> Change | None:
    """One of a kernel's stores gets a kernel of its own."""
    kernels = list(parent.genes.kernels)
    number = parent.rng.randrange(len(kernels))
    kernel = kernels[number]
    if len(kernel.stores) < 2:
        return None
    node = parent.rng.choice(kernel.stores)
    rest = tuple(n for n in kernel.stores if n != node)
    own = kernel.model_copy(update={"stores": (node,), "joined": False})
    kernels[number : number + 1] = [own, kernel.model_copy(update={"stores": rest})]
    return Change(with_kernels(parent.genes, kernels), f"%{node} in a kernel of its own")


def _store(parent: _Parent) -> Change | None:
    """An intermediate value is stored by a kernel before the one that computes it."""
    program, kernels = parent.program, list(parent.genes.kernels)
    number = parent.rng.randrange(len(kernels))
    libraries = library_nodes(program, parent.genes)
    stored = frozenset(n for k in kernels for n in k.stores)
    body = closure(program, kernels[number].stores, libraries | stored)
    options = [n for n in body if isinstance(program.nodes[n].op, HEAVY) and n not in stored]
    if not options:
        return None
    node = parent.rng.choice(options)
    kernels.insert(number, kernels[number].model_copy(update={"stores": (node,)}))
    kernels[number + 1] = kernels[number + 1].model_copy(update={"joined": False})
    return Change(with_kernels(parent.genes, kernels), f"%{node} stored")


def _recompute(parent: _Parent) -> Change | None:
    """What was stored for others to read is computed by each of them."""
    needed = required(parent.program, library_nodes(parent.program, parent.genes))
    options = [n for k in parent.genes.kernels for n in k.stores if n not in needed]
    if not options:
        return None
    node = parent.rng.choice(options)
    kernels = [
        k.model_copy(update={"stores": tuple(n for n in k.stores if n != node)})
        for k in parent.genes.kernels
    ]
    return Change(
        with_kernels(parent.genes, [k for k in kernels if k.stores]), f"%{node} computed again"
    )


def _round(parent: _Parent) -> Change | None:
    genes = parent.genes.model_copy(update={"rounded": not parent.genes.rounded})
    return Change(genes, "rounding as eager does" if genes.rounded else "no rounding between")


_FOR_CPU: tuple[Callable[[_Parent], Change | None], ...] = (
    *(_algorithm, _algorithm, _rows, _block, _merge, _part, _store, _recompute, _round),
)
_FOR_GPU = (*_FOR_CPU, _algorithm, _warps, _warps, _stages, _split, _persistent, _join, _rows)
