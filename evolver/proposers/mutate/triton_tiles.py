"""Which tiles of a kernel may change their size, read from its body alone.

A tile is a constexpr ``B`` with ``tl.arange(0, B)`` in the kernel. It moves freely when its
extent is covered by the grid (``tl.program_id(k) * B``) or by a loop that steps by ``B``;
a tile that holds a whole row at once does not move. Growing it is safe only where each
access along the tile is masked by a comparison of the tile's own index with a bound: masks
are often dropped where the block divides the size, and a larger block would then reach
outside the tensor. Shrinking a power of two keeps it a divisor, masked or not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import libcst as cst
import libcst.matchers as m

from evolver.proposers.mutate.triton_source import find_tl_calls, integer, is_tl_call, names_in

_MASK_POSITION = {"load": 1, "store": 2}
_ATOMICS = ("atomic_add", "atomic_max", "atomic_min", "atomic_and", "atomic_or", "atomic_xor")
_INDEX_CALLS = ("arange", "program_id", "max_contiguous", "multiple_of")
_CONVERSION = m.Call(func=m.Attribute(attr=m.Name("to")))
_DESCRIPTORS = ("make_block_ptr", "make_tensor_descriptor", "load_tensor_descriptor", "advance")


@dataclass(frozen=True)
class Tile:
    """A constexpr that sizes a tile. ``axis`` is the grid axis it divides, None for a loop's."""

    name: str
    axis: int | None
    masked: bool
    """Whether every access along the tile is guarded against the tile's overhang."""


def movable_tiles(kernel: cst.FunctionDef) -> tuple[Tile, ...]:
    """Return the tiles of ``kernel`` whose size may change, in the order of its parameters."""
    if find_tl_calls(kernel, *_DESCRIPTORS):
        return ()  # block shapes are fixed elsewhere, in the descriptor
    flow = _Flow(kernel)
    tiles = (_tile(p.name.value, flow) for p in kernel.params.params)
    return tuple(t for t in tiles if t is not None)


def _tile(name: str, flow: _Flow) -> Tile | None:
    sizes = flow.aliases(name)
    if not any(_is_range_of(c, sizes) for c in find_tl_calls(flow.kernel, "arange")):
        return None
    axis = flow.grid_axis(sizes)
    if (axis is None) == (not flow.has_loop_over(sizes)):
        return None
    return Tile(name, axis, _Guards(flow, sizes).cover_every_access())


def _is_range_of(call: cst.CSTNode, sizes: set[str]) -> bool:
    if not (is_tl_call(call, "arange") and isinstance(call, cst.Call) and len(call.args) == 2):
        return False
    start, stop = (a.value for a in call.args)
    return integer(start) == 0 and isinstance(stop, cst.Name) and stop.value in sizes


class _Flow:
    """Assignments and loops of a kernel, without regard to their order."""

    def __init__(self, kernel: cst.FunctionDef) -> None:
        self.kernel = kernel
        self.loops = [cst.ensure_type(n, cst.For) for n in m.findall(kernel.body, m.For())]
        self.values: dict[str, list[cst.BaseExpression]] = {}
        for node in m.findall(kernel.body, m.Assign() | m.AnnAssign() | m.AugAssign()):
            self._record(node)

    def _record(self, node: cst.CSTNode) -> None:
        if isinstance(node, cst.Assign):
            for target in node.targets:
                for name in names_in(target.target):
                    self.values.setdefault(name, []).append(node.value)
        elif isinstance(node, cst.AnnAssign | cst.AugAssign) and node.value is not None:
            for name in names_in(node.target):
                self.values.setdefault(name, []).append(node.value)

    def aliases(self, size: str) -> set[str]:
        """Return ``size`` and the names that are nothing but another name for it."""
        same = {
            name
            for name, values in self.values.items()
            if all(isinstance(v, cst.Name) and v.value == size for v in values)
        }
        return {size, *same}

    def has_loop_over(self, sizes: set[str]) -> bool:
        """Whether some loop steps by the tile, or counts tiles."""
        return any(
            names_in(loop.iter) & sizes and not find_tl_calls(loop.iter, "program_id")
            for loop in self.loops
        )

    def grid_axis(self, sizes: set[str]) -> int | None:
        """Return the axis whose program id is used only as ``pid * B``, if there is one."""
        for axis in (0, 1, 2):
            pids = self._program_ids(axis)
            products = [
                p
                for p in m.findall(self.kernel.body, m.BinaryOperation(operator=m.Multiply()))
                if isinstance(p, cst.BinaryOperation) and self._is_offset(p, axis, pids, sizes)
            ]
            if products and len(products) == self._uses(axis, pids):
                return axis
        return None

    def _program_ids(self, axis: int) -> set[str]:
        named = {
            name
            for name, values in self.values.items()
            if all(_is_program_id(v, axis) for v in values)
        }
        looped = {
            loop.target.value
            for loop in self.loops
            if isinstance(loop.target, cst.Name) and _count_program_ids(loop.iter, axis)
        }
        return named | looped

    def _is_offset(
        self, product: cst.BinaryOperation, axis: int, pids: set[str], sizes: set[str]
    ) -> bool:
        def is_pid(side: cst.BaseExpression) -> bool:
            return _is_program_id(side, axis) or (isinstance(side, cst.Name) and side.value in pids)

        def is_size(side: cst.BaseExpression) -> bool:
            return isinstance(side, cst.Name) and side.value in sizes

        left, right = product.left, product.right
        return (is_pid(left) and is_size(right)) or (is_size(left) and is_pid(right))

    def _uses(self, axis: int, pids: set[str]) -> int:
        """Count reads of the program id, apart from naming it and from loops over tiles."""
        named = sum(len(m.findall(self.kernel.body, m.Name(name))) for name in pids)
        definitions = sum(len(self.values.get(name, ())) for name in pids)
        targets = [lo for lo in self.loops if names_in(lo.target) & pids]
        direct = _count_program_ids(self.kernel.body, axis)
        in_loops = sum(_count_program_ids(lo.iter, axis) for lo in self.loops)
        return (named - definitions - len(targets)) + (direct - definitions - in_loops)


