"""First guesses: which genes a roofline would choose, before anything was measured.

A kernel costs its start or its bytes, whatever is more. So results that share their rows share
a kernel while a row fits, kernels that do not need one another share a launch, and what is
costly to compute again for other rows is stored. The search does the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod

from evolver.proposers.synth import ir
from evolver.proposers.synth.axes import Atom, Axes, axes_of
from evolver.proposers.synth.genome import Genes, Kernel, canonical, library_nodes
from evolver.proposers.synth.plan import (
    HEAVY,
    KernelStep,
    LibraryStep,
    Plan,
    PlanError,
    closure,
    plan,
    required,
    rows_of,
)

WHOLE_ROW = 16384
"""Elements that a program may hold at once: more spill from a multiprocessor's registers."""
LOOPED_BLOCK = 4096
ELEMENTS_PER_PROGRAM = 1024
START_US = 1.6
"""Of one kernel among others in a replayed graph on an H200."""
BYTES_PER_US = 4.0e6
"""An H200's memory."""
PROGRAMS = 132
"""That its multiprocessors run side by side; fewer leave it idle."""


def first_guesses(program: ir.Program, *, on_gpu: bool = True) -> tuple[Genes, ...]:
    """Return different genes for ``program``, the most promising first; all are legal.

    Empty where nothing has to be computed.
    """
    axes = axes_of(program)
    libraries = library_nodes(program, Genes(kernels=()))
    wanted = required(program, libraries)
    if not wanted:
        return (Genes(kernels=()),) if libraries else ()
    costly = _costly(program, axes, libraries)
    partitions: list[list[tuple[int, ...]]] = [
        _merged(program, axes, libraries, wanted, ()),
        _merged(program, axes, libraries, sorted({*wanted, *costly}), costly),
        [(node,) for node in wanted],
    ]
    found: dict[Genes, float] = {}
    for groups in partitions:
        genes = _legal(program, axes, libraries, groups, on_gpu=on_gpu)
        if genes is not None:
            found.setdefault(genes, cost_us(plan(program, genes, axes)))
    return tuple(sorted(found, key=lambda genes: found[genes]))


def cost_us(made: Plan) -> float:
    """Return what the plan's launches and bytes would take, over all workloads' sizes."""
    return sum(_cost_at(made, sizes) for sizes in made.program.sizes)


def numel(atoms: Iterable[Atom], axes: Axes, sizes: Mapping[str, int]) -> int:
    """Return the number of elements that these atoms span."""
    return prod(axes.extents[atom].at(sizes) for atom in atoms)


def lanes_of(step: KernelStep, axes: Axes, program: ir.Program) -> int:
    """Return how many elements one row of a kernel has at most: 1 where none meet in it."""
    values = [r.value for s in step.stores for r in s.regions]
    return _widest(_held(program, step.body, values), frozenset(step.rows), axes, program)


def _cost_at(made: Plan, sizes: Mapping[str, int]) -> float:
    total = 0.0
    for step in made.steps:
        if isinstance(step, LibraryStep):
            total += START_US + _bytes(made.program, [step.node], sizes) / BYTES_PER_US
            continue
        moved = [*step.loads, *(r.value for s in step.stores for r in s.regions)]
        start = 0.0 if step.genes.joined else START_US
        rows = max(1, numel(step.rows, made.axes, sizes))  # there may be nothing to do
        total += (
            start + max(1.0, PROGRAMS / rows) * _bytes(made.program, moved, sizes) / BYTES_PER_US
        )
    return total


def _bytes(program: ir.Program, nodes: Sequence[int], sizes: Mapping[str, int]) -> int:
    types = [program.nodes[n].type for n in nodes]
    return sum(t.numel.at(sizes) * t.dtype.itemsize_bytes for t in types)


def _held(program: ir.Program, body: Sequence[int], values: Sequence[int]) -> list[int]:
    """What a program holds at once: what it stores, and what elements meet in.

    All else is computed element by element where it is needed.
    """
    heavy = [n for n in body if isinstance(program.nodes[n].op, HEAVY)]
    return [*values, *heavy, *(o for n in heavy for o in program.nodes[n].operands)]


def _widest(nodes: Iterable[int], rows: frozenset[Atom], axes: Axes, program: ir.Program) -> int:
    return max(
        (numel(axes.atoms(n) - rows, axes, sizes) for n in nodes for sizes in program.sizes),
        default=1,
    )


def _costly(program: ir.Program, axes: Axes, libraries: frozenset[int]) -> list[int]:
    """What is better stored than computed by those who use it.

    That is a reduction over more than a program can hold, and one behind values that others
    move: stored, it leaves them free to run over the axis that they move along.
    """
    found: set[int] = set()
    behind: list[frozenset[int]] = []
    for number, node in enumerate(program.nodes):
        heavy = isinstance(node.op, HEAVY) and not isinstance(node.op, ir.Put)
        above = frozenset[int]().union(*(behind[o] for o in node.operands))
        behind.append(
            frozenset({number}) if heavy else frozenset() if number in libraries else above
        )
        if heavy and _reduces_much(program, axes, number):
            found.add(number)
        if not isinstance(node.op, ir.Gather):
            found |= {h for o, _ in axes.moves[number] for h in behind[o]}
    return sorted(found)


def _reduces_much(program: ir.Program, axes: Axes, number: int) -> bool:
    return _widest(program.nodes[number].operands, axes.atoms(number), axes, program) > WHOLE_ROW


