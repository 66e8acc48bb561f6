"""One kernel of a plan in Triton: which rows a program has, what it computes and stores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from evolver.proposers.synth import ir
from evolver.proposers.synth.emit.index import Index, Place, Variable
from evolver.proposers.synth.emit.lanes import Lanes
from evolver.proposers.synth.emit.memory import Memory, Tensor
from evolver.proposers.synth.emit.names import Names
from evolver.proposers.synth.emit.regions import Target, targets
from evolver.proposers.synth.emit.scopes import EmitError
from evolver.proposers.synth.emit.triton_stages import Program
from evolver.proposers.synth.emit.triton_values import Block, bare
from evolver.proposers.synth.extents import Extent, product
from evolver.proposers.synth.plan import KernelStep, Plan
from evolver.proposers.synth.types import ElementType

ATOMIC = (ElementType.FLOAT32, ElementType.FLOAT64, ElementType.INT32, ElementType.INT64)


@dataclass(frozen=True)
class Part:
    """The programs of one step."""

    lines: tuple[str, ...]
    programs: str
    """How many there are, in Python."""
    programs_in_kernel: str
    constants: Mapping[str, Extent]
    """Lane counts to pass: the power of two that is no less than each extent."""


def part_of(
    plan: Plan,
    step: KernelStep,
    memory: Memory,
    stored: Sequence[Tensor],
    names: Names,
    comment: Callable[[ir.Node], str],
) -> Part:
    """Write a step.

    Raises:
        EmitError: something of it cannot be written in Triton, or its genes ask for what is
            not written yet.
    """
    if step.genes.split > 1:
        raise EmitError("rows that several programs share are not written")
    extents = plan.axes.extents
    rows = {
        atom: Variable(names.row(i, len(step.rows)), extents[atom])
        for i, atom in enumerate(step.rows)
    }
    program = Program(plan, memory, Lanes(plan.axes, rows, names), names, comment)
    count = product(v.extent for v in rows.values())
    if step.genes.block is not None:
        program.longest = step.genes.block
    _begin(program, list(rows.values()), count, step.genes.rows)
    _store_all(program, plan, step, stored)
    several, each = program.rows_are_lanes, program.rows_per_program
    size = memory.size(count)
    return Part(
        lines=tuple(program.lines),
        programs=f"triton.cdiv({size}, {each})" if several else size,
        programs_in_kernel=f"tl.cdiv({size}, {each})" if several else size,
        constants=program.blocks,
    )


def _begin(program: Program, rows: Sequence[Variable], count: Extent, per_program: int) -> None:
    """Say which rows a program has."""
    if not rows:
        return
    several = per_program > 1
    program.rows_are_lanes, program.rows_per_program = several, per_program
    first = "program.to(tl.int64)"
    if several:
        size = 1 << (per_program - 1).bit_length()
        first = f"{first} * {size} + tl.arange(0, {size})"
        program.rows_per_program = size
    flat = rows[0].name if len(rows) == 1 else program.names.fresh("flat")
    program.lines.append(f"{flat} = {first}")
    if several:
        program.row_mask = program.names.fresh("exists")
        program.lines.append(f"{program.row_mask} = {flat} < {program.size(count)}")
    rest = flat
    for position, variable in enumerate(rows if len(rows) > 1 else ()):
        inner = product(v.extent for v in rows[position + 1 :])
        if position == len(rows) - 1:
            program.lines.append(f"{variable.name} = {rest}")
            break
        by = program.size(inner)
        by = by if by.isidentifier() or by.isdigit() else f"({by})"
        before = rest if rest == flat else f"({rest})"
        program.lines.append(f"{variable.name} = {before} // {by}")
        rest = f"{flat} % {by}"


def _store_all(program: Program, plan: Plan, step: KernelStep, stored: Sequence[Tensor]) -> None:
    """Compute all values, then store them: what is overwritten has been read by then."""
    found = [
        target
        for store, tensor in zip(step.stores, stored, strict=True)
        for target in targets(plan.program, store, tensor)
    ]
    found.sort(key=lambda target: target.tensor.parameter is not None)
    written = {t.tensor.parameter for t in found} - {None}
    statements: list[tuple[Target, str]] = []
    for target in found:
        spread = program.lanes.over_rows(target.value)
        looped = any(program.is_looped(v) for v in spread.loops)
        with program.loops(spread.loops):
            value = program.value(target.value, spread.place)
            statement = _stored(program, target, spread.place, value)
            if looped:
                said = program.comment_of(target.value)
                program.lines.extend([*([said] if said else []), statement])
        if looped and _moves_what_it_overwrites(program, target, spread.place, written):
            raise EmitError(f"{target.tensor.name} is overwritten while a long row is read")
        if not looped:
            statements.append((target, statement))
    waits = any(parameter in written for parameter, _ in program.reads)
    for target, text in statements:
        if waits and target.tensor.parameter is not None:
            program.lines.append("tl.debug_barrier()  # what is overwritten now was read above")
            waits = False
        said = program.comment_of(target.value)
        program.lines.extend([*([said] if said else []), text])


def _moves_what_it_overwrites(
    program: Program, target: Target, place: Place, written: set[str | None]
) -> bool:
    """Whether an argument is read elsewhere than where this store puts what was made of it."""
    read = {(parameter, p) for parameter, p in program.reads if parameter in written}
    return bool(read) and read != {(target.tensor.parameter, target.place(place))}


def _stored(program: Program, target: Target, place: tuple[Index, ...], value: Block) -> str:
    tensor = target.tensor
    offset = program.index(tensor.offset(target.place(place)))
    every = sorted(
        {a for i in place for v in i.variables() if (a := program.axis_of(v)) is not None}
    )
    mask = program.mask(every)
    blocks = [offset, value, *([mask] if mask is not None else [])]
    texts, axes = program.joined(blocks)
    at, what, *where = texts
    if axes and not offset.axes:
        at = f"tl.zeros({program.shape(axes)}, tl.int32) + {at}"
    elif axes != offset.axes and len(axes) > len(offset.axes):
        at = f"{at} + tl.zeros({program.shape(axes)}, tl.int32)"
    address = tensor.name if at == "0" else f"{tensor.name} + {at}"
    what = what.removesuffix(".to(tl.float32)") if tensor.dtype.wide is not tensor.dtype else what
    masked = f", mask={bare(where[0])}" if where else ""
    if target.region.combine == "store":
        return f"tl.store({address}, {bare(what)}{masked})"
    if target.region.combine != "sum" or tensor.dtype not in ATOMIC:
        raise EmitError(f"{target.region.combine} of {tensor.dtype.value} at shared places")
    return f"tl.atomic_add({address}, {bare(what)}{masked})"
