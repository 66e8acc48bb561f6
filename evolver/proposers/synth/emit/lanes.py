"""The loops of a kernel, one per atom of the plan's axes, and places written with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evolver.proposers.synth.axes import Atom, Axes
from evolver.proposers.synth.emit.index import Index, Place, Variable, at
from evolver.proposers.synth.emit.names import Names
from evolver.proposers.synth.extents import Extent, product

ONE = Extent.of(1)


@dataclass(frozen=True)
class Spread:
    """A node over loops of its own: its place, and the loops, outermost first."""

    place: Place
    loops: tuple[Variable, ...]


class Lanes:
    """Hands out one variable per atom; a second one where a node has an atom twice."""

    def __init__(self, axes: Axes, rows: Mapping[Atom, Variable], names: Names) -> None:
        self._axes = axes
        self._names = names
        self._variables: dict[tuple[Atom, int], Variable] = {}
        self.rows = dict(rows)

    def variable(self, atom: Atom, copy: int = 0) -> Variable:
        """The loop over an atom."""
        if (atom, copy) not in self._variables:
            name = self._names.lane()
            self._variables[atom, copy] = Variable(name, self._axes.extents[atom])
        return self._variables[atom, copy]

    def coordinates(self, number: int, place: Place) -> tuple[Index, ...]:
        """A place by atoms, of which an axis may have several, or none."""
        result: list[Index] = []
        for atoms, index in zip(self._axes.of[number], place, strict=True):
            extents, rest = [self._axes.extents[a] for a in atoms], index
            for position in range(len(atoms)):
                inner = product(extents[position + 1 :])
                if inner == ONE:
                    result.append(rest)
                else:
                    quotient, rest = rest.divide(inner)
                    result.append(quotient)
        return tuple(result)

    def extents(self, number: int) -> tuple[Extent, ...]:
        """The extents of a node's coordinates."""
        return tuple(self._axes.extents[a] for axis in self._axes.of[number] for a in axis)

    def of_axes(self, number: int, axes: Sequence[int]) -> frozenset[int]:
        """Which coordinates belong to ``axes``."""
        found, position = set[int](), 0
        for axis, atoms in enumerate(self._axes.of[number]):
            if axis in axes:
                found |= set(range(position, position + len(atoms)))
            position += len(atoms)
        return frozenset(found)

    def spread(
        self, number: int, fixed: Mapping[int, Index], used: Sequence[Variable] = ()
    ) -> Spread:
        """Return a node's place with ``fixed`` coordinates and loops over all others.

        ``used`` are loops that are open and must not be opened again.
        """
        taken, loops, place, position = list(used), list[Variable](), list[Index](), 0
        for atoms in self._axes.of[number]:
            index = Index()
            for atom in atoms:
                coordinate = fixed.get(position)
                if coordinate is None:
                    variable = self._unused(atom, taken)
                    taken.append(variable)
                    loops.append(variable)
                    coordinate = at(variable)
                index = index * self._axes.extents[atom] + coordinate
                position += 1
            place.append(index)
        return Spread(tuple(place), tuple(loops))

    def along(
        self, number: int, axis: int, used: Sequence[Variable] = ()
    ) -> tuple[Index, tuple[Variable, ...]]:
        """Return an axis of a node as an index over loops of its own, and the loops."""
        index, loops = Index(), list[Variable]()
        for atom in self._axes.of[number][axis]:
            variable = self._unused(atom, [*used, *loops])
            loops.append(variable)
            index = index * self._axes.extents[atom] + at(variable)
        return index, tuple(loops)

    def over_rows(self, number: int) -> Spread:
        """Return a node's place with the rows' variables, and loops over the rest."""
        flat = [atom for axis in self._axes.of[number] for atom in axis]
        fixed = {
            flat.index(atom): at(variable) for atom, variable in self.rows.items() if atom in flat
        }
        return self.spread(number, fixed)

    def _unused(self, atom: Atom, taken: Sequence[Variable]) -> Variable:
        copy = 0
        while self.variable(atom, copy) in taken:
            copy += 1
        return self.variable(atom, copy)