def _is_program_id(node: cst.CSTNode, axis: int) -> bool:
    """Whether ``node`` is ``tl.program_id(axis)``, converted by ``.to(...)`` or not."""
    if isinstance(node, cst.Call) and m.matches(node, _CONVERSION):
        return _is_program_id(cst.ensure_type(node.func, cst.Attribute).value, axis)
    if not (is_tl_call(node, "program_id") and isinstance(node, cst.Call) and node.args):
        return False
    return integer(node.args[0].value) == axis


def _count_program_ids(node: cst.CSTNode, axis: int) -> int:
    return sum(_is_program_id(c, axis) for c in find_tl_calls(node, "program_id"))


_Rule = Callable[[cst.BaseExpression, set[str]], bool]


class _Guards:
    """Follows a tile's index to the masks of the accesses that it takes part in."""

    def __init__(self, flow: _Flow, sizes: set[str]) -> None:
        self._flow = flow
        self._sizes = sizes
        self._touched = self._closure(self._touches, any)
        self._indices = self._closure(self._is_index, all)
        self._masks: set[str] = set()
        self._masks = self._closure_of_masks()

    def cover_every_access(self) -> bool:
        """Whether each load, store and atomic along the tile has a mask that bounds it."""
        accesses = find_tl_calls(self._flow.kernel.body, *_MASK_POSITION, *_ATOMICS)
        along = [c for c in accesses if c.args and self._touches(c.args[0].value, self._touched)]
        return all(self._is_guarded(call) for call in along)

    def _is_guarded(self, call: cst.Call) -> bool:
        kind = cst.ensure_type(call.func, cst.Attribute).attr.value
        position = _MASK_POSITION.get(kind, 2)
        positional = [a for a in call.args if a.keyword is None]
        named = [a for a in call.args if a.keyword is not None and a.keyword.value == "mask"]
        masks = named or positional[position : position + 1]
        return bool(masks) and self._bounds(masks[0].value)

    def _closure(self, rule: _Rule, every: Callable[[Iterable[bool]], bool]) -> set[str]:
        """Return the names of which ``every`` (or any) assigned value fits, to a fixed point."""
        found: set[str] = set()
        while True:
            more = {n for n, vs in self._flow.values.items() if every(rule(v, found) for v in vs)}
            if more <= found:
                return found
            found |= more

    def _closure_of_masks(self) -> set[str]:
        while True:
            more = {n for n, vs in self._flow.values.items() if all(map(self._bounds, vs))}
            if more <= self._masks:
                return self._masks
            self._masks = self._masks | more

    def _touches(self, value: cst.BaseExpression, known: set[str]) -> bool:
        ranges = find_tl_calls(value, "arange")
        return bool(names_in(value) & known) or any(_is_range_of(c, self._sizes) for c in ranges)

    def _is_index(self, value: cst.BaseExpression, known: set[str]) -> bool:
        """Whether ``value`` grows one by one along the tile: no quotient, no remainder, no load."""
        folds = m.BinaryOperation(operator=m.Modulo() | m.FloorDivide() | m.RightShift())
        calls = m.findall(value, m.Call())
        plain = all(is_tl_call(c, *_INDEX_CALLS) or m.matches(c, _CONVERSION) for c in calls)
        return plain and not m.findall(value, folds) and self._touches(value, known)

    def _bounds(self, mask: cst.BaseExpression) -> bool:
        if isinstance(mask, cst.Name):
            return mask.value in self._masks
        if isinstance(mask, cst.Subscript):
            return self._bounds(mask.value)
        if isinstance(mask, cst.BinaryOperation) and isinstance(mask.operator, cst.BitAnd):
            return self._bounds(mask.left) or self._bounds(mask.right)
        return isinstance(mask, cst.Comparison) and self._is_upper_bound(mask)

    def _is_upper_bound(self, comparison: cst.Comparison) -> bool:
        if len(comparison.comparisons) != 1:
            return False
        operator, right = comparison.comparisons[0].operator, comparison.comparisons[0].comparator
        if isinstance(operator, cst.LessThan):
            return self._is_index(comparison.left, self._indices)
        return isinstance(operator, cst.GreaterThan) and self._is_index(right, self._indices)
