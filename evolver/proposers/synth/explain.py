"""What synth makes of a problem: what is fused, what a library keeps and why, what is refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from evaluator.records import Record
from evolver.proposers.synth import ir
from evolver.proposers.synth.genome import Genes
from evolver.proposers.synth.guesses import cost_us, first_guesses, lanes_of
from evolver.proposers.synth.lowering import Lowered
from evolver.proposers.synth.plan import KernelStep, LibraryStep, Plan, plan


class RefusalRow(Record):
    """An operator that has no place in a row program."""

    operator: str
    line: int | None
    reason: str


class LibraryRow(Record):
    """A product that stays with the library."""

    operation: str
    line: int | None
    reason: str


class KernelRow(Record):
    """One kernel of the first guess."""

    stores: tuple[str, ...]
    writes: tuple[str, ...]
    """Arguments that it writes in place."""
    operations: dict[str, int]
    lines: tuple[int, ...]
    rows: tuple[str, ...]
    """Extents over which its programs are independent."""
    lanes: int
    """Elements of the longest row."""
    joined: bool
    algorithms: dict[str, str]


class GroupExplanation(Record):
    """The workloads that one program serves."""

    workloads: tuple[str, ...]
    sizes: dict[str, tuple[int, ...]]
    refusals: tuple[RefusalRow, ...] = ()
    nodes: int = 0
    kernels: tuple[KernelRow, ...] = ()
    libraries: tuple[LibraryRow, ...] = ()
    launches: int = 0
    """Of kernels; the library's calls come to these."""
    estimate_us: float | None = None
    """Of the roofline model, over all sizes; for comparing genomes, not for telling people."""
    program: str = ""

    @property
    def is_lowered(self) -> bool:
        """Whether there is a program."""
        return not self.refusals


class Explanation(Record):
    """What became of a problem."""

    problem: str
    failure: str | None = None
    """Why nothing could be captured at all."""
    groups: tuple[GroupExplanation, ...] = ()

    @property
    def is_lowered(self) -> bool:
        """Whether every group has a program."""
        return bool(self.groups) and all(group.is_lowered for group in self.groups)


def explain(problem: str, lowered: Sequence[Lowered]) -> Explanation:
    """Explain the programs of a problem."""
    return Explanation(problem=problem, groups=tuple(map(_group, lowered)))


def _group(lowered: Lowered) -> GroupExplanation:
    group = lowered.graph.group
    program = lowered.program
    if program is None:
        rows = (
            RefusalRow(operator=r.operator, line=r.line, reason=r.reason) for r in lowered.refusals
        )
        return GroupExplanation(
            workloads=group.workloads, sizes=group.symbols, refusals=tuple(rows)
        )
    guesses = first_guesses(program)
    made = plan(program, guesses[0] if guesses else Genes(kernels=()))
    kernels = tuple(_kernel(made, step) for step in made.kernels)
    libraries = [step.node for step in made.steps if isinstance(step, LibraryStep)]
    return GroupExplanation(
        workloads=group.workloads,
        sizes=group.symbols,
        nodes=len(program.nodes),
        kernels=kernels,
        libraries=tuple(_library(program, node) for node in libraries),
        launches=sum(not kernel.joined for kernel in kernels),
        estimate_us=round(cost_us(made), 2),
        program=program.text(),
    )


def _kernel(made: Plan, step: KernelStep) -> KernelRow:
    program = made.program
    nodes = [program.nodes[n] for n in step.body]
    named = {n: made.genes.algorithm(program, n) for n in step.body}
    return KernelRow(
        stores=tuple(program.nodes[s.node].label or f"%{s.node}" for s in step.stores),
        writes=tuple(s.parameter for s in step.stores if s.parameter is not None),
        operations=dict(Counter(_kind(node.op) for node in nodes)),
        lines=tuple(sorted({node.line for node in nodes if node.line is not None})),
        rows=tuple(str(made.axes.extents[atom]) for atom in step.rows),
        lanes=lanes_of(step, made.axes, program),
        joined=step.genes.joined,
        algorithms={
            f"%{n} {program.nodes[n].op.name}": a for n, a in named.items() if a is not None
        },
    )


def _kind(op: ir.Op) -> str:
    return op.kind if isinstance(op, ir.Reduce | ir.Scan) else op.name


def _library(program: ir.Program, number: int) -> LibraryRow:
    node = program.nodes[number]
    types = " and ".join(str(t) for t in program.operand_types(number))
    reason = "a product of every row with every column is no row program"
    if isinstance(node.op, ir.Convolution):
        reason = "a window over all channels is no row program"
    return LibraryRow(operation=f"{node.op.name} of {types}", line=node.line, reason=reason)
