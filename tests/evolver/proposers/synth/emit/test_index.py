"""The algebra of places against numbers."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evolver.proposers.synth.emit.index import (
    Divided,
    Index,
    Looked,
    Variable,
    at,
    constant,
)
from evolver.proposers.synth.emit.places import reshaped
from evolver.proposers.synth.extents import Extent

A, B, C = (Variable(name, Extent.of(n)) for name, n in (("a", 4), ("b", 6), ("c", 5)))
VALUES = [
    dict(zip((A, B, C), v, strict=True)) for v in itertools.product(range(4), range(6), range(5))
]
indices = st.lists(
    st.tuples(st.sampled_from((A, B, C)), st.sampled_from((1, 2, 3, 6, 8, 24))),
    min_size=1,
    max_size=3,
).flatmap(
    lambda terms: st.integers(0, 30).map(
        lambda start: sum((at(v) * f for v, f in terms), constant(start))
    )
)


def number(index: Index, values: dict[Variable, int]) -> int:
    """What a place is where the loops stand at ``values``."""
    total = index.start.constant or 0
    for atom, factor in index.terms:
        if isinstance(atom, Variable):
            value = values[atom]
        else:
            assert isinstance(atom, Divided)
            quotient, rest = divmod(number(atom.index, values), atom.by.constant or 1)
            value = rest if atom.remainder else quotient
        total += value * (factor.constant or 0)
    return total


@given(indices, st.integers(1, 30))
def test_places_divide_as_numbers_do(index: Index, by: int) -> None:
    quotient, rest = index.divide(Extent.of(by))
    for values in VALUES[::7]:
        assert (number(quotient, values), number(rest, values)) == divmod(number(index, values), by)
    if index.lies_below(Extent.of(by)):
        assert all(0 <= number(index, values) < by for values in VALUES)


@pytest.mark.parametrize(
    ("old", "new"),
    [((4, 6), (24,)), ((24,), (4, 6)), ((4, 6, 1), (2, 1, 12)), ((6, 4), (4, 6)), ((24, 1), (24,))],
)
def test_a_reshape_keeps_the_order_of_elements(old: tuple[int, ...], new: tuple[int, ...]) -> None:
    loops = [Variable(f"i{axis}", Extent.of(n)) for axis, n in enumerate(new)]
    place = reshaped(
        [at(v) for v in loops], [Extent.of(n) for n in new], [Extent.of(n) for n in old]
    )
    for position, values in enumerate(itertools.product(*map(range, new))):
        found = [number(i, dict(zip(loops, values, strict=True))) for i in place]
        flat = 0
        for extent, index in zip(old, found, strict=True):
            assert index < extent
            flat = flat * extent + index
        assert flat == position


def test_splitting_an_axis_that_was_merged_from_loops_needs_no_division() -> None:
    n = Variable("n", Extent.of("s0"))
    flat = at(n) * 24 + at(A) * 6 + at(B)
    whole, rest = flat.divide(Extent.of(24))
    assert (whole, rest.divide(Extent.of(6))) == (at(n), (at(A), at(B)))


def test_a_place_that_is_split_and_put_together_is_itself() -> None:
    looked = Index(((Looked(3, (), Extent.of(256)), Extent.of(1)),))
    whole, rest = looked.divide(Extent.of(32))
    assert whole != looked
    assert whole * 32 + rest == looked
