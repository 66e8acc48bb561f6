"""Which axes of a row program are the same axis: each is a product of atoms.

An atom is one loop that could be written: pointwise operands share theirs, a reshape merges or
splits them, a broadcast and a slice begin new ones. Two kinds of operation tie an axis to a
program. Where elements *meet* (a reduction, a scan, a sort), one program must see the whole
axis. Where they are *moved* (a slice, a gather), that is so only if what is moved was itself
computed where elements meet: loads and functions of loads are computed anew at the other place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evolver.proposers.synth import ir
from evolver.proposers.synth.extents import Extent

Atom = int
Product = tuple[Atom, ...]
"""The atoms of one axis, outermost first; none for an axis of one element."""


@dataclass(frozen=True)
class Axes:
    """The atoms of a program; numbers are the program's nodes."""

    extents: dict[Atom, Extent]
    of: tuple[tuple[Product, ...], ...]
    """Per node, per axis."""
    meets: tuple[frozenset[Atom], ...]
    """Per node, the atoms along which elements meet, those that come of it (top-k) included."""
    moves: tuple[tuple[tuple[int, frozenset[Atom]], ...], ...]
    """Per node, the operands whose elements it moves, each with the atoms that they move along:
    those that they have and those that they get."""

    def atoms(self, number: int) -> frozenset[Atom]:
        """All atoms of a node."""
        return frozenset(atom for axis in self.of[number] for atom in axis)


def axes_of(program: ir.Program) -> Axes:
    """Find the atoms of ``program``."""
    finder = _Finder(program)
    for number in range(len(program.nodes)):
        finder.visit(number)
    return finder.finish()


