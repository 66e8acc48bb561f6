"""Row programs: a reference as a list of typed operations, each checked as it is added.

A program is a value: nodes in an order of evaluation, what is returned, and which arguments
are written with what. It is functional; an argument that is written in place is an ``Input``
(as it was before) and, at the end, a write. ``Builder`` makes programs and refuses operands
that do not fit; ``Program.text`` prints them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields

from evolver.proposers.synth.arithmetic import (
    Cast,
    Constant,
    Convolution,
    Input,
    Iota,
    Matmul,
    Pointwise,
    Reduce,
    Scan,
    Select,
)
from evolver.proposers.synth.extents import Extent, ExtentError
from evolver.proposers.synth.movement import Concat, Expand, Pad, Permute, Reshape, Slice, Update
from evolver.proposers.synth.op import Op
from evolver.proposers.synth.selection import ArgSort, Gather, Put, Scatter, Take, TopK
from evolver.proposers.synth.types import ElementType, IrError, Shape, TensorType, tensor

__all__ = [
    "ArgSort",
    "Builder",
    "Cast",
    "Concat",
    "Constant",
    "Convolution",
    "ElementType",
    "Expand",
    "Extent",
    "ExtentError",
    "Gather",
    "Input",
    "Iota",
    "IrError",
    "Matmul",
    "Node",
    "Op",
    "Pad",
    "Permute",
    "Pointwise",
    "Program",
    "Put",
    "Reduce",
    "Reshape",
    "Returned",
    "Scan",
    "Scatter",
    "Select",
    "Shape",
    "Slice",
    "Symbol",
    "Take",
    "TensorType",
    "TopK",
    "Update",
    "tensor",
]


@dataclass(frozen=True)
class Node:
    """One operation of a program."""

    op: Op
    operands: tuple[int, ...]
    """Numbers of earlier nodes."""
    type: TensorType
    line: int | None = field(default=None, compare=False)
    """Of the reference that it came from, counted from one."""
    label: str = field(default="", compare=False)
    """What the reference calls the value; empty where it has no name there."""


@dataclass(frozen=True)
class Symbol:
    """A size that differs between workloads."""

    name: str
    values: tuple[int, ...]
    """In each workload that was shown."""


@dataclass(frozen=True)
class Returned:
    """One returned value: a node, an argument itself, or a number."""

    node: int | None = None
    argument: str | None = None
    constant: bool | int | float | str | None = None


@dataclass(frozen=True)
class Program:
    """A checked row program; build one with ``Builder``."""

    nodes: tuple[Node, ...]
    returns: tuple[Returned, ...]
    writes: tuple[tuple[str, int], ...] = ()
    """Arguments written in place, each with the node that holds all of its new elements."""
    symbols: tuple[Symbol, ...] = ()
    returns_tuple: bool = True

    @property
    def results(self) -> tuple[int, ...]:
        """The nodes that have to reach memory: returned or written, each once, in order."""
        returned = [r.node for r in self.returns if r.node is not None]
        return tuple(dict.fromkeys([*returned, *(node for _, node in self.writes)]))

    @property
    def sizes(self) -> tuple[Mapping[str, int], ...]:
        """The symbols' values in each workload; one empty mapping where there are none."""
        count = len(self.symbols[0].values) if self.symbols else 1
        return tuple({s.name: s.values[i] for s in self.symbols} for i in range(count))

    def users(self) -> tuple[tuple[int, ...], ...]:
        """For each node the nodes that read it."""
        found: list[list[int]] = [[] for _ in self.nodes]
        for number, node in enumerate(self.nodes):
            for operand in dict.fromkeys(node.operands):
                found[operand].append(number)
        return tuple(map(tuple, found))

    def operand_types(self, number: int) -> tuple[TensorType, ...]:
        """The types of what a node reads."""
        return tuple(self.nodes[i].type for i in self.nodes[number].operands)

    def text(self) -> str:
        """The program in lines for people."""
        lines = [
            f"{s.name} in {{{', '.join(map(str, sorted(set(s.values))))}}}" for s in self.symbols
        ]
        lines += [_line(number, node) for number, node in enumerate(self.nodes)]
        lines += [f"{parameter} := %{node}" for parameter, node in self.writes]
        return "\n".join([*lines, f"return {', '.join(map(_returned, self.returns))}"])


