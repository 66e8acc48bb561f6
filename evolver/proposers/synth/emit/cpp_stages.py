"""Stages of a row in C++: values that are brought into buffers of the row, in loops of their own.

Elements meet in them, or they are dear and read twice, or they must be held because what they
are made of is about to be overwritten.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from evolver.proposers.synth import ir
from evolver.proposers.synth.emit import cpp_text as cpp
from evolver.proposers.synth.emit.call import indented
from evolver.proposers.synth.emit.cpp_folds import Fold
from evolver.proposers.synth.emit.cpp_values import HEAVY, Values, bare
from evolver.proposers.synth.emit.index import Index, Place, Variable, looked_up
from evolver.proposers.synth.emit.lanes import Lanes, Spread
from evolver.proposers.synth.emit.memory import Memory
from evolver.proposers.synth.emit.names import Names, wanted_name
from evolver.proposers.synth.extents import Extent, product
from evolver.proposers.synth.plan import Plan

MOST_ON_STACK = 4096
"""Elements of an array that is a local variable."""
MOST_PARTS = 5
"""Into how many loops one may be cut, so that no branch is left in it."""
SMALL_K = 32
"""From here on a top-k is a partial sort."""

Pattern = tuple[Index | None, ...]
"""Per coordinate of a node the place that is fixed in the row; None where it varies."""


@dataclass(frozen=True)
class Buffer:
    """A value of the row: a variable, or an array over the coordinates that vary."""

    name: str
    extents: tuple[Extent, ...]
    coordinates: tuple[int, ...]


@dataclass(frozen=True)
class Scratch:
    """An array that each thread allocates once."""

    c_type: str
    name: str
    size: str


class Row(Values):
    """Writes one row; ``scopes.row.lines`` is the result, ``scratch`` what it needs."""

    def __init__(
        self,
        plan: Plan,
        memory: Memory,
        lanes: Lanes,
        names: Names,
        comment: Callable[[ir.Node], str],
        held: frozenset[int] = frozenset(),
    ) -> None:
        super().__init__(plan, memory, lanes, names)
        self.scratch: list[Scratch] = []
        self._comment = comment
        self._held = held
        self._buffers: dict[tuple[int, Pattern], Buffer] = {}

    def is_stage(self, number: int) -> bool:
        """Whether elements meet in it, or it is dear and read twice, or to be held."""
        node = self.program.nodes[number]
        if isinstance(node.op, HEAVY) or number in self._held:
            return True
        may = isinstance(node.op, ir.Pointwise | ir.Select | ir.Cast)
        return may and self.is_read_twice(number) and self.has_dear(number)

    def stage(self, number: int, place: Place) -> str:
        """An element of a buffer, which is filled when it is first asked for."""
        coordinates = self.lanes.coordinates(number, place)
        buffer = self._buffer(number, coordinates)
        return self._element(buffer, [coordinates[i] for i in buffer.coordinates])

    def loops(
        self, variables: Sequence[Variable], body: Callable[[], str], pragma: str = ""
    ) -> list[str]:
        """Return loops around the statement that ``body`` gives, with what it needs in them."""
        if not variables:
            with self.scopes.within() as scope:
                statement = body()
                return [*scope.lines, *([statement] if statement else [])]
        variable = variables[0]
        self.cuts.pop(variable, None)
        whole = self._loop(variables, body, pragma, "0", self.size(variable.extent))
        extent = variable.extent.constant or 0
        cuts = sorted(c for c in self.cuts.pop(variable, ()) if 0 < c < extent)
        if not cuts or len(cuts) >= MOST_PARTS:
            return whole
        lines = []
        for first, end in pairwise([0, *cuts, extent]):
            self.ranges[variable] = (Extent.of(first), Extent.of(end - 1))
            lines += self._loop(variables, body, pragma, str(first), str(end))
        del self.ranges[variable]
        return lines

    def _loop(
        self,
        variables: Sequence[Variable],
        body: Callable[[], str],
        pragma: str,
        first: str,
        end: str,
    ) -> list[str]:
        name = variables[0].name
        with self.scopes.within(variables[0]) as scope:
            inner = self.loops(variables[1:], body, pragma)
            lines = [*scope.lines, *inner]
        before = [pragma] if pragma and len(variables) == 1 else []
        head = f"for (int64_t {name} = {first}; {name} < {end}; ++{name}) {{"
        return [*before, head, *indented(lines), "}"]

    def write(self, number: int | None, lines: Sequence[str]) -> None:
        """Put lines into the row, after what the reference says there."""
        said = self._comment(self.program.nodes[number]) if number is not None else ""
        row = self.scopes.row.lines
        row += ([f"// {said}"] if said else []) + list(lines)

    # Buffers.

    def _buffer(self, number: int, coordinates: Sequence[Index]) -> Buffer:
        whole, rows = self._whole(number), self.scopes.row.variables
        pattern = tuple(
            c if i not in whole and (v := c.variables()) and v <= rows else None
            for i, c in enumerate(coordinates)
        )
        if (number, pattern) not in self._buffers:
            with self.scopes.at_row():
                self._buffers[number, pattern] = self._filled(number, pattern)
        return self._buffers[number, pattern]

    def _whole(self, number: int) -> frozenset[int]:
        """Coordinates of which a stage needs all elements, whatever is asked for."""
        match self.program.nodes[number].op:
            case ir.Scan(axis=axis) | ir.TopK(axis=axis) | ir.ArgSort(axis=axis):
                return self.lanes.of_axes(number, (axis,))
            case ir.Scatter(axis=axis):
                return self.lanes.of_axes(number, (axis,))
            case ir.Put():
                indexed = len(self.program.nodes[number].operands) - 2
                return self.lanes.of_axes(number, range(indexed))
        return frozenset()

    def _element(self, buffer: Buffer, coordinates: Sequence[Index]) -> str:
        if not buffer.extents:
            return buffer.name
        flat = Index()
        for extent, coordinate in zip(buffer.extents, coordinates, strict=True):
            flat = flat * extent + coordinate
        return f"{buffer.name}[{self.index(flat)}]"

    def _filled(self, number: int, pattern: Pattern) -> Buffer:
        extents = self.lanes.extents(number)
        free = tuple(i for i, fixed in enumerate(pattern) if fixed is None)
        name = self.names.fresh(wanted_name(self.program.nodes[number]))
        buffer = Buffer(name, tuple(extents[i] for i in free), free)
        lines = self._lines(number, pattern, buffer)
        c_type = cpp.c_type(self.program.nodes[number].type.dtype)
        declared = self._array(c_type, name, product(buffer.extents)) if buffer.extents else []
        self.write(number, [*declared, *lines])
        return buffer

    def _array(self, c_type: str, name: str, size: Extent) -> list[str]:
        if size.constant is not None and size.constant <= MOST_ON_STACK:
            return [f"{c_type} {name}[{max(1, size.constant)}];"]
        self.scratch.append(Scratch(c_type, name, self.size(size)))
        return []

    def _lines(self, number: int, pattern: Pattern, buffer: Buffer) -> list[str]:
        node = self.program.nodes[number]
        match node.op:
            case ir.Reduce():
                return self._reduced(number, node.op, pattern, buffer)
            case ir.Matmul():
                return self._product(number, pattern, buffer)
            case ir.Scan():
                return self._scanned(number, node.op, pattern, buffer)
            case ir.TopK(axis=axis) | ir.ArgSort(axis=axis):
                return self._selected(number, axis, pattern, buffer)
            case ir.Scatter() | ir.Put():
                return self._scattered(number, pattern, buffer)
        outer = self._spread(number, pattern)
        return self.loops(
            outer.loops,
            lambda: self._assigned(number, buffer, outer.place, self._anew(number, outer.place)),
            "#pragma omp simd",
        )

    def _anew(self, number: int, place: Place) -> str:
        """A node's element, computed rather than read from its buffer."""
        node = self.program.nodes[number]
        if node.op.moves or isinstance(node.op, ir.Concat | ir.Pad | ir.Update):
            return self.moved(number, place)
        return self.computed(node, place)

    def _spread(
        self, number: int, pattern: Pattern, without: frozenset[int] = frozenset()
    ) -> Spread:
        fixed = {i: index for i, index in enumerate(pattern) if index is not None}
        return self.lanes.spread(number, {**fixed, **dict.fromkeys(without, Index())})

    def _assigned(self, number: int, buffer: Buffer, place: Place, text: str) -> str:
        """A statement that sets the buffer's element; a buffer of one is declared by it."""
        if not buffer.extents:
            c_type = cpp.c_type(self.program.nodes[number].type.dtype)
            return f"const {c_type} {buffer.name} = {bare(text)};"
        return f"{self._target(number, buffer, place)} = {bare(text)};"

    def _target(self, number: int, buffer: Buffer, place: Place) -> str:
        coordinates = self.lanes.coordinates(number, place)
        return self._element(buffer, [coordinates[i] for i in buffer.coordinates])

    # What elements meet in.

    def _reduced(self, number: int, op: ir.Reduce, pattern: Pattern, buffer: Buffer) -> list[str]:
        (operand,) = self.program.nodes[number].operands
        outer = self._spread(number, pattern)
        place, kept = [], list(outer.place)
        inner: list[Variable] = []
        for axis in range(self.program.nodes[operand].type.rank):
            if axis in op.axes:
                index, loops = self.lanes.along(operand, axis, [*outer.loops, *inner])
                inner += loops
                place.append(index)
            else:
                place.append(kept.pop(0))
        fold = Fold(op.kind, self.program.nodes[operand].type.dtype, self._length(inner))
        position = place[op.axes[0]]

        def step() -> str:
            return fold.step(bare(self.value(operand, tuple(place))), self.index(position))

        return self._folded(number, buffer, outer, tuple(inner), fold, step)

    def _length(self, loops: Sequence[Variable]) -> int:
        """How long a row is at most, in the workloads that are known."""
        return max(product(v.extent for v in loops).at(s) for s in self.program.sizes)

    def _product(self, number: int, pattern: Pattern, buffer: Buffer) -> list[str]:
        a, b = self.program.nodes[number].operands
        outer = self._spread(number, pattern)
        *batch, m, n = outer.place
        k, inner = self.lanes.along(a, self.program.nodes[a].type.rank - 1, outer.loops)
        fold = Fold("sum", self.program.nodes[a].type.dtype, self._length(inner))

        def step() -> str:
            left, right = self.value(a, (*batch, m, k)), self.value(b, (*batch, k, n))
            return fold.step(f"{left} * {right}", "")

        return self._folded(number, buffer, outer, inner, fold, step)

    def _folded(
        self,
        number: int,
        buffer: Buffer,
        outer: Spread,
        inner: Sequence[Variable],
        fold: Fold,
        step: Callable[[], str],
    ) -> list[str]:
        fold.name(self.names, buffer.name, is_result=not buffer.extents)

        def body() -> str:
            lines = self.loops(inner, step, fold.pragma)
            self.scopes.inner.lines += [*fold.begin(), *lines]
            if fold.is_result:
                return ""
            return self._assigned(number, buffer, outer.place, fold.result())

        return self.loops(outer.loops, body)

    def _scanned(self, number: int, op: ir.Scan, pattern: Pattern, buffer: Buffer) -> list[str]:
        node = self.program.nodes[number]
        outer = self._spread(number, pattern, self._whole(number))
        index, inner = self.lanes.along(number, op.axis, outer.loops)
        place = (*outer.place[: op.axis], index, *outer.place[op.axis + 1 :])
        fold = Fold(op.kind, node.type.dtype, self._length(inner))
        fold.name(self.names, f"{buffer.name}_so_far", is_result=False)

        def step() -> str:
            self.scopes.inner.lines.append(fold.step(bare(self.value(node.operands[0], place)), ""))
            return self._assigned(number, buffer, place, fold.result())

        def body() -> str:
            lines = self.loops(inner, step)
            self.scopes.inner.lines += [*fold.begin(), *lines]
            return ""

        return self.loops(outer.loops, body)

    def _selected(self, number: int, axis: int, pattern: Pattern, buffer: Buffer) -> list[str]:
        node = self.program.nodes[number]
        (operand,) = node.operands
        whole = self._whole(number)
        outer = self._spread(number, pattern, whole)
        along, inner = self.lanes.along(operand, axis, outer.loops)
        place = (*outer.place[:axis], along, *outer.place[axis + 1 :])
        dtype = self.program.nodes[operand].type.dtype
        extent = self.program.nodes[operand].type.shape[axis]
        first = (*outer.place[:axis], Index(), *outer.place[axis + 1 :])
        values = self._row_in_buffer(operand, axis, first) if not outer.loops else None
        before: list[str] = []
        copies = values is None
        if values is None:
            values = self.names.fresh("values")
            before += self._array(cpp.c_type(dtype), values, extent)
        result, after = self._positions(number, axis, outer, buffer, before)
        call = self._selection(node.op, values, extent, result, before)

        def copied() -> str:
            return f"{values}[{self.index(along)}] = {bare(self.value(operand, place))};"

        def body() -> str:
            lines = self.loops(inner, copied) if copies else []
            self.scopes.inner.lines += [*lines, call]
            return after()

        return [*before, *self.loops(outer.loops, body)]

    def _row_in_buffer(self, operand: int, axis: int, first: Place) -> str | None:
        """A pointer to a row that lies whole in a buffer; None where it must be copied."""
        along = self.lanes.of_axes(operand, (axis,))
        if not self.is_stage(operand) or self.memory.tensor(operand) or len(along) != 1:
            return None
        coordinates = self.lanes.coordinates(operand, first)
        buffer = self._buffer(operand, coordinates)
        if not buffer.coordinates or {buffer.coordinates[-1]} != along:
            return None
        element = self._element(buffer, [coordinates[i] for i in buffer.coordinates])
        return f"&{element}".replace(f"&{buffer.name}[0]", buffer.name)

    def _positions(
        self, number: int, axis: int, outer: Spread, buffer: Buffer, before: list[str]
    ) -> tuple[str, Callable[[], str]]:
        """Where a selection puts its positions, and what brings them into the buffer then."""
        node = self.program.nodes[number]
        whole = self._whole(number)
        if not buffer.extents:
            before.append(f"int64_t {buffer.name};")
            return f"&{buffer.name}", lambda: ""
        if not whole or max(whole) == buffer.coordinates[-1]:
            first = self._target(number, buffer, outer.place)
            return f"&{first}".replace(f"&{buffer.name}[0]", buffer.name), lambda: ""
        positions = self.names.fresh("positions")
        before += self._array("int64_t", positions, node.type.shape[axis])

        def copied() -> str:
            index, loops = self.lanes.along(number, axis, outer.loops)
            place = (*outer.place[:axis], index, *outer.place[axis + 1 :])
            element = f"{positions}[{self.index(index)}]"
            self.scopes.inner.lines += self.loops(
                loops, lambda: self._assigned(number, buffer, place, element)
            )
            return ""

        return positions, copied

    def _selection(
        self, op: ir.Op, values: str, extent: Extent, result: str, before: list[str]
    ) -> str:
        count = self.size(extent)
        if isinstance(op, ir.TopK) and op.k <= SMALL_K:
            return f"top_k({values}, {count}, {op.k}, {_truth(op.largest)}, {result});"
        order = self.names.fresh("order")
        before += self._array("int64_t", order, extent)
        k = str(op.k) if isinstance(op, ir.TopK) else count
        down = (
            op.largest if isinstance(op, ir.TopK) else isinstance(op, ir.ArgSort) and op.descending
        )
        return f"sort_positions({values}, {count}, {k}, {_truth(down)}, {order}, {result});"

    def _scattered(self, number: int, pattern: Pattern, buffer: Buffer) -> list[str]:
        node = self.program.nodes[number]
        base = node.operands[0]
        copy = self._spread(number, pattern)
        dtype = node.type.dtype
        combine = node.op.combine if isinstance(node.op, ir.Scatter | ir.Put) else "store"
        mutable = not buffer.extents
        lines = [f"{cpp.c_type(dtype)} {buffer.name};"] if mutable else []

        def copied() -> str:
            target = self._target(number, buffer, copy.place)
            return f"{target} = {bare(self.value(base, copy.place))};"

        lines += self.loops(copy.loops, copied, "#pragma omp simd")
        outer = self._spread(number, pattern, self._whole(number))
        place, source, at_source, inner = self._scatter_places(number, outer)

        def put() -> str:
            target = self._target(number, buffer, place)
            value = combination(combine, target, self.value(source, at_source), dtype)
            return f"{target} = {bare(value)};"

        return [*lines, *self.loops((*outer.loops, *inner), put)]

    def _scatter_places(
        self, number: int, outer: Spread
    ) -> tuple[Place, int, Place, tuple[Variable, ...]]:
        """Where an element goes, of which node it is, where in it, and the loops over it."""
        node = self.program.nodes[number]
        if isinstance(node.op, ir.Scatter):
            axis, (_, index, source) = node.op.axis, node.operands
            along, inner = self.lanes.along(index, axis, outer.loops)
            at_source = (*outer.place[:axis], along, *outer.place[axis + 1 :])
            to = looked_up(index, at_source, node.type.shape[axis])
            return (*outer.place[:axis], to, *outer.place[axis + 1 :]), source, at_source, inner
        _, source, *indices = node.operands
        loops: list[Variable] = []
        leading: list[Index] = []
        for axis in range(self.program.nodes[indices[0]].type.rank):
            along, inner = self.lanes.along(indices[0], axis, [*outer.loops, *loops])
            loops += inner
            leading.append(along)
        rest = outer.place[len(indices) :]
        to_all = tuple(
            looked_up(index, tuple(leading), extent)
            for index, extent in zip(indices, node.type.shape, strict=False)
        )
        return (*to_all, *rest), source, (*leading, *rest), tuple(loops)


def combination(combine: str, old: str, value: str, dtype: ir.ElementType) -> str:
    """What a place holds after ``value`` was put where ``old`` is."""
    if combine == "store":
        return value
    function = {"sum": "add", "prod": "mul", "max": "maximum", "min": "minimum"}[combine]
    if dtype is ir.ElementType.BOOL:
        function = {"add": "or", "mul": "and"}.get(function, function)
    return cpp.rounded(cpp.applied(function, (old, value), dtype), dtype)


def _truth(value: bool) -> str:
    return "true" if value else "false"