class _Finder:
    def __init__(self, program: ir.Program) -> None:
        self._program = program
        self._extents: list[Extent] = []
        self._same_as: dict[Atom, Product] = {}
        """What an atom turned out to be: another one, or a product."""
        self._of: list[list[Product]] = []
        self._meets: list[list[Product]] = []
        self._moves: list[list[tuple[int, Product]]] = []

    def finish(self) -> Axes:
        of = tuple(tuple(self._leaves(axis) for axis in axes) for axes in self._of)
        used = {atom for axes in of for axis in axes for atom in axis}
        return Axes(
            extents={atom: self._extents[atom] for atom in sorted(used)},
            of=of,
            meets=tuple(frozenset(a for p in ps for a in self._leaves(p)) for ps in self._meets),
            moves=tuple(
                tuple((operand, frozenset(self._leaves(p))) for operand, p in moved)
                for moved in self._moves
            ),
        )

    def visit(self, number: int) -> None:
        self._meets.append([])
        self._moves.append([])
        found = self._axes(number)
        self._of.append(found)
        # Whatever moves along one axis arrives along another.
        new = self._arrives(number, found)
        self._moves[-1] = [(operand, p + new) for operand, p in self._moves[-1]]

    def _arrives(self, number: int, found: Sequence[Product]) -> Product:
        node = self._program.nodes[number]
        match node.op:
            case ir.Gather(axis) | ir.Slice(axis=axis) | ir.Concat(axis) | ir.Pad(axis=axis):
                return found[axis]
            case ir.Update(axis=axis):
                return found[axis]
            case ir.Take():
                rank = self._program.nodes[node.operands[1]].type.rank
                return tuple(atom for axis in found[:rank] for atom in axis)
            case ir.Reshape():
                return tuple(atom for axis in found for atom in axis)
        return ()

    def _axes(self, number: int) -> list[Product]:
        node = self._program.nodes[number]
        operands = node.operands
        match node.op:
            case ir.Pointwise() | ir.Select() | ir.Cast():
                return self._aligned(operands)
            case ir.Reduce(_, axes):
                self._meet(operands[0], axes)
                return [p for i, p in enumerate(self._of[operands[0]]) if i not in axes]
            case ir.Scan(axis=axis) | ir.ArgSort(axis=axis):
                self._meet(operands[0], (axis,))
                return list(self._of[operands[0]])
            case ir.TopK(axis=axis):
                self._meet(operands[0], (axis,))
                found = self._with_new(operands[:1], axis, node.type.shape)
                self._meets[-1].append(found[axis])
                return found
            case ir.Matmul() | ir.Convolution():
                for operand in operands:
                    self._meet(operand, range(len(self._of[operand])))
            case ir.Gather() | ir.Scatter() | ir.Take() | ir.Put():
                return self._selected(node)
            case op if operands:
                return self._moved(op, node)
        return [self._new(extent) for extent in node.type.shape]

    def _selected(self, node: ir.Node) -> list[Product]:
        operands = node.operands
        match node.op:
            case ir.Gather(axis):
                self._move(operands[0], axis)
                self._align(operands[1], operands[0], but=axis)
                return list(self._of[operands[1]])
            case ir.Scatter(axis):
                for operand in operands[1:]:
                    self._align(operands[0], operand, but=axis)
                self._align(operands[1], operands[2])
                self._meet(operands[1], (axis,))
                return list(self._of[operands[0]])
            case ir.Take():
                return self._taken(operands)
        return self._put(operands)

    def _moved(self, op: ir.Op, node: ir.Node) -> list[Product]:
        operands, shape = node.operands, node.type.shape
        match op:
            case ir.Expand():
                return self._expanded(operands[0], shape)
            case ir.Reshape():
                return self._reshaped(operands[0], shape)
            case ir.Permute(order):
                return [self._of[operands[0]][i] for i in order]
            case ir.Update(axis=axis):
                self._move(operands[1], axis)
                self._align(operands[0], operands[1], but=axis)
                return list(self._of[operands[0]])
            case ir.Slice(axis=axis) | ir.Concat(axis) | ir.Pad(axis=axis):
                tensors = operands if isinstance(op, ir.Concat) else operands[:1]
                for operand in tensors:
                    self._move(operand, axis)
                return self._with_new(tensors, axis, shape)
        raise AssertionError(op)

    def _taken(self, operands: Sequence[int]) -> list[Product]:
        table, *indices = operands
        for axis in range(len(indices)):
            self._move(table, axis)
        return self._aligned(indices) + self._of[table][len(indices) :]

    def _put(self, operands: Sequence[int]) -> list[Product]:
        base, source, *indices = operands
        found = self._aligned(indices)
        for axis, atoms in enumerate(found):
            self._unify(atoms, source, axis)
            self._meet(source, (axis,))
        for axis, atoms in enumerate(self._of[base][len(indices) :]):
            self._unify(atoms, source, len(found) + axis)
        return list(self._of[base])

    def _meet(self, operand: int, axes: Sequence[int]) -> None:
        self._meets[-1] += [self._of[operand][axis] for axis in axes]

    def _move(self, operand: int, axis: int) -> None:
        self._moves[-1].append((operand, self._of[operand][axis]))

    def _aligned(self, operands: Sequence[int]) -> list[Product]:
        for operand in operands[1:]:
            self._align(operands[0], operand)
        return list(self._of[operands[0]])

    def _align(self, first: int, other: int, but: int | None = None) -> None:
        for axis, atoms in enumerate(self._of[first]):
            if axis != but:
                self._unify(atoms, other, axis)

    def _unify(self, atoms: Product, other: int, axis: int) -> None:
        """Make an axis of ``other`` the same as ``atoms``; else it is moved to there."""
        if not self._make_same(atoms, self._of[other][axis]):
            self._move(other, axis)

    def _with_new(
        self, operands: Sequence[int], axis: int, shape: Sequence[Extent]
    ) -> list[Product]:
        for operand in operands[1:]:
            self._align(operands[0], operand, but=axis)
        kept = list(self._of[operands[0]])
        kept[axis] = self._new(shape[axis])
        return kept

    def _expanded(self, operand: int, shape: Sequence[Extent]) -> list[Product]:
        old = self._program.nodes[operand].type.shape
        fresh = len(shape) - len(old)
        found = [self._new(extent) for extent in shape[:fresh]]
        for axis, (before, after) in enumerate(zip(old, shape[fresh:], strict=True)):
            found.append(self._of[operand][axis] if before == after else self._new(after))
        return found

    def _reshaped(self, operand: int, shape: Sequence[Extent]) -> list[Product]:
        """New axes over the operand's atoms, in row-major order, as far as they factor."""
        found = [self._new(extent) for extent in shape]
        flat = tuple(atom for axis in self._of[operand] for atom in axis)
        if not self._make_same(tuple(atom for axis in found for atom in axis), flat):
            self._moves[-1].append((operand, flat))
        return found

    def _new(self, extent: Extent) -> Product:
        if extent == Extent.of(1):
            return ()
        self._extents.append(extent)
        return (len(self._extents) - 1,)

    def _leaves(self, product: Product) -> Product:
        found: list[Atom] = []
        for atom in product:
            parts = self._same_as.get(atom)
            found += (atom,) if parts is None else self._leaves(parts)
        return tuple(found)

    def _make_same(self, left: Product, right: Product) -> bool:
        """Identify two products of equal extents; False, and nothing done, where they clash."""
        a, b = list(self._leaves(left)), list(self._leaves(right))
        found: dict[Atom, Product] = {}
        extents = list(self._extents)
        while a and b:
            x, y = a.pop(0), b.pop(0)
            if x == y:
                continue
            if x in found or y in found:
                return False
            if extents[x] == extents[y]:
                found[max(x, y)] = (min(x, y),)
                continue
            for whole, part, rest in ((x, y, a), (y, x, b)):
                quotient = extents[whole].divided_by(extents[part])
                if quotient is not None:
                    extents.append(quotient)
                    found[whole] = (part, len(extents) - 1)
                    rest.insert(0, len(extents) - 1)
                    break
            else:
                return False
        if a or b:
            return False
        self._extents = extents
        self._same_as.update(found)
        return True
