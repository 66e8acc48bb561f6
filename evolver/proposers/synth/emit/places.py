"""Where the elements of a moving operation come from: the place in the operand of each place.

A ``Source`` is one operand with a place; concatenations, pads and updates have several, each
under conditions on the place. Nothing here knows a language.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from evolver.proposers.synth import ir
from evolver.proposers.synth.emit.index import (
    Index,
    Place,
    Ranges,
    Variable,
    constant,
    looked_up,
    never_negative,
)
from evolver.proposers.synth.extents import Extent, product

ONE = Extent.of(1)


@dataclass(frozen=True)
class Below:
    """The condition that ``index`` is less than ``bound``."""

    index: Index
    bound: Extent


@dataclass(frozen=True)
class Divides:
    """The condition that ``by`` divides ``index``, which is not negative."""

    index: Index
    by: int


Condition = Below | Divides


@dataclass(frozen=True)
class Source:
    """An element of an operand, where all conditions hold."""

    operand: int
    """A node's number."""
    place: Place
    conditions: tuple[Condition, ...] = ()


def sources(program: ir.Program, number: int, place: Place) -> tuple[Source, ...]:
    """Return where the element ``place`` of a moving node comes from.

    Of several sources the first whose conditions hold counts; the last has none.
    """
    node = program.nodes[number]
    types = program.operand_types(number)
    first = node.operands[0]
    match node.op:
        case ir.Reshape():
            return (Source(first, reshaped(place, node.type.shape, types[0].shape)),)
        case ir.Permute(order):
            moved = sorted(zip(order, place, strict=True), key=lambda pair: pair[0])
            return (Source(first, tuple(index for _, index in moved)),)
        case ir.Expand():
            aligned = place[len(place) - types[0].rank :]
            kept = zip(types[0].shape, aligned, strict=True)
            return (Source(first, tuple(Index() if e == ONE else i for e, i in kept)),)
        case ir.Slice(axis, start, _, step):
            return (Source(first, _with(place, axis, place[axis] * step + start)),)
        case ir.Gather(axis):
            index = looked_up(node.operands[1], place, types[0].shape[axis])
            return (Source(first, _with(place, axis, index)),)
        case ir.Take():
            return (Source(first, _taken(node.operands[1:], types, place)),)
        case ir.Concat(axis):
            return _concatenated(node.operands, types, axis, place)
        case ir.Pad(axis, before, _):
            inner = place[axis] - before
            end = Below(place[axis], before + types[0].shape[axis])
            begin = () if before == Extent() else (_not_below(place[axis], before),)
            fill = Source(node.operands[1], ())
            inside = Source(first, _with(place, axis, inner), (*begin, end))
            return (inside, fill)
        case ir.Update():
            return _updated(node.operands, types, node.op, place)
    raise AssertionError(f"{node.op} does not move")


def reshaped(place: Place, shape: Sequence[Extent], into: Sequence[Extent]) -> Place:
    """Return the place in a tensor of shape ``into`` of what is at ``place`` in ``shape``."""
    result: list[Index] = []
    for low, high, into_low, into_high in _groups(shape, into):
        flat = Index()
        for extent, index in zip(shape[low:high], place[low:high], strict=True):
            flat = flat * extent + index
        result += _unravelled(flat, into[into_low:into_high])
    return tuple(result)


def _unravelled(flat: Index, shape: Sequence[Extent]) -> list[Index]:
    result = []
    for axis in range(len(shape)):
        inner = product(shape[axis + 1 :])
        if axis == len(shape) - 1:
            result.append(flat)
            break
        quotient, flat = flat.divide(inner)
        result.append(quotient)
    return result


def _groups(a: Sequence[Extent], b: Sequence[Extent]) -> list[tuple[int, int, int, int]]:
    """Cut both shapes where their leading products agree, as often as possible.

    What is left over at the end of one shape are axes of one; they join the last group.
    """
    cuts = [(0, 0)]
    for i in range(1, len(a) + 1):
        for j in range(cuts[-1][1] + 1, len(b) + 1):
            if product(a[:i]) == product(b[:j]) and product(a[i:]) == product(b[j:]):
                cuts.append((i, j))
                break
    cuts = [*(cuts[:-1] if len(cuts) > 1 else cuts), (len(a), len(b))]
    return [(i, k, j, m) for (i, j), (k, m) in pairwise(cuts)]


