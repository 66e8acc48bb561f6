"""Elements of a row program as C++ expressions, within the loops of one row.

Driven by demand: a store asks for a value at a place, moves become other places, loads are
found at theirs. What elements meet in, and what is dear and read twice, is asked of ``stage``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from evolver.proposers.synth import ir
from evolver.proposers.synth.emit import cpp_text as cpp
from evolver.proposers.synth.emit.call import indented
from evolver.proposers.synth.emit.index import Atom, Divided, Index, Looked, Place, Variable
from evolver.proposers.synth.emit.index import text_of as text_of_index
from evolver.proposers.synth.emit.lanes import Lanes
from evolver.proposers.synth.emit.memory import Memory, Tensor
from evolver.proposers.synth.emit.names import Names, wanted_name
from evolver.proposers.synth.emit.places import (
    Below,
    Condition,
    Source,
    compared,
    cut_of,
    open_sources,
)
from evolver.proposers.synth.emit.scopes import EmitError, Scopes
from evolver.proposers.synth.extents import Extent
from evolver.proposers.synth.plan import Plan

LONGEST_EXPRESSION = 60
HEAVY = (ir.Reduce, ir.Scan, ir.TopK, ir.ArgSort, ir.Scatter, ir.Put, ir.Matmul)
DEAR = frozenset(
    (
        *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt"),
        *("sin", "cos", "tan", "sinh", "cosh", "tanh", "asin", "acos", "atan", "atan2"),
        *("sigmoid", "erf", "erfc", "pow", "fmod", "remainder", "floor_div"),
    )
)


class Values(ABC):
    """Writes expressions; statements that they need go into ``scopes``."""

    def __init__(self, plan: Plan, memory: Memory, lanes: Lanes, names: Names) -> None:
        self.plan = plan
        self.program = plan.program
        self.memory = memory
        self.lanes = lanes
        self.names = names
        self.scopes = Scopes(frozenset(lanes.rows.values()), names)
        self.reads: set[tuple[str, Place]] = set()
        """Arguments that are read, and where."""
        self.cuts: dict[Variable, set[int]] = {}
        """Where within a loop a branch goes another way: loops are cut there."""
        self.ranges: dict[Atom, tuple[Extent, Extent]] = {}
        """First and last value of loops that are cut."""
        self._users = plan.program.users()

    @abstractmethod
    def stage(self, number: int, place: Place) -> str:
        """An element of what is computed in loops of its own."""

    @abstractmethod
    def is_stage(self, number: int) -> bool:
        """Whether a node is computed in loops of its own."""

    def value(self, number: int, place: Place) -> str:
        """An expression of a node's element."""
        known = self.scopes.value(number, place)
        if known is not None:
            return known
        node = self.program.nodes[number]
        tensor = self.memory.tensor(number)
        if tensor is not None:
            return self._keep(number, place, self._load(tensor, place))
        if self.is_stage(number):
            return self.stage(number, place)
        if node.op.moves or isinstance(node.op, ir.Concat | ir.Pad | ir.Update):
            return self.moved(number, place)
        return self._keep(number, place, self.computed(node, place))

    def moved(self, number: int, place: Place) -> str:
        """An expression of the operand's element that a moving node has at a place."""
        found = open_sources(self.program, number, place, self.ranges)
        for condition in (c for _, conditions in found for c in conditions):
            cut = cut_of(condition)
            if cut is not None:
                self.cuts.setdefault(cut[0], set()).add(cut[1])
        return self._one_of(number, place, found)

    def has_dear(self, number: int) -> bool:
        """Whether computing a node anew would compute an expensive function anew."""
        node = self.program.nodes[number]
        if self.memory.tensor(number) is not None or isinstance(node.op, HEAVY):
            return False
        if isinstance(node.op, ir.Pointwise) and node.op.function in DEAR:
            return True
        return any(self.has_dear(o) for o in node.operands)

    def is_read_twice(self, number: int) -> bool:
        """Whether several nodes read a node."""
        return len(self._users[number]) > 1

    def index(self, index: Index) -> str:
        """A place as text."""
        return text_of_index(index, self._atom, self.size)

    def size(self, extent: Extent) -> str:
        """An extent as text."""
        return self.memory.size(extent)

    def computed(self, node: ir.Node, place: Place) -> str:
        """An expression of the operation itself, of its operands' elements."""
        match node.op:
            case ir.Constant(value, dtype):
                if isinstance(value, Extent):
                    return f"{cpp.c_type(dtype)}({self.size(value)})"
                return cpp.literal(value, dtype)
            case ir.Iota(_, dtype):
                return f"{cpp.c_type(dtype)}({self.index(place[0])})"
            case ir.Cast(dtype):
                old = self.program.nodes[node.operands[0]].type.dtype
                return cpp.converted(self.value(node.operands[0], place), old, dtype)
            case ir.Select():
                condition, yes, no = (self.value(o, place) for o in node.operands)
                return f"({condition} ? {yes} : {no})"
            case ir.Pointwise(function):
                arguments = [self.value(o, place) for o in node.operands]
                dtype = self.program.nodes[node.operands[0]].type.dtype
                result = cpp.applied(function, arguments, dtype)
                rounds = node.type.dtype is dtype and self.plan.genes.rounded
                return cpp.rounded(result, dtype) if rounds else result
        raise EmitError(f"C++ for {node.op} is not known")

    def _keep(self, number: int, place: Place, text: str) -> str:
        """Give a value a name where it is read more than once, or long."""
        node = self.program.nodes[number]
        home = self.scopes.home(variables_of(place))
        trivial = isinstance(node.op, ir.Constant) or text.isidentifier()
        long = len(text) > LONGEST_EXPRESSION
        tensor = self.memory.tensor(number)
        labelled = bool(node.label) and tensor is None
        hoisted = home is not self.scopes.inner
        if not trivial and (long or labelled or hoisted or self.is_read_twice(number)):
            wanted = wanted_name(node) if tensor is None else f"{tensor.name}_value"
            name = self.scopes.name(home, wanted)
            home.lines.append(f"const {cpp.c_type(node.type.dtype)} {name} = {bare(text)};")
            text = name
        home.values[number, place] = text
        return text

    def _load(self, tensor: Tensor, place: Place) -> str:
        if tensor.parameter is not None:
            self.reads.add((tensor.parameter, place))
        return cpp.loaded(f"{tensor.name}[{self.index(tensor.offset(place))}]", tensor.dtype)

    def _one_of(
        self, number: int, place: Place, found: Sequence[tuple[Source, Sequence[Condition]]]
    ) -> str:
        """A value from the first source whose conditions hold."""
        (source, conditions), *others = found
        if not conditions:
            return self.value(source.operand, source.place)
        node = self.program.nodes[number]
        condition = " && ".join(self._condition(c) for c in conditions)
        home = self.scopes.home(variables_of(place))
        name = self.scopes.name(home, wanted_name(node))
        with self.scopes.within(branch=True) as yes:
            then = self.value(source.operand, source.place)
        with self.scopes.within(branch=True) as no:
            otherwise = self._one_of(number, place, others)
        c_type = cpp.c_type(node.type.dtype)
        home.values[number, place] = name
        if not yes.lines and not no.lines:
            text = f"{condition} ? {bare(then)} : {otherwise}"
            home.lines.append(f"const {c_type} {name} = {text};")
            return name
        home.lines += [f"{c_type} {name};", f"if ({condition}) {{"]
        home.lines += [*indented(yes.lines), f"    {name} = {bare(then)};", "} else {"]
        home.lines += [*indented(no.lines), f"    {name} = {bare(otherwise)};", "}"]
        return name

    def _condition(self, condition: Condition) -> str:
        if isinstance(condition, Below):
            inner, sign, bound = compared(condition)
            return f"{self.index(inner)} {sign} {self.size(bound)}"
        return f"({self.index(condition.index)}) % {condition.by} == 0"

    def _atom(self, atom: Atom) -> str:
        match atom:
            case Variable(name):
                return name
            case Looked(node, place):
                return self.value(node, place)
            case Divided(index, by, remainder):
                size = self.size(by)
                by_text = size if size.isalnum() else f"({size})"
                inner = self.index(index)
                inner = inner if inner.isidentifier() else f"({inner})"
                return f"({inner} {'%' if remainder else '/'} {by_text})"


def variables_of(place: Place) -> frozenset[Variable]:
    """The loops that a place depends on."""
    return frozenset[Variable]().union(*(index.variables() for index in place))


def bare(text: str) -> str:
    """An expression without the parentheses around all of it."""
    if not (text.startswith("(") and text.endswith(")")):
        return text
    depth = 0
    for position, character in enumerate(text):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if depth == 0 and position < len(text) - 1:
            return text
    return text[1:-1]
