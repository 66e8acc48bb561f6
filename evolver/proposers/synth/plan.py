"""What a genome makes of a row program: kernels and library calls in order, with their axes.

A plan is what emitters read. It says what each kernel computes, loads and stores, over which
atoms its programs are independent (``rows``) and which ones a program sees whole (``lanes``).
``PlanError`` says why a genome is not legal; then it is nothing to emit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from evolver.proposers.synth import ir
from evolver.proposers.synth.axes import Atom, Axes, axes_of
from evolver.proposers.synth.genome import Genes, Kernel, library_nodes, stored
from evolver.proposers.synth.writes import Region, regions, seen_through

HEAVY = (ir.Reduce, ir.Scan, ir.TopK, ir.ArgSort, ir.Scatter, ir.Put)
"""What is not computed anew at another place for nothing."""
VIEWS = (ir.Reshape, ir.Permute, ir.Slice, ir.Expand)
"""What a tensor in memory can be seen through without a kernel."""


class PlanError(ValueError):
    """The genes are no program; the message says why."""


@dataclass(frozen=True)
class Store:
    """One store of a kernel."""

    node: int
    """The value as a whole."""
    parameter: str | None
    """The argument that is written in place; None for a tensor of its own."""
    regions: tuple[Region, ...]
    """What is stored; of a tensor of its own, the node itself."""


@dataclass(frozen=True)
class KernelStep:
    """One kernel."""

    genes: Kernel
    body: tuple[int, ...]
    """Nodes that it computes, in order."""
    loads: tuple[int, ...]
    """Nodes that it reads from memory: inputs, and what was stored before."""
    stores: tuple[Store, ...]
    rows: tuple[Atom, ...]
    """Atoms over which programs are independent, outermost first."""
    lanes: tuple[Atom, ...]
    """The other atoms of what it computes: each program sees them whole."""


@dataclass(frozen=True)
class LibraryStep:
    """One product that the library computes, from tensors in memory or views of them."""

    node: int


@dataclass(frozen=True)
class Plan:
    """All steps in order."""

    program: ir.Program
    axes: Axes
    genes: Genes
    steps: tuple[KernelStep | LibraryStep, ...]

    @property
    def kernels(self) -> tuple[KernelStep, ...]:
        """The steps that are kernels."""
        return tuple(s for s in self.steps if isinstance(s, KernelStep))


def required(program: ir.Program, libraries: Iterable[int]) -> tuple[int, ...]:
    """Return the nodes that some kernel has to store, whatever the genes.

    A library reads inputs, what a library gave, and views of these. What a library gave may be
    returned in another shape; what is a view of an input is copied, as nobody may be given a
    tensor that shares an argument's memory.
    """
    given = frozenset(libraries)
    read = [o for number in sorted(given) for o in program.nodes[number].operands]
    read = [_base(program, n) for n in read if not _lies_in_memory(program, n, given)]
    returned = [r.node for r in program.returns if r.node is not None]
    returned = [n for n in returned if _base(program, n, (ir.Reshape, ir.Permute)) not in given]
    return tuple(sorted({*returned, *read, *(node for _, node in program.writes)}))


def plan(program: ir.Program, genes: Genes, axes: Axes | None = None) -> Plan:
    """Return what ``genes`` make of ``program``.

    Raises:
        PlanError: something is stored twice or never, runs before what it needs, or reads an
            argument after, or while, it is overwritten.
    """
    return _Planner(program, genes, axes or axes_of(program)).plan()


def rows_of(
    program: ir.Program, axes: Axes, body: Sequence[int], values: Sequence[int]
) -> frozenset[Atom]:
    """Return the atoms over which a kernel with this body, storing these values, is parallel."""
    tied = frozenset[Atom]().union(*(axes.meets[n] for n in body))
    heavy: set[int] = set()
    for number in body:
        node = program.nodes[number]
        if isinstance(node.op, HEAVY) or heavy & set(node.operands):
            heavy.add(number)
        for operand, atoms in axes.moves[number]:
            if operand in heavy:
                tied |= atoms
    common = frozenset.intersection(*(axes.atoms(value) for value in values))
    return common - tied


def closure(program: ir.Program, wanted: Iterable[int], given: frozenset[int]) -> list[int]:
    """Return, in order, what has to be computed for ``wanted`` where ``given`` lies in memory."""
    found, waiting = set[int](), list(wanted)
    while waiting:
        number = waiting.pop()
        if number not in found:
            found.add(number)
            operands = program.nodes[number].operands
            waiting += [o for o in operands if o not in given and not _is_input(program, o)]
    return sorted(found)


class _Planner:
    def __init__(self, program: ir.Program, genes: Genes, axes: Axes) -> None:
        self._program = program
        self._genes = genes
        self._axes = axes
        self._libraries = library_nodes(program, genes)
        self._in_memory: set[int] = set()
        self._steps: list[KernelStep | LibraryStep] = []

    def plan(self) -> Plan:
        self._check_stores()
        self._run_libraries()
        for kernel in self._genes.kernels:
            self._steps.append(self._kernel(kernel))
            self._in_memory |= set(kernel.stores)
            self._run_libraries()
        if missing := self._libraries - self._in_memory:
            raise PlanError(f"the operands of %{min(missing)} are never stored")
        plan = Plan(self._program, self._axes, self._genes, tuple(self._steps))
        _check_launches(plan)
        _check_overwriting(plan)
        return plan

    def _check_stores(self) -> None:
        listed = [n for kernel in self._genes.kernels for n in kernel.stores]
        if len(set(listed)) != len(listed) or not set(listed) <= set(range(self._count)):
            raise PlanError("a node is stored twice, or is none of the program's")
        missing = set(required(self._program, self._libraries)) - set(listed)
        if missing:
            raise PlanError(f"%{min(missing)} is stored by no kernel")
        written = {node for _, node in self._program.writes}
        if wrong := self._libraries & stored(self._genes) - written:
            raise PlanError(f"%{min(wrong)} is the library's to store")

    @property
    def _count(self) -> int:
        return len(self._program.nodes)

    def _run_libraries(self) -> None:
        for number in sorted(self._libraries - self._in_memory):
            operands = self._program.nodes[number].operands
            if all(_lies_in_memory(self._program, o, self._in_memory) for o in operands):
                self._steps.append(LibraryStep(number))
                self._in_memory.add(number)

    def _kernel(self, kernel: Kernel) -> KernelStep:
        given = frozenset(self._in_memory)
        stores = tuple(store for node in kernel.stores for store in self._stores(node))
        read = {n for s in stores for r in s.regions for n in (r.value, *r.indices)}
        in_memory = {n for n in read if n in given or _is_input(self._program, n)}
        body = closure(self._program, read - in_memory, given)
        if early := self._libraries & set(body):
            raise PlanError(f"a kernel needs %{min(early)}, which the library has not computed")
        operands = {o for n in body for o in self._program.nodes[n].operands}
        loads = sorted((operands - set(body)) | in_memory)
        values = [r.value for s in stores for r in s.regions] or list(kernel.stores)
        rows = rows_of(self._program, self._axes, body, values)
        rows = self._safe(rows, kernel, body, loads, stores)
        seen = {a for n in (*body, *values) for axis in self._axes.of[n] for a in axis}
        return KernelStep(
            genes=kernel,
            body=tuple(body),
            loads=tuple(loads),
            stores=stores,
            rows=tuple(a for axis in self._axes.of[values[0]] for a in axis if a in rows),
            lanes=tuple(sorted(seen - rows)),
        )

    def _safe(
        self,
        rows: frozenset[Atom],
        kernel: Kernel,
        body: Sequence[int],
        loads: Sequence[int],
        stores: Sequence[Store],
    ) -> frozenset[Atom]:
        """Of ``rows`` those that can be split where arguments are read and written."""
        for store in stores:
            if any(_is(self._program.nodes[n], store.parameter) for n in loads):
                free, moved = _alone(self._program, self._axes, body, store)
                if moved and kernel.block is not None:
                    raise PlanError(f"{store.parameter} is overwritten before it is read")
                rows &= free
        return rows

    def _stores(self, node: int) -> list[Store]:
        """Into the arguments that become ``node``; else, or if it is returned too, its own."""
        program = self._program
        found = [
            Store(node, parameter, regions(program, parameter, node))
            for parameter, written in program.writes
            if written == node
        ]
        if not found or any(r.node == node for r in program.returns):
            found.append(Store(node, None, (Region(node),)))
        return found


def _check_launches(plan: Plan) -> None:
    """Kernels of one launch run at the same time, so none may need another's stores."""
    fresh: set[int] = set()
    for position, step in enumerate(plan.steps):
        if not _is_joined(step):
            fresh = set()
        elif position == 0 or not isinstance(plan.steps[position - 1], KernelStep):
            raise PlanError("a kernel is joined to a launch that is over")
        if isinstance(step, KernelStep):
            if fresh & set(step.loads):
                raise PlanError("a kernel needs what another one of its launch stores")
            fresh |= {s.node for s in step.stores}