def _with(place: Place, axis: int, index: Index) -> Place:
    return (*place[:axis], index, *place[axis + 1 :])


def _taken(indices: Sequence[int], types: Sequence[ir.TensorType], place: Place) -> Place:
    rank = types[1].rank
    leading = tuple(
        looked_up(node, place[:rank], extent)
        for node, extent in zip(indices, types[0].shape, strict=False)
    )
    return (*leading, *place[rank:])


def _concatenated(
    operands: Sequence[int], types: Sequence[ir.TensorType], axis: int, place: Place
) -> tuple[Source, ...]:
    found, start = [], Extent()
    for operand, type_ in zip(operands, types, strict=True):
        end = start + type_.shape[axis]
        inner = _with(place, axis, place[axis] - start)
        if type_.shape[axis] != Extent():
            found.append(Source(operand, inner, (Below(place[axis], end),)))
        start = end
    *others, last = found or [Source(operands[0], place)]
    return (*others, Source(last.operand, last.place))


def _updated(
    operands: Sequence[int], types: Sequence[ir.TensorType], op: ir.Update, place: Place
) -> tuple[Source, ...]:
    axis = op.axis
    base = Source(operands[0], place)
    length = types[1].shape[axis]
    if op.start == Extent() and op.step == 1 and length == types[0].shape[axis]:
        return (Source(operands[1], place),)
    offset = place[axis] - op.start
    conditions: list[Condition] = []
    if op.start != Extent():
        conditions.append(_not_below(place[axis], op.start))
    conditions.append(Below(place[axis], op.start + length * op.step))
    if op.step != 1:
        conditions.append(Divides(offset, op.step))
        offset = offset.divide(Extent.of(op.step))[0]
    return (Source(operands[1], _with(place, axis, offset), tuple(conditions)), base)


def _not_below(index: Index, bound: Extent) -> Condition:
    """``index >= bound`` as ``bound - 1 - index < 0``."""
    return Below(constant(bound - 1) - index, Extent())


def open_conditions(
    conditions: Sequence[Condition], ranges: Ranges | None = None
) -> list[Condition] | None:
    """Return those that only the run can tell; None where one is certainly false."""
    result: list[Condition] = []
    for condition in conditions:
        if isinstance(condition, Below):
            low, high = condition.index.bounds(ranges)
            if never_negative(condition.bound - 1 - high):
                continue
            if never_negative(low - condition.bound):
                return None
        elif condition.index.divide(Extent.of(condition.by))[1] == Index():
            continue
        result.append(condition)
    return result


def open_sources(
    program: ir.Program, number: int, place: Place, ranges: Ranges | None = None
) -> tuple[tuple[Source, list[Condition]], ...]:
    """Return the sources that may count, each with its open conditions; the last has none."""
    result = []
    for source in sources(program, number, place):
        conditions = open_conditions(source.conditions, ranges)
        if conditions is not None:
            result.append((source, conditions))
            if not conditions:
                break
    return tuple(result)


def compared(condition: Below) -> tuple[Index, str, Extent]:
    """Return the condition as people write it: what, how and with what it is compared."""
    index, bound = condition.index, condition.bound
    terms = Index(index.terms)
    if index.terms and all(never_negative(factor * -1) for _, factor in index.terms):
        return terms * -1, ">", index.start - bound
    return terms, "<", bound - index.start


def cut_of(condition: Condition) -> tuple[Variable, int] | None:
    """Return the variable, and its value, from which on a condition changes; None if none."""
    if not isinstance(condition, Below) or len(condition.index.terms) != 1:
        return None
    ((atom, factor),) = condition.index.terms
    end = (condition.bound - condition.index.start).constant
    if not isinstance(atom, Variable) or end is None or factor.constant not in (1, -1):
        return None
    return (atom, end) if factor.constant == 1 else (atom, 1 - end)
