"""Stages of a Triton program: reductions, scans, selections and scatters of blocks."""

from __future__ import annotations

from collections.abc import Sequence

from evolver.proposers.synth import ir
from evolver.proposers.synth.emit import triton_text as tt
from evolver.proposers.synth.emit.index import Index, Place, Variable, at
from evolver.proposers.synth.emit.names import wanted_name
from evolver.proposers.synth.emit.scopes import EmitError
from evolver.proposers.synth.emit.triton_folds import LOWEST_KEY, Folds, identity_of
from evolver.proposers.synth.emit.triton_values import ROWS, Block, bare
from evolver.proposers.synth.extents import product
from evolver.proposers.synth.types import ElementType

PACKABLE = (
    *(ElementType.FLOAT32, ElementType.FLOAT16, ElementType.BFLOAT16, ElementType.INT32),
    *(ElementType.INT16, ElementType.INT8, ElementType.UINT8, ElementType.BOOL),
)
"""Types of which value and position fit into one key of 64 bits."""


class Program(Folds):
    """Writes the statements of one program; ``lines`` is the result."""

    def stage(self, number: int, place: Place) -> Block:
        """An element of a stage: computed at its place, or picked out of the whole block."""
        node = self.program.nodes[number]
        match node.op:
            case ir.Reduce():
                return self.reduced(number, node.op, place)
            case ir.Scatter() | ir.Put():
                return self._scattered(number, place)
            case ir.Scan(axis=axis) | ir.TopK(axis=axis) | ir.ArgSort(axis=axis):
                return self._of_row(number, axis, place)
        raise EmitError(f"Triton for {node.op.name} is not known; leave it to the library")

    # What is computed for a row as a whole.

    def _of_row(self, number: int, axis: int, place: Place) -> Block:
        """An element of a scan, a top-k or a sort at a place along its axis."""
        used = self.used((*place[:axis], *place[axis + 1 :]))
        own, loops = self.lanes.along(number, axis, used)
        whole = (*place[:axis], own, *place[axis + 1 :])
        if self.is_certain(number, whole):
            with self.unconditionally():
                block = self._stage(number, axis, whole, loops)
        else:
            block = self._stage(number, axis, whole, loops)
        if place[axis] == own:
            return block
        if place[axis].variables() & set(loops):
            own, loops = self.lanes.along(number, axis, [*used, *place[axis].variables()])
            whole = (*place[:axis], own, *place[axis + 1 :])
            block = self._whole_row(number, axis, whole, loops)
        return self._picked(number, block, own, loops, place[axis])

    def _stage(self, number: int, axis: int, whole: Place, loops: tuple[Variable, ...]) -> Block:
        operand = self.program.nodes[number].operands[0]
        over = self.lanes.along(operand, axis)[1]
        if any(self.is_looped(v) for v in (*loops, *over)):
            line = self.program.nodes[number].line
            name = self.program.nodes[number].op.name
            raise EmitError(f"a {name} of a row that does not fit in a program (line {line})")
        known = self._find(number, whole)
        if known is None:
            known = self._whole_row(number, axis, whole, loops)
            self._frames[self._depth].known[-1][number, whole] = known
        return known

    def _picked(
        self, number: int, block: Block, own: Index, loops: Sequence[Variable], wanted: Index
    ) -> Block:
        """The element of a block at a place along ``loops``."""
        dtype = self.program.nodes[number].type.dtype
        (value, here, there), axes = self.joined([block, self.index(own), self.index(wanted)])
        self.check_size(axes)
        chosen = Block(f"tl.where({here} == {there}, {value}, 0)", axes)
        picked = self.fold("sum", chosen, loops, dtype)
        return self.named(f"{wanted_name(self.program.nodes[number])}_at", picked)

    def _whole_row(
        self, number: int, axis: int, whole: Place, loops: tuple[Variable, ...]
    ) -> Block:
        node = self.program.nodes[number]
        match node.op:
            case ir.Scan():
                return self._scanned(number, node.op, whole, loops)
            case ir.TopK():
                return self._top_k(number, node.op, whole, loops)
        return self._sorted(number, axis, whole, loops)

    def _scanned(
        self, number: int, op: ir.Scan, whole: Place, loops: tuple[Variable, ...]
    ) -> Block:
        node = self.program.nodes[number]
        if len(loops) > 1:
            raise EmitError(f"a scan along an axis that is split elsewhere (line {node.line})")
        x = self.value(node.operands[0], whole)
        self.say(number)
        if not loops:
            return x
        axes = tuple(sorted({*x.axes, self.lane(loops[0]).number}))
        x = x if axes == x.axes else self.with_identity(x, loops, "0")
        axis = axes.index(self.lane(loops[0]).number)
        dtype = node.type.dtype
        narrow = dtype.is_integer and dtype.itemsize_bytes < 4
        text = f"({bare(x.text)}).to(tl.int32)" if narrow else bare(x.text)
        combine = {
            "prod": "multiplied",
            "max": "larger",
            "min": "smaller",
            "logsumexp": "log_add_exp",
        }
        if op.kind == "sum":
            result = f"tl.cumsum({text}, axis={axis})"
        elif op.kind in ("max", "min") and not dtype.is_floating:
            raise EmitError(f"a running {op.kind} of integers (line {node.line})")
        else:
            result = f"tl.associative_scan({text}, {axis}, {combine[op.kind]})"
        result = f"{result}.to({tt.type_name(dtype)})" if narrow else tt.rounded(result, dtype)
        return self.named(wanted_name(node), Block(result, axes))

    # Selections.

    def _keys(
        self,
        number: int,
        axis: int,
        whole: Place,
        loops: tuple[Variable, ...],
        *,
        first_is_largest: bool,
    ) -> tuple[Block, list[Variable]]:
        """Value and position of each element in one integer, and the loops over the row.

        Larger keys are better; of equal values the one that comes first is.
        """
        node = self.program.nodes[number]
        (operand,) = node.operands
        dtype = self.program.nodes[operand].type.dtype
        if isinstance(node.op, ir.TopK):
            position, over = self.lanes.along(operand, axis, self.used(whole))
        else:
            position, over = whole[axis], loops
        x = self.value(operand, (*whole[:axis], position, *whole[axis + 1 :]))
        self.say(number)
        place = self.index(position)
        inner = bare(x.text)
        value = f"sortable({inner})" if dtype.is_floating else f"({inner}).to(tl.int32)"
        value = value if first_is_largest else f"(~{value})"
        (high, low), axes = self.joined([Block(value, x.axes), place])
        self.check_size(axes)
        keys = Block(f"ranked({bare(high)}, {bare(low)})", axes)
        keys = self.with_identity(keys, over, LOWEST_KEY)
        return self.named("keys", keys), list(over)

    def _top_k(self, number: int, op: ir.TopK, whole: Place, loops: tuple[Variable, ...]) -> Block:
        node = self.program.nodes[number]
        dtype = self.program.nodes[node.operands[0]].type.dtype
        if op.k == 0:
            return Block("0")
        algorithm = self.plan.genes.algorithm(self.program, number)
        if algorithm == "argmax" or dtype not in PACKABLE:
            return self._top_k_by_masking(number, op, whole, loops)
        keys, over = self._keys(number, op.axis, whole, loops, first_is_largest=op.largest)
        if algorithm == "bitonic":
            found = self._top_k_by_sorting(number, op, keys, over, loops)
            if found is not None:
                return found
        outer = tuple(a for a in keys.axes if a not in {self.lane(v).number for v in over})
        return self._top_k_by_maxima(number, op, keys, over, outer, loops)

    def _top_k_by_maxima(
        self,
        number: int,
        op: ir.TopK,
        keys: Block,
        over: Sequence[Variable],
        outer: tuple[int, ...],
        loops: tuple[Variable, ...],
    ) -> Block:
        """The largest key, k times; each is taken away before the next is looked for."""
        order = self.names.fresh(wanted_name(self.program.nodes[number]))
        if not loops:
            best = self.fold("max", keys, over, ElementType.INT64)
            return self.named(order, _position(best))
        (variable,) = loops
        axes = tuple(sorted({*outer, self.lane(variable).number}))
        step, remaining = self.names.fresh("step"), keys.text
        self.lines.append(f"{order} = tl.zeros({self.shape(axes)}, tl.int64)")
        self.lines.append(f"for {step} in tl.static_range({op.k}):")
        before, self.lines = self.lines, []
        best = self.named(
            "best", self.fold("max", Block(remaining, keys.axes), over, ElementType.INT64)
        )
        (place, slot), _ = self.joined(
            [_position(best), Block(variable.name, (self.lane(variable).number,))]
        )
        self.lines.append(f"{order} = tl.where({slot} == {step}, {place}, {order})")
        top = self.spread_to(best, keys.axes)
        self.lines.append(
            f"{remaining} = tl.where({remaining} == {top}, {LOWEST_KEY}, {remaining})"
        )
        self.lines = [*before, *(f"    {line}" for line in self.lines)]
        return Block(order, axes)

    def _top_k_by_sorting(
        self,
        number: int,
        op: ir.TopK,
        keys: Block,
        over: Sequence[Variable],
        loops: tuple[Variable, ...],
    ) -> Block | None:
        """A bitonic top-k of keys; None where k or the axes do not allow it."""
        row = self._as_last_axis(keys, over)
        if row is None or not loops or op.k & (op.k - 1) or self.lane(loops[0]).is_masked:
            return None
        (variable,) = loops
        text, outer = row
        order = [*outer, self.lane(variable).number]
        if order != sorted(order):
            return None
        best = self.named("best", Block(f"tl.topk({text}, {op.k})", tuple(order)))
        return self.named(wanted_name(self.program.nodes[number]), _position(best))

    def _as_last_axis(
        self, keys: Block, over: Sequence[Variable]
    ) -> tuple[str, tuple[int, ...]] | None:
        """The block with all loops of a row as one last axis, and the axes before it."""
        numbers = [self.lane(v).number for v in over]
        if not over or list(keys.axes[len(keys.axes) - len(over) :]) != numbers:
            return None
        outer = keys.axes[: len(keys.axes) - len(over)]
        if len(over) == 1:
            return keys.text, outer
        if any(self.lane(v).is_masked for v in over):
            return None
        total = product(v.extent for v in over)
        sizes = [self.row_count if a == ROWS else self.lane_at(a).block for a in outer]
        return f"tl.reshape({keys.text}, [{', '.join([*sizes, str(total)])}])", outer

    def _top_k_by_masking(
        self, number: int, op: ir.TopK, whole: Place, loops: tuple[Variable, ...]
    ) -> Block:
        """The best of what is left, k times, as value and as position."""
        node = self.program.nodes[number]
        (operand,) = node.operands
        dtype = self.program.nodes[operand].type.dtype
        used = self.used(whole)
        position, over = self.lanes.along(operand, op.axis, used)
        x = self.value(operand, (*whole[: op.axis], position, *whole[op.axis + 1 :]))
        self.say(number)
        if not over:
            return Block("0")
        x = self.named("candidates", self.with_identity(x, over, "0"))
        if not op.largest and dtype.is_floating:
            raise EmitError(f"the smallest of {dtype.value} by masking (line {node.line})")
        here, axes = self.index(position), x.axes
        left = self.names.fresh("left")
        full = Block(f"tl.full({self.shape(axes)}, True, tl.int1)", axes)
        self.lines.append(f"{left} = {self.with_identity(full, over, 'False').text}")
        outer = [a for a in axes if a not in {self.lane(v).number for v in over}]
        order = self.names.fresh(wanted_name(node))
        slots = tuple(sorted({*outer, *(self.lane(v).number for v in loops)}))
        self.lines.append(f"{order} = tl.zeros({self.shape(slots)}, tl.int64)")
        step = self.names.fresh("step")
        self.lines.append(f"for {step} in tl.static_range({op.k}):")
        before, self.lines = self.lines, []
        kind, worst = (
            ("max", tt.extreme(dtype, largest=False))
            if op.largest
            else ("min", tt.extreme(dtype, largest=True))
        )
        rest = Block(f"tl.where({left}, {x.text}, {worst})", axes)
        best = self.named("best", self.fold(kind, rest, over, dtype))
        top = self.spread_to(best, axes)
        equal = (
            f"(({x.text} == {top}) | ({x.text} != {x.text}))"
            if dtype.is_floating
            else f"({x.text} == {top})"
        )
        spot = self.spread_to(here, axes)
        hit = Block(f"tl.where({left} & {equal}, {spot}, 0x7FFFFFFF)", axes)
        found = self.named("position", self.fold("min", hit, over, ElementType.INT32))
        self.lines.append(f"{left} = {left} & ({spot} != {self.spread_to(found, axes)})")
        slot = (
            self.spread_to(Block(loops[0].name, (self.lane(loops[0]).number,)), slots)
            if loops
            else step
        )
        self.lines.append(
            f"{order} = tl.where({slot} == {step}, {self.spread_to(found, slots)}, {order})"
        )
        self.lines = [*before, *(f"    {line}" for line in self.lines)]
        return Block(order, slots)

    def _sorted(self, number: int, axis: int, whole: Place, loops: tuple[Variable, ...]) -> Block:
        node = self.program.nodes[number]
        descending = isinstance(node.op, ir.ArgSort) and node.op.descending
        dtype = self.program.nodes[node.operands[0]].type.dtype
        if dtype not in PACKABLE:
            raise EmitError(f"sorting {dtype.value}, which is no part of a key (line {node.line})")
        if not loops:
            return Block("0")
        keys, over = self._keys(number, axis, whole, loops, first_is_largest=descending)
        row = self._as_last_axis(keys, over)
        if row is None or len(over) > 1 or row[0] != keys.text:
            raise EmitError(f"sorting along an axis that is not the last (line {node.line})")
        found = self.named("best", Block(f"tl.sort({keys.text}, descending=True)", keys.axes))
        return self.named(wanted_name(node), _position(found))

    # Scatters.

    def _scattered(self, number: int, place: Place) -> Block:
        """What a place holds: every index is asked whether it means this place."""
        node = self.program.nodes[number]
        used = self.used(place)
        if isinstance(node.op, ir.Scatter):
            axis, (base, index, source) = node.op.axis, node.operands
            along, over = self.lanes.along(index, axis, used)
            from_place = (*place[:axis], along, *place[axis + 1 :])
            asked = [(index, from_place, place[axis])]
            source_place, combine = from_place, node.op.combine
        else:
            assert isinstance(node.op, ir.Put)
            base, source, *indices = node.operands
            over, leading = (), list[Index]()
            for axis in range(self.program.nodes[indices[0]].type.rank):
                along, loops = self.lanes.along(indices[0], axis, [*used, *over])
                over, leading = (*over, *loops), [*leading, along]
            asked = [(i, tuple(leading), place[n]) for n, i in enumerate(indices)]
            source_place, combine = (*leading, *place[len(indices) :]), node.op.combine
        if any(self.is_looped(v) for v in over):
            raise EmitError(f"places of more indices than fit in a program (line {node.line})")
        hits = [self._hit(i, p, wanted) for i, p, wanted in asked]
        value = self.value(source, source_place)
        old = self.value(base, place)
        self.say(number)
        texts, axes = self.joined(hits)
        self.check_size(axes)
        hit = self.named("hit", Block(" & ".join(texts), axes))
        found = self._combined(combine, hit, value, old, over, node.type.dtype)
        return self.named(wanted_name(node), found)

    def _hit(self, index: int, place: Place, wanted: Index) -> Block:
        (here, there), axes = self.joined([self.value(index, place), self.index(wanted)])
        return Block(f"({bare(here)} == {there})", axes)

    def _combined(
        self,
        combine: str,
        hit: Block,
        value: Block,
        old: Block,
        over: Sequence[Variable],
        dtype: ElementType,
    ) -> Block:
        if combine == "store":
            any_hit = self.fold("any", hit, over, ElementType.BOOL)
            lanes = {self.lane(v).number for v in over}
            if lanes & set(value.axes):
                value = self._last_hit(hit, value, over, dtype)
            (was, now, before), axes = self.joined([any_hit, value, old])
            return Block(f"tl.where({bare(was)}, {bare(now)}, {bare(before)})", axes)
        (was, now), axes = self.joined([hit, value])
        kept = Block(f"tl.where({was}, {bare(now)}, {identity_of(combine, dtype)})", axes)
        found = self.fold(combine, kept, over, dtype)
        (a, b), axes = self.joined([old, found])
        function = {"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum"}[combine]
        if dtype is ElementType.BOOL:
            function = {"add": "or", "mul": "and"}.get(function, function)
        return Block(tt.rounded(tt.applied(function, (a, b), dtype), dtype), axes)

    def _last_hit(
        self, hit: Block, value: Block, over: Sequence[Variable], dtype: ElementType
    ) -> Block:
        flat = Index()
        for variable in over:
            flat = flat * variable.extent + at(variable)
        (was, here), axes = self.joined([hit, self.index(flat)])
        chosen = Block(f"tl.where({was}, {here}, -1)", axes)
        last = self.named("last", self.fold("max", chosen, over, ElementType.INT32))
        (here, there, now), axes = self.joined([self.index(flat), last, value])
        return self.fold(
            "sum", Block(f"tl.where({here} == {there}, {bare(now)}, 0)", axes), over, dtype
        )


def _position(keys: Block) -> Block:
    """The positions that keys hold."""
    return Block(f"position_of({keys.text})", keys.axes)