def _check_overwriting(plan: Plan) -> None:
    """Nothing may read an argument's old elements once they may have been overwritten."""
    for position, step in enumerate(plan.steps):
        if not isinstance(step, KernelStep):
            continue
        for store in step.stores:
            if store.parameter is None:
                continue
            for other in _at_the_same_time_or_later(plan.steps, position):
                if _reads(plan.program, other, store.parameter):
                    raise PlanError(f"{store.parameter} is read after it is overwritten")


def _at_the_same_time_or_later(
    steps: Sequence[KernelStep | LibraryStep], position: int
) -> list[KernelStep | LibraryStep]:
    first = position
    while first > 0 and _is_joined(steps[first]):
        first -= 1
    return [s for i, s in enumerate(steps) if i >= first and i != position]


def _is_joined(step: KernelStep | LibraryStep) -> bool:
    return isinstance(step, KernelStep) and step.genes.joined


def _reads(program: ir.Program, step: KernelStep | LibraryStep, parameter: str) -> bool:
    if isinstance(step, KernelStep):
        return any(_parameter(program, n) == parameter for n in step.loads)
    operands = program.nodes[step.node].operands
    return any(_parameter(program, _base(program, o)) == parameter for o in operands)


def _alone(
    program: ir.Program, axes: Axes, body: Sequence[int], store: Store
) -> tuple[frozenset[Atom], bool]:
    """The atoms over which programs may be split although they read what they overwrite, and
    whether an element is read elsewhere than where it is written, so that rows must be whole.

    Each program must read of the argument only what it alone writes.
    """
    argument = next(n for n, node in enumerate(program.nodes) if _is(node, store.parameter))
    seen = {_through(program, argument, region) for region in store.regions}
    touched, free, moved = {argument}, [axes.atoms(n) for n in seen if n >= 0], False
    for number in body:
        operands = touched & set(program.nodes[number].operands)
        if not operands:
            continue
        touched.add(number)
        if number in seen:
            continue
        if argument in operands and argument not in seen:
            return frozenset(), True
        tied = [atoms for o, atoms in axes.moves[number] if o in operands]
        free = [atoms.difference(*tied) for atoms in free]
        moved = moved or bool(tied or axes.meets[number])
    if any(region.indices for region in store.regions):
        return frozenset(), True
    return frozenset.intersection(*free) if free else frozenset(), moved


def _is(node: ir.Node, parameter: str | None) -> bool:
    return isinstance(node.op, ir.Input) and node.op.parameter == parameter


def _through(program: ir.Program, argument: int, region: Region) -> int:
    """The node that is the argument at the region's place; -1 where the program has none."""
    node = argument
    for span in region.spans:
        extent = program.nodes[region.value].type.shape[span.axis]
        node = seen_through(program, node, span, extent)
    return node


def _lies_in_memory(program: ir.Program, node: int, given: Iterable[int]) -> bool:
    there = frozenset(given)
    while node not in there and isinstance(program.nodes[node].op, VIEWS):
        (node,) = program.nodes[node].operands
    return node in there or _is_input(program, node)


def _base(program: ir.Program, node: int, views: tuple[type[ir.Op], ...] = VIEWS) -> int:
    while isinstance(program.nodes[node].op, views):
        (node,) = program.nodes[node].operands
    return node


def _is_input(program: ir.Program, node: int) -> bool:
    return isinstance(program.nodes[node].op, ir.Input)


def _parameter(program: ir.Program, node: int) -> str | None:
    op = program.nodes[node].op
    return op.parameter if isinstance(op, ir.Input) else None
