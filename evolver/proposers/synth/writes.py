"""What of an argument a program really changes: the regions that have to be stored.

A functional graph writes an argument as a whole: a copy of it in which some elements are new.
In place only the new ones are stored; all others stay untouched, whatever they hold.
"""

from __future__ import annotations

from dataclasses import dataclass

from evolver.proposers.synth import ir
from evolver.proposers.synth.extents import Extent


@dataclass(frozen=True)
class Span:
    """Elements ``start``, ``start + step``, ... of an axis of the argument, as many as stored."""

    axis: int
    start: Extent
    step: int


@dataclass(frozen=True)
class Region:
    """A value and where in the argument it goes."""

    value: int
    """The node whose elements are stored."""
    spans: tuple[Span, ...] = ()
    """Outermost first: each is within what the ones before it leave. None is the whole."""
    indices: tuple[int, ...] = ()
    """Nodes that give the places along the leading axes, as for ``Put``."""
    combine: str = "store"


def regions(program: ir.Program, parameter: str, node: int) -> tuple[Region, ...]:
    """Return what is to be stored so that ``parameter`` becomes ``node``, in this order."""
    inputs = {n.op.parameter: i for i, n in enumerate(program.nodes) if isinstance(n.op, ir.Input)}
    return _changes(program, node, inputs[parameter], ())


def _changes(
    program: ir.Program, node: int, view: int, spans: tuple[Span, ...]
) -> tuple[Region, ...]:
    """How ``node`` differs from ``view``, which is the argument seen through ``spans``."""
    if node == view:
        return ()
    op, operands = program.nodes[node].op, program.nodes[node].operands
    if not isinstance(op, ir.Update | ir.Put) or not _grows_from(program, node, view):
        return (Region(node, spans),)
    before = _changes(program, operands[0], view, spans)
    if isinstance(op, ir.Put):
        return (*before, Region(operands[1], spans, operands[2:], op.combine))
    span = Span(op.axis, op.start, op.step)
    inner = seen_through(program, view, span, program.nodes[operands[1]].type.shape[op.axis])
    return (*before, *_changes(program, operands[1], inner, (*spans, span)))


def _grows_from(program: ir.Program, node: int, view: int) -> bool:
    """Whether ``node`` is ``view`` with some elements replaced."""
    while node != view:
        if not isinstance(program.nodes[node].op, ir.Update | ir.Put):
            return False
        node = program.nodes[node].operands[0]
    return True


def seen_through(program: ir.Program, view: int, span: Span, length: Extent) -> int:
    """Return the node that is ``view`` within ``span``; -1 where the program has none."""
    wanted = ir.Slice(span.axis, span.start, length, span.step)
    for number, node in enumerate(program.nodes):
        if node.op == wanted and node.operands == (view,):
            return number
    return -1
