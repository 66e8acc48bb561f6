"""Reductions of Triton blocks: in lanes, or along rows that a program walks over."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from evolver.proposers.synth import ir
from evolver.proposers.synth.emit import triton_text as tt
from evolver.proposers.synth.emit.index import Index, Place, Variable
from evolver.proposers.synth.emit.lanes import Lanes
from evolver.proposers.synth.emit.memory import Memory
from evolver.proposers.synth.emit.names import Names, wanted_name
from evolver.proposers.synth.emit.scopes import EmitError
from evolver.proposers.synth.emit.triton_values import ROWS, Block, Values, bare
from evolver.proposers.synth.plan import Plan
from evolver.proposers.synth.types import ElementType

MOST_ELEMENTS = 131072
"""Of one block: more do not fit in a multiprocessor."""
LOWEST_KEY, HIGHEST_KEY = "-0x8000000000000000", "0x7FFFFFFFFFFFFFFF"


class Folds(Values):
    """What many elements come to, and what comments say of it."""

    def __init__(
        self,
        plan: Plan,
        memory: Memory,
        lanes: Lanes,
        names: Names,
        comment: Callable[[ir.Node], str],
    ) -> None:
        super().__init__(plan, memory, lanes, names)
        self._comment = comment
        self._said = ""

    def comment_of(self, number: int) -> str:
        """A comment that points at a node's line, unless that was said last."""
        said = self._comment(self.program.nodes[number])
        return f"# {said}" if said and said != self._said else ""

    def say(self, number: int) -> None:
        """Point at the line of the reference that follows now."""
        said = self._comment(self.program.nodes[number])
        if said and said != self._said:
            self.lines.append(f"# {said}")
            self._said = said

    # Reductions.

    def reduced(self, number: int, op: ir.Reduce, place: Place) -> Block:
        """A reduction's elements at a place."""
        node = self.program.nodes[number]
        (operand,) = node.operands
        used = self.used(place)
        kept, whole, inner = list(place), list[Index](), list[Variable]()
        for axis in range(self.program.nodes[operand].type.rank):
            if axis in op.axes:
                index, loops = self.lanes.along(operand, axis, [*used, *inner])
                inner += loops
                whole.append(index)
            else:
                whole.append(kept.pop(0))
        dtype = self.program.nodes[operand].type.dtype
        if op.kind in ("argmax", "argmin"):
            if any(self.is_looped(v) for v in inner):
                raise EmitError(f"the position of an extreme of a long row (line {node.line})")
            x = self.value(operand, tuple(whole))
            self.say(number)
            position = self.index(whole[op.axes[0]])
            found = self._position_of_extreme(x, position, inner, dtype, op.kind == "argmax")
        elif any(self.is_looped(v) for v in inner):
            found = self._fold_of_loop(number, op.kind, tuple(whole), inner)
        else:
            x = self.value(operand, tuple(whole))
            self.say(number)
            found = self.fold(op.kind, x, inner, dtype)
        text = tt.rounded(found.text, dtype) if op.kind in ("sum", "prod") else found.text
        return self.named(wanted_name(node), Block(text, found.axes))

    def _fold_of_loop(
        self, number: int, kind: str, whole: Place, inner: Sequence[Variable]
    ) -> Block:
        """Walk over a row that is too long for lanes, and fold the lanes at the end."""
        (operand,) = self.program.nodes[number].operands
        dtype = self.program.nodes[operand].type.dtype
        name = self.names.fresh(f"{wanted_name(self.program.nodes[number])}_lanes")
        identity = identity_of(kind, dtype)
        with self.loops(inner):
            x = self.with_identity(self.value(operand, whole), inner, identity)
            axes = x.axes
            self.lines.append(f"{name} = {_step(kind, name, bare(x.text), dtype)}")
        shape = f"tl.full({self.shape(axes)}, {identity}, {tt.type_name(dtype.wide)})"
        at_loop = max(i for i, line in enumerate(self.lines) if line.startswith("for "))
        self.lines.insert(at_loop, f"{name} = {shape}")
        said = self.comment_of(number)
        if said:
            self.lines.insert(at_loop, said)
        return self.fold(kind, Block(name, axes), inner, dtype, padded=True)

    def fold(
        self,
        kind: str,
        x: Block,
        over: Sequence[Variable],
        dtype: ElementType,
        *,
        padded: bool = False,
    ) -> Block:
        """Reduce a block along loops; what has no element counts for nothing."""
        if not over:
            return x
        as_bits = dtype is ElementType.BOOL
        if not padded:
            x = self.with_identity(x, over, identity_of(kind, dtype))
        text = x.text
        if as_bits:
            text = f"{text if text.isidentifier() else f'({bare(text)})'}.to(tl.int32)"
        axes = list(x.axes)
        for variable in over:
            axis = axes.index(self.lane(variable).number)
            text = _folded(kind, bare(text), axis, dtype)
            axes.pop(axis)
        if as_bits:
            text = f"({text} != 0)"
        elif dtype.is_integer and dtype.itemsize_bytes < 4:
            text = f"{text}.to({tt.type_name(dtype)})"
        return Block(text, tuple(axes))

    def with_identity(self, x: Block, over: Sequence[Variable], identity: str) -> Block:
        """The block with the identity where a lane has no element, over all of ``over``."""
        axes = tuple(sorted({*x.axes, *(self.lane(v).number for v in over)}))
        self.check_size(axes)
        masks = [self.lane_mask(v) for v in over]
        missing = set(axes) - set(x.axes)
        blocks = [m for m in masks if m is not None]
        if missing and not blocks:
            covered = [self.lane_at(a) for a in missing]
            blocks = [Block(f"({lane.variable.name} >= 0)", (lane.number,)) for lane in covered]
        if not blocks:
            return x
        texts, common = self.joined(blocks)
        condition = self.spread_to(Block(" & ".join(texts), common), axes)
        return Block(
            f"tl.where({bare(condition)}, {bare(self.spread_to(x, axes))}, {identity})", axes
        )

    def _position_of_extreme(
        self,
        x: Block,
        position: Block,
        over: Sequence[Variable],
        dtype: ElementType,
        largest: bool,
    ) -> Block:
        x = x if x.text.isidentifier() else self.named("candidates", x)
        kind = "max" if largest else "min"
        best = self.named("best", self.fold(kind, x, over, dtype))
        (value, top, where), axes = self.joined([x, best, position])
        hit = f"({value} == {top})"
        if dtype.is_floating:
            hit = f"({hit} | ({value} != {value}))"
        at_hit = Block(f"tl.where({bare(hit)}, {where}, 0x7FFFFFFF)", axes)
        first = self.fold("min", at_hit, over, ElementType.INT32)
        return Block(f"({bare(first.text)}).to(tl.int64)", first.axes)

    def check_size(self, axes: Sequence[int]) -> None:
        """Raise ``EmitError`` where a block with these axes is too large for a program."""
        total = self.rows_per_program if ROWS in axes else 1
        for axis in axes:
            if axis == ROWS:
                continue
            extent = self.lane_at(axis).variable.extent
            total *= max(extent.at(sizes) for sizes in self.program.sizes)
        if total > MOST_ELEMENTS:
            raise EmitError(f"a block of {total} elements does not fit in a multiprocessor")


