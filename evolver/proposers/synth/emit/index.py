"""Places of elements as expressions: sums of loop variables times extents, quotients, remainders.

A place along an axis is a value of this algebra. Moving operations (reshape, slice, permute)
map places to places, so they cost no code; what is known of a variable's range takes most of
the divisions away that a reshape would need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from evolver.proposers.synth.extents import Extent

ZERO = Extent.of(0)
ONE = Extent.of(1)


@dataclass(frozen=True)
class Variable:
    """A loop over an axis, or its lanes: 0 up to ``extent``."""

    name: str
    extent: Extent


@dataclass(frozen=True)
class Looked:
    """A place that is read at run time: an element of an index tensor, in [0, extent)."""

    node: int
    place: tuple[Index, ...]
    extent: Extent


@dataclass(frozen=True)
class Divided:
    """The quotient, rounded down, or the remainder of a place that is not negative."""

    index: Index
    by: Extent
    remainder: bool


Atom = Variable | Looked | Divided
Ranges = Mapping[Atom, tuple[Extent, Extent]]


@dataclass(frozen=True)
class Index:
    """A sum of atoms times extents, and an extent."""

    terms: tuple[tuple[Atom, Extent], ...] = ()
    start: Extent = ZERO

    def __add__(self, other: Index | Extent | int) -> Index:
        added = other if isinstance(other, Index) else Index((), Extent.of(other))
        sums: dict[Atom, Extent] = {}
        for atom, factor in (*self.terms, *added.terms):
            sums[atom] = sums.get(atom, ZERO) + factor
        kept = tuple((atom, factor) for atom, factor in sums.items() if factor != ZERO)
        return _rejoined(Index(kept, self.start + added.start))

    def __mul__(self, factor: Extent | int) -> Index:
        by = Extent.of(factor)
        if by == ZERO:
            return Index()
        return Index(tuple((atom, f * by) for atom, f in self.terms), self.start * by)

    def __sub__(self, other: Index | Extent | int) -> Index:
        taken = other if isinstance(other, Index) else Index((), Extent.of(other))
        return self + taken * -1

    def divide(self, by: Extent) -> tuple[Index, Index]:
        """Return quotient and remainder, for a place that is not negative."""
        if by == ONE:
            return self, Index()
        whole, rest = Index(), Index()
        for atom, factor in self.terms:
            quotient = factor.divided_by(by)
            if quotient is None:
                rest += Index(((atom, factor),))
            else:
                whole += Index(((atom, quotient),))
        quotient, left = _split(self.start, by)
        whole, rest = whole + quotient, rest + left
        if rest.lies_below(by):
            return whole, rest
        if not rest.is_not_negative():
            whole, rest = Index(), self
        return (
            whole + Index(((Divided(rest, by, remainder=False), ONE),)),
            Index(((Divided(rest, by, remainder=True), ONE),)),
        )

    def lies_below(self, bound: Extent) -> bool:
        """Whether it is provably in [0, bound)."""
        return self.is_not_negative() and never_negative(bound - 1 - self.bounds()[1])

    def is_not_negative(self) -> bool:
        """Whether that can be proved."""
        return never_negative(self.bounds()[0])

    def bounds(self, ranges: Ranges | None = None) -> tuple[Extent, Extent]:
        """The least and the largest value, as far as they are known.

        ``ranges`` has the first and the last value of variables that are cut to a part.
        """
        low = high = self.start
        for atom, factor in self.terms:
            first, last = (ranges or {}).get(atom, (ZERO, extent_of(atom) - 1))
            ends = (factor * first, factor * last)
            low, high = (
                (low + ends[0], high + ends[1])
                if never_negative(factor)
                else (
                    low + ends[1],
                    high + ends[0],
                )
            )
        return low, high

    def atoms(self) -> Iterable[Atom]:
        """All atoms, those within quotients and look-ups too."""
        for atom, _ in self.terms:
            yield atom
            if isinstance(atom, Divided):
                yield from atom.index.atoms()
            if isinstance(atom, Looked):
                for index in atom.place:
                    yield from index.atoms()

    def variables(self) -> frozenset[Variable]:
        """The loops that it depends on."""
        return frozenset(a for a in self.atoms() if isinstance(a, Variable))

    @property
    def is_looked_up(self) -> bool:
        """Whether it is read at run time."""
        return any(isinstance(a, Looked) for a in self.atoms())

    def substituted(self, by: Mapping[Variable, Index]) -> Index:
        """Return it with other places for variables."""
        result = Index((), self.start)
        for atom, factor in self.terms:
            result += _substituted(atom, by) * factor
        return result


Place = tuple[Index, ...]
"""One index per axis."""


def at(variable: Variable) -> Index:
    """The place of a loop's own element; an axis of one has the element 0 alone."""
    return Index() if variable.extent == ONE else Index(((variable, ONE),))


def constant(value: Extent | int) -> Index:
    """A fixed place."""
    return Index((), Extent.of(value))


def looked_up(node: int, place: Place, extent: Extent) -> Index:
    """The place that an index tensor has at ``place``."""
    return Index(((Looked(node, place, extent), ONE),))


def extent_of(atom: Atom) -> Extent:
    """One more than the largest value, as far as it is known."""
    if not isinstance(atom, Divided):
        return atom.extent
    if atom.remainder:
        return atom.by
    high = atom.index.bounds()[1] + 1
    whole = high.divided_by(atom.by)
    return whole if whole is not None else high


def text_of(index: Index, spell: Callable[[Atom], str], size: Callable[[Extent], str]) -> str:
    """Return ``index`` in a language in which ``spell`` writes atoms and ``size`` extents."""
    parts = [_term(spell(atom), factor, size) for atom, factor in index.terms]
    if index.start != ZERO or not parts:
        parts.append(size(index.start))
    return " + ".join(parts).replace("+ -", "- ")


def _term(atom: str, factor: Extent, size: Callable[[Extent], str]) -> str:
    if factor == ONE:
        return atom
    if factor == Extent.of(-1):
        return f"-{atom}"
    spelled = size(factor)
    plain = spelled.isidentifier() or spelled.isdigit()
    return f"{atom} * {spelled}" if plain else f"{atom} * ({spelled})"


def _rejoined(index: Index) -> Index:
    """Take a quotient times its divisor and the remainder together again."""
    factors = dict(index.terms)
    for atom, factor in index.terms:
        if not isinstance(atom, Divided) or not atom.remainder:
            continue
        quotient = Divided(atom.index, atom.by, remainder=False)
        if factors.get(quotient) == factor * atom.by:
            rest = tuple((a, f) for a, f in index.terms if a not in (atom, quotient))
            return Index(rest, index.start) + atom.index * factor
    return index


def _split(start: Extent, by: Extent) -> tuple[Extent, Extent]:
    quotient = start.divided_by(by)
    if quotient is not None:
        return quotient, ZERO
    if start.constant is not None and by.constant:
        return Extent.of(start.constant // by.constant), Extent.of(start.constant % by.constant)
    return ZERO, start


def never_negative(extent: Extent) -> bool:
    """Sizes are at least zero, so that no negative coefficient is proof enough."""
    return all(coefficient >= 0 for _, coefficient in extent.terms)


def _substituted(atom: Atom, by: Mapping[Variable, Index]) -> Index:
    match atom:
        case Variable():
            return by.get(atom, Index(((atom, ONE),)))
        case Looked(node, place, extent):
            return looked_up(node, tuple(i.substituted(by) for i in place), extent)
        case Divided(index, divisor, remainder):
            return index.substituted(by).divide(divisor)[1 if remainder else 0]