class Builder:
    """Adds nodes one by one; equal nodes become one.

    ``line`` and ``label`` are attached to what is added until they are set anew.
    """

    def __init__(self, symbols: Sequence[Symbol] = ()) -> None:
        self.symbols = tuple(symbols)
        self.line: int | None = None
        self._nodes: list[Node] = []
        self._numbers: dict[Node, int] = {}

    def add(self, op: Op, *operands: int) -> int:
        """Add ``op`` and return its number, that of an equal node where there is one.

        Raises:
            IrError: it does not take these operands, or not for every workload's sizes.
        """
        types = [self._nodes[i].type for i in operands]
        node = Node(op, operands, op.result(*types), self.line)
        if node in self._numbers:
            return self._numbers[node]
        for sizes in self._sizes():
            if any(extent.at(sizes) < 0 for extent in node.type.shape) or not op.fits(sizes, types):
                at = ", ".join(f"{name} = {size}" for name, size in sizes.items())
                raise IrError(
                    f"{op} of {', '.join(map(str, types))} does not fit{at and ' at '}{at}"
                )
        self._nodes.append(node)
        self._numbers[node] = len(self._nodes) - 1
        return len(self._nodes) - 1

    def type(self, number: int) -> TensorType:
        """The type of a node."""
        return self._nodes[number].type

    def node(self, number: int) -> Node:
        """A node."""
        return self._nodes[number]

    def finish(
        self,
        returns: Sequence[Returned],
        writes: Sequence[tuple[str, int]] = (),
        *,
        returns_tuple: bool = True,
        labels: Mapping[int, str] | None = None,
    ) -> Program:
        """Return the program, without the nodes that nothing needs.

        Raises:
            IrError: an argument is written with what is not of its type.
        """
        inputs = {n.op.parameter: i for i, n in enumerate(self._nodes) if isinstance(n.op, Input)}
        for parameter, number in writes:
            if self.type(inputs[parameter]) != self.type(number):
                own = self.type(inputs[parameter])
                raise IrError(f"{parameter} is {own} and written as {self.type(number)}")
        # What is written is an input of the program, read or not.
        wanted = [r.node for r in returns if r.node is not None]
        wanted += [n for parameter, node in writes for n in (inputs[parameter], node)]
        kept = self._reached(wanted)
        number_of = {old: new for new, old in enumerate(kept)}
        names = labels or {}
        nodes = [
            Node(n.op, tuple(number_of[i] for i in n.operands), n.type, n.line, names.get(old, ""))
            for old, n in ((old, self._nodes[old]) for old in kept)
        ]
        return Program(
            nodes=tuple(nodes),
            returns=tuple(
                Returned(None if r.node is None else number_of[r.node], r.argument, r.constant)
                for r in returns
            ),
            writes=tuple((parameter, number_of[n]) for parameter, n in writes),
            symbols=tuple(s for s in self.symbols if any(s.name in _symbols(n) for n in nodes)),
            returns_tuple=returns_tuple,
        )

    def _sizes(self) -> tuple[Mapping[str, int], ...]:
        return Program((), (), symbols=self.symbols).sizes

    def _reached(self, wanted: Sequence[int]) -> list[int]:
        reached, waiting = set[int](), list(wanted)
        while waiting:
            number = waiting.pop()
            if number not in reached:
                reached.add(number)
                waiting += self._nodes[number].operands
        return sorted(reached)


def _symbols(node: Node) -> frozenset[str]:
    """The symbols of a node's type and attributes."""
    values = [getattr(node.op, f.name) for f in fields(node.op)]
    extents = [*node.type.shape, *(v for v in values if isinstance(v, Extent))]
    return frozenset[str]().union(*(extent.symbols for extent in extents))


def _line(number: int, node: Node) -> str:
    operands = "".join(f" %{i}" for i in node.operands)
    place = "" if node.line is None else f"  # line {node.line}"
    name = f" ({node.label})" if node.label else ""
    return f"%{number} = {node.op}{operands} : {node.type}{name}{place}"


def _returned(value: Returned) -> str:
    if value.node is not None:
        return f"%{value.node}"
    return value.argument if value.argument is not None else repr(value.constant)