def _step(kind: str, so_far: str, value: str, dtype: ElementType) -> str:
    """What one more block makes of the lanes."""
    match kind:
        case "sum":
            return f"{so_far} + {value}"
        case "prod":
            return f"{so_far} * ({value})"
        case "any":
            return f"{so_far} | ({value})"
        case "all":
            return f"{so_far} & ({value})"
    if dtype.is_floating:
        return f"{'larger' if kind == 'max' else 'smaller'}({so_far}, {value})"
    return f"tl.{kind}imum({so_far}, {value})"


def identity_of(kind: str, dtype: ElementType) -> str:
    """What changes nothing when it is folded in."""
    match kind:
        case "sum":
            return "False" if dtype is ElementType.BOOL else "0"
        case "prod":
            return "1"
        case "any":
            return "False"
        case "all":
            return "True"
    if dtype is ElementType.BOOL:
        return "False" if kind == "max" else "True"
    if dtype is ElementType.INT64:
        return LOWEST_KEY if kind == "max" else HIGHEST_KEY
    return tt.extreme(dtype, largest=kind == "min")


def _folded(kind: str, text: str, axis: int, dtype: ElementType) -> str:
    match kind:
        case "any":
            return f"tl.max({text}, axis={axis})"
        case "all":
            return f"tl.min({text}, axis={axis})"
        case "sum":
            return f"tl.sum({text}, axis={axis})"
        case "prod":
            return f"tl.reduce({text}, {axis}, multiplied)"
    if dtype.is_floating:
        return f"tl.reduce({text}, {axis}, {'larger' if kind == 'max' else 'smaller'})"
    return f"tl.{kind}({text}, axis={axis})"
