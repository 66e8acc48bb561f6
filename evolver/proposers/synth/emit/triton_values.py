"""Elements of a row program as blocks of Triton: one axis per loop that lies in lanes.

Driven by demand, as in C++. A block knows its axes, so that broadcasts are written where two
meet. What is read at another place is loaded or computed anew there; only of what elements
meet in, an element is picked out of the block.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from evolver.proposers.synth import ir
from evolver.proposers.synth.emit import triton_text as tt
from evolver.proposers.synth.emit.index import Atom, Divided, Index, Looked, Place, Variable
from evolver.proposers.synth.emit.lanes import Lanes
from evolver.proposers.synth.emit.memory import Memory, Tensor
from evolver.proposers.synth.emit.names import Names, wanted_name
from evolver.proposers.synth.emit.places import Below, Condition, Source, compared, open_sources
from evolver.proposers.synth.emit.scopes import EmitError
from evolver.proposers.synth.extents import Extent
from evolver.proposers.synth.plan import Plan

LONGEST_EXPRESSION = 56
LONGEST_ROW = 16384
"""Elements that a program holds at once, where the genes do not say."""
ROWS = -1
"""The axis of the rows, where a program has several; it comes first."""
HEAVY = (ir.Reduce, ir.Scan, ir.TopK, ir.ArgSort, ir.Scatter, ir.Put, ir.Matmul)


@dataclass(frozen=True)
class Block:
    """An expression and its axes: numbers of lanes, ascending; none is a scalar."""

    text: str
    axes: tuple[int, ...] = ()
    is_literal: bool = False


@dataclass(frozen=True)
class Lane:
    """A loop in lanes: its number, how many lanes there are, and whether some have no element."""

    number: int
    variable: Variable
    block: str
    is_masked: bool


@dataclass
class Frame:
    """Statements of a loop, or of the whole program, and what is known in it."""

    variable: Variable | None
    lines: list[str] = field(default_factory=list)
    known: list[dict[tuple[int, Place], Block]] = field(default_factory=lambda: [{}])
    """One more for each condition that is open."""


class Values(ABC):
    """Writes the statements of one program into ``lines``."""

    def __init__(self, plan: Plan, memory: Memory, lanes: Lanes, names: Names) -> None:
        self.plan = plan
        self.program = plan.program
        self.memory = memory
        self.lanes = lanes
        self.names = names
        self.reads: set[tuple[str, Place]] = set()
        self.blocks: dict[str, Extent] = {}
        """Lane counts that are passed: names and what they are the next power of two of."""
        self.row_mask: str | None = None
        """Which rows exist, where a program has several."""
        self.rows_are_lanes = False
        self.rows_per_program = 1
        self.longest = LONGEST_ROW
        """Elements of a loop from which on a program walks over it."""
        self._lanes: dict[Variable, Lane] = {}
        self._frames = [Frame(None)]
        self._depth = 0
        self._conditions: list[Block] = []
        self._users = plan.program.users()

    @abstractmethod
    def stage(self, number: int, place: Place) -> Block:
        """An element of what elements meet in."""

    @abstractmethod
    def say(self, number: int) -> None:
        """Point at the line of the reference that follows now."""

    def value(self, number: int, place: Place) -> Block:
        """A block of a node's elements."""
        known = self._find(number, place)
        if known is not None:
            return known
        depth = self._home(place)
        if depth < self._depth and not self._conditions:
            with self._at(depth):
                return self.value(number, place)
        node = self.program.nodes[number]
        tensor = self.memory.tensor(number)
        if tensor is not None:
            block = self._named(number, self._load(tensor, place))
        elif isinstance(node.op, HEAVY):
            if self._conditions and self.is_certain(number, place):
                with self.unconditionally():
                    return self.value(number, place)
            block = self.stage(number, place)
        elif node.op.moves or isinstance(node.op, ir.Concat | ir.Pad | ir.Update):
            found = open_sources(self.program, number, place)
            block = self._named(number, self._one_of(found))
        else:
            block = self._named(number, self._computed(node, place))
        self._frames[self._depth].known[-1][number, place] = block
        return block

    # Loops.

    @property
    def lines(self) -> list[str]:
        """Statements of the innermost loop that is being written."""
        return self._frames[self._depth].lines

    @lines.setter
    def lines(self, lines: list[str]) -> None:
        self._frames[self._depth].lines = lines

    def is_looped(self, variable: Variable) -> bool:
        """Whether a loop is too long for lanes, so that a program walks over it."""
        longest = max(variable.extent.at(sizes) for sizes in self.program.sizes)
        return variable not in self.lanes.rows.values() and longest > self.longest

    @contextmanager
    def loops(self, variables: Sequence[Variable]) -> Iterator[None]:
        """Write within loops over those of ``variables`` that are too long for lanes."""
        looped = [v for v in variables if self.is_looped(v)]
        if not looped:
            yield
            return
        variable = looped[0]
        if self._is_open(variable):
            raise EmitError(f"a loop over {variable.extent} elements within itself")
        # A loop that is begun from within another one, and needs nothing of it, stands before it.
        suspended = self._frames[self._depth + 1 :]
        self._frames = [*self._frames[: self._depth + 1], Frame(variable)]
        self._depth += 1
        try:
            with self.loops(looped[1:]):
                yield
        finally:
            frame = self._frames.pop()
            self._frames += suspended
            self._depth -= 1
        start, lane = self.names.fresh("start"), self.lane(variable)
        self.lines.append(f"for {start} in range(0, {self.size(variable.extent)}, {lane.block}):")
        self.lines.append(f"    {variable.name} = {start} + tl.arange(0, {lane.block})")
        self.lines += [f"    {line}" for line in frame.lines]

    def _is_open(self, variable: Variable) -> bool:
        return any(frame.variable == variable for frame in self._frames[: self._depth + 1])

    def is_certain(self, number: int, place: Place) -> bool:
        """Whether a place is provably within a node, whatever conditions are open."""
        shape = self.program.nodes[number].type.shape
        looked = [a for index in place for a in index.atoms() if isinstance(a, Looked)]
        return all(i.lies_below(e) for i, e in zip(place, shape, strict=True)) and all(
            self.is_certain(a.node, a.place) for a in looked
        )

    def used(self, place: Place) -> list[Variable]:
        """Loops that a reduction at a place must not open anew: its own, and conditions'."""
        axes = {a for c in self._conditions for a in c.axes if a != ROWS}
        return [v for i in place for v in i.variables()] + [self.lane_at(a).variable for a in axes]

    def _home(self, place: Place) -> int:
        """The innermost loop that a place depends on."""
        variables = {v for index in place for v in index.variables()}
        return max(
            (d for d, f in enumerate(self._frames) if f.variable in variables and d <= self._depth),
            default=0,
        )

    @contextmanager
    def _at(self, depth: int) -> Iterator[None]:
        """Write before the loops that are further in than ``depth``."""
        before, self._depth = self._depth, depth
        try:
            yield
        finally:
            self._depth = before

    def _find(self, number: int, place: Place) -> Block | None:
        for frame in reversed(self._frames[: self._depth + 1]):
            for known in reversed(frame.known):
                if (number, place) in known:
                    return known[number, place]
        return None

    # Axes.

    def lane(self, variable: Variable) -> Lane:
        """The lanes of a loop within the row; they are declared when first asked for."""
        if variable not in self._lanes:
            extent = variable.extent.constant
            if self.is_looped(variable):
                block, masked = str(self.longest), extent is None or extent % self.longest != 0
            elif extent is not None:
                count = 1 << max(0, extent - 1).bit_length()
                block, masked = str(count), count != extent
            else:
                block, masked = f"BLOCK_{variable.name.upper()}", True
                self.blocks[block] = variable.extent
            lane = Lane(len(self._lanes), variable, block, masked)
            self._lanes[variable] = lane
            if not self.is_looped(variable):
                self._frames[0].lines.append(f"{variable.name} = tl.arange(0, {block})")
        return self._lanes[variable]

    def axis_of(self, variable: Variable) -> int | None:
        """The block axis along which a loop lies; None where it is one number per program."""
        if variable in self.lanes.rows.values():
            return ROWS if self.rows_are_lanes else None
        if self.is_looped(variable) and not self._is_open(variable):
            raise EmitError(f"a block of {variable.extent} elements, which do not fit in a program")
        return self.lane(variable).number

    def lane_at(self, axis: int) -> Lane:
        """The lanes with a number."""
        return next(lane for lane in self._lanes.values() if lane.number == axis)

    def shape(self, axes: Sequence[int]) -> str:
        """The shape of a block with these axes."""
        sizes = [self.row_count if a == ROWS else self.lane_at(a).block for a in axes]
        return f"[{', '.join(sizes)}]"

    @property
    def row_count(self) -> str:
        """How many rows a program has."""
        return str(self.rows_per_program)

    def spread_to(self, block: Block, axes: Sequence[int]) -> str:
        """A block's text with axes of one wherever it lacks one of ``axes``."""
        if not block.axes or tuple(axes) == block.axes:
            return block.text
        slots = ", ".join(":" if a in block.axes else "None" for a in axes)
        text = block.text if block.text.isidentifier() else f"({bare(block.text)})"
        return f"{text}[{slots}]"

    def joined(self, blocks: Sequence[Block]) -> tuple[list[str], tuple[int, ...]]:
        """Texts of blocks that broadcast against one another, and their common axes."""
        axes = tuple(sorted({a for b in blocks for a in b.axes}))
        return [self.spread_to(b, axes) for b in blocks], axes

    def mask(self, axes: Sequence[int]) -> Block | None:
        """Which elements of a block with these axes exist, and are asked for."""
        return self._all_of([*self._exist(axes), *self._conditions])

    def lane_mask(self, variable: Variable) -> Block | None:
        """Which lanes of a loop have an element."""
        return self._all_of(self._exist((self.lane(variable).number,)))

    def _exist(self, axes: Sequence[int]) -> list[Block]:
        parts = [Block(self.row_mask, (ROWS,))] if ROWS in axes and self.row_mask else []
        for axis in axes:
            if axis != ROWS and (lane := self.lane_at(axis)).is_masked:
                end = self.size(lane.variable.extent)
                parts.append(Block(f"({lane.variable.name} < {end})", (axis,)))
        return parts

    def _all_of(self, parts: Sequence[Block]) -> Block | None:
        if not parts:
            return None
        texts, common = self.joined(parts)
        return Block(" & ".join(texts), common)

    @contextmanager
    def under(self, condition: Block) -> Iterator[None]:
        """Load only where ``condition`` holds."""
        self._conditions.append(condition)
        known = self._frames[self._depth].known
        known.append({})
        try:
            yield
        finally:
            known.pop()
            self._conditions.pop()

    @contextmanager
    def unconditionally(self) -> Iterator[None]:
        """Compute what all may use."""
        frame = self._frames[self._depth]
        conditions, self._conditions = self._conditions, []
        known, frame.known = frame.known, frame.known[:1]
        try:
            yield
        finally:
            self._conditions, frame.known = conditions, known

    # Places.

    def index(self, index: Index) -> Block:
        """A place as a block of integers."""
        parts: list[Block] = []
        for atom, factor in index.terms:
            block = self._atom(atom)
            if factor == Extent.of(1):
                parts.append(block)
                continue
            size = self.size(factor)
            size = size if size.isidentifier() or size.isdigit() else f"({size})"
            inner = self._factor(block)
            parts.append(Block(f"{inner} * {size}", block.axes))
        if index.start != Extent() or not parts:
            parts.append(Block(self.size(index.start)))
        texts, axes = self.joined(parts)
        return Block(" + ".join(texts).replace("+ -", "- "), axes)

    def size(self, extent: Extent) -> str:
        """An extent as text."""
        return self.memory.size(extent)

    def _factor(self, block: Block) -> str:
        simple = block.text.isidentifier() or bare(block.text) != block.text
        return block.text if simple else f"({block.text})"

    def _atom(self, atom: Atom) -> Block:
        match atom:
            case Variable(name):
                axis = self.axis_of(atom)
                return Block(name, () if axis is None else (axis,))
            case Looked(node, place):
                return self.value(node, place)
            case Divided(index, by, remainder):
                inner = self.index(index)
                size = self.size(by)
                size = size if size.isdigit() or size.isidentifier() else f"({size})"
                sign = "%" if remainder else "//"
                return Block(f"({self._factor(inner)} {sign} {size})", inner.axes)

    # Elements.

    def _load(self, tensor: Tensor, place: Place) -> Block:
        if tensor.parameter is not None:
            self.reads.add((tensor.parameter, place))
        offset = self.index(tensor.offset(place))
        mask = self.mask(offset.axes)
        address = tensor.name if offset.text == "0" else f"{tensor.name} + {offset.text}"
        if mask is None:
            return Block(tt.loaded(f"tl.load({address})", tensor.dtype), offset.axes)
        (at, where), axes = self.joined([offset, mask])
        zero = "0.0" if tensor.dtype.is_floating else "0"
        address = tensor.name if at == "0" else f"{tensor.name} + {at}"
        if axes != offset.axes and not offset.axes:
            address = f"{tensor.name} + tl.zeros({self.shape(axes)}, tl.int32) + {at}"
        text = f"tl.load({address}, mask={bare(where)}, other={zero})"
        return Block(tt.loaded(text, tensor.dtype), axes)

    def _computed(self, node: ir.Node, place: Place) -> Block:
        match node.op:
            case ir.Constant(value, dtype):
                if isinstance(value, Extent):
                    return Block(f"tl.cast({self.size(value)}, {tt.type_name(dtype.wide)})")
                return Block(tt.literal(value, dtype), (), is_literal=True)
            case ir.Iota(_, dtype):
                inner = self.index(place[0])
                if inner.text.lstrip("-").isdigit():
                    return Block(tt.literal(int(inner.text), dtype), (), is_literal=True)
                return Block(f"tl.cast({inner.text}, {tt.type_name(dtype)})", inner.axes)
            case ir.Cast(dtype):
                old = self.program.nodes[node.operands[0]].type.dtype
                inner = self.value(node.operands[0], place)
                text = inner.text
                if inner.is_literal and not text.startswith("tl.full"):
                    text = f"tl.full((), {text}, {tt.type_name(old.wide)})"
                return Block(tt.converted(text, old, dtype), inner.axes)
            case ir.Select():
                (c, yes, no), axes = self.joined([self.value(o, place) for o in node.operands])
                return Block(f"tl.where({bare(c)}, {bare(yes)}, {bare(no)})", axes)
            case ir.Pointwise(function):
                return self._applied(node, function, [self.value(o, place) for o in node.operands])
        raise EmitError(f"Triton for {node.op} is not known")

    def _applied(self, node: ir.Node, function: str, operands: Sequence[Block]) -> Block:
        texts, axes = self.joined(operands)
        dtype = self.program.nodes[node.operands[0]].type.dtype
        if all(o.is_literal for o in operands):
            texts[0] = f"tl.full((), {texts[0]}, {tt.type_name(dtype.wide)})"
        text = tt.applied(function, texts, dtype)
        rounds = node.type.dtype is dtype and self.plan.genes.rounded
        return Block(tt.rounded(text, dtype) if rounds else text, axes)

    def _one_of(self, found: Sequence[tuple[Source, Sequence[Condition]]]) -> Block:
        (source, conditions), *others = found
        if not conditions:
            return self.value(source.operand, source.place)
        texts, axes = self.joined([self._condition(c) for c in conditions])
        name = self.names.fresh("inside")
        self.lines.append(f"{name} = {' & '.join(texts)}")
        condition = Block(name, axes)
        with self.under(condition):
            then = self.value(source.operand, source.place)
        with self.under(Block(f"(~{name})", axes)):
            otherwise = self._one_of(others)
        (c, yes, no), axes = self.joined([condition, then, otherwise])
        return Block(f"tl.where({c}, {bare(yes)}, {bare(no)})", axes)

    def _condition(self, condition: Condition) -> Block:
        if isinstance(condition, Below):
            inner, sign, bound = compared(condition)
            index = self.index(inner)
            return Block(f"({index.text} {sign} {self.size(bound)})", index.axes)
        index = self.index(condition.index)
        return Block(f"({self._factor(index)} % {condition.by} == 0)", index.axes)

    def _named(self, number: int, block: Block) -> Block:
        """Give a value a name where it is read more than once, or long."""
        node = self.program.nodes[number]
        if block.text.isidentifier() or block.is_literal:
            return block
        tensor = self.memory.tensor(number)
        labelled = bool(node.label) and tensor is None
        long = len(block.text) > LONGEST_EXPRESSION
        if not (labelled or long or len(self._users[number]) > 1):
            return block
        wanted = wanted_name(node) if tensor is None else f"{tensor.name}_value"
        if labelled:
            self.say(number)
        return self.named(wanted, block)

    def named(self, wanted: str, block: Block) -> Block:
        """Put a block into a variable."""
        name = self.names.fresh(wanted)
        self.lines.append(f"{name} = {bare(block.text)}")
        return Block(name, block.axes)


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