def _merged(
    program: ir.Program,
    axes: Axes,
    libraries: frozenset[int],
    wanted: Sequence[int],
    cuts: Sequence[int],
) -> list[tuple[int, ...]]:
    """Put together what shares its rows, while these fit; what reads a cut comes after it."""
    groups: list[tuple[int, ...]] = []
    depth = _depths(program, libraries, cuts)
    for node in wanted:
        for i, group in enumerate(groups):
            if depth[group[0]] == depth[node] and _fits(
                program, axes, libraries, (*group, node), frozenset(wanted)
            ):
                groups[i] = (*group, node)
                break
        else:
            groups.append((node,))
    return groups


def _fits(
    program: ir.Program,
    axes: Axes,
    libraries: frozenset[int],
    group: Sequence[int],
    stored: frozenset[int],
) -> bool:
    """Whether one program can hold a row of all of them, or needs no more than each alone."""

    def rows(nodes: Sequence[int]) -> frozenset[Atom]:
        given = libraries | (stored - set(group))
        return rows_of(program, axes, closure(program, nodes, given), nodes)

    together = rows(group)
    given = libraries | (stored - set(group))
    body = closure(program, group, given)
    held = _held(program, body, group)
    if _widest(held, together, axes, program) <= WHOLE_ROW:
        alone = max(_spanned(rows([n]), axes, program) for n in group)
        # A few hundred programs fill a device; fewer are no loss where there is little to do.
        total = _widest(held, frozenset(), axes, program)
        return _spanned(together, axes, program) >= min(alone, 256) or total <= LOOPED_BLOCK
    return all(rows([n]) == together for n in group)


def _spanned(atoms: frozenset[Atom], axes: Axes, program: ir.Program) -> int:
    return max(numel(atoms, axes, sizes) for sizes in program.sizes)


def _depths(program: ir.Program, libraries: frozenset[int], cuts: Sequence[int]) -> dict[int, int]:
    """After how many cuts and library calls in a row each node can be computed."""
    depth: dict[int, int] = {}
    borders = libraries | set(cuts)
    for number, node in enumerate(program.nodes):
        depth[number] = max((depth[o] + (o in borders) for o in node.operands), default=0)
    return depth


def _legal(
    program: ir.Program,
    axes: Axes,
    libraries: frozenset[int],
    groups: Sequence[tuple[int, ...]],
    *,
    on_gpu: bool,
) -> Genes | None:
    """Genes of these kernels in an order that works, joined where they can be; else None."""
    written = {node for _, node in program.writes}
    depth = _depths(program, libraries, [n for group in groups for n in group])

    def order(group: tuple[int, ...]) -> tuple[bool, int, int]:
        return bool(written & set(group)), max(depth[n] for n in group), group[0]

    kernels = [Kernel(stores=tuple(sorted(group))) for group in sorted(groups, key=order)]
    genes = Genes(kernels=tuple(kernels))
    try:
        made = plan(program, genes, axes)
    except PlanError:
        return None
    genes = Genes(
        kernels=tuple(_shaped(made, step, on_gpu=on_gpu) for step in made.kernels),
        algorithms=_algorithms(made),
    )
    return canonical(program, _joined(genes, lambda g: _is_legal(program, g, axes)), on_gpu=on_gpu)


def _joined(genes: Genes, is_legal: Callable[[Genes], bool]) -> Genes:
    """Join each kernel to the launch before it where that is legal."""
    for i in range(1, len(genes.kernels)):
        kernels = list(genes.kernels)
        kernels[i] = kernels[i].model_copy(update={"joined": True})
        joined = genes.model_copy(update={"kernels": tuple(kernels)})
        genes = joined if is_legal(joined) else genes
    return genes


def _is_legal(program: ir.Program, genes: Genes, axes: Axes) -> bool:
    try:
        plan(program, genes, axes)
    except PlanError:
        return False
    return True


def _shaped(made: Plan, step: KernelStep, *, on_gpu: bool) -> Kernel:
    """The launch that fits the length of a row."""
    lanes = lanes_of(step, made.axes, made.program)
    if not on_gpu:
        return step.genes
    if lanes == 1:
        return step.genes.model_copy(update={"rows": ELEMENTS_PER_PROGRAM, "warps": 4})
    whole = lanes <= WHOLE_ROW or _must_be_whole(made, step)
    held = min(lanes, WHOLE_ROW) if whole else LOOPED_BLOCK
    warps = 1 if held <= 512 else 4 if held <= 4096 else 8 if held <= 8192 else 16
    block = None if whole else LOOPED_BLOCK
    return step.genes.model_copy(update={"rows": 1, "warps": warps, "block": block})


def _must_be_whole(made: Plan, step: KernelStep) -> bool:
    """Whether a sort needs all of a row, or an argument is overwritten while rows are read."""
    nodes = [made.program.nodes[n] for n in step.body]
    if any(isinstance(n.op, ir.ArgSort) for n in nodes):
        return True
    looped = [
        k.model_copy(update={"block": LOOPED_BLOCK}) if k == step.genes else k
        for k in made.genes.kernels
    ]
    genes = made.genes.model_copy(update={"kernels": tuple(looped)})
    return not _is_legal(made.program, genes, made.axes)


def _algorithms(made: Plan) -> tuple[tuple[int, str], ...]:
    """Long rows are selected from by digits, and summed in one pass with their maximum."""
    chosen = []
    for step in made.kernels:
        if lanes_of(step, made.axes, made.program) <= WHOLE_ROW:
            continue
        chosen += [(n, "radix") for n in step.body if isinstance(made.program.nodes[n].op, ir.TopK)]
    return tuple(sorted(set(chosen)))
