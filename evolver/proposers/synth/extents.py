"""Extents of axes: polynomials with whole coefficients over the symbols of a problem's sizes.

A shape that varies between workloads is an expression such as ``s0*8 + 1``. Polynomials have
one normal form, so two extents are equal exactly when they are equal for all sizes. Anything
else (a floor division, a maximum) is refused: ``ExtentError`` says what could not be read.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod

Monomial = tuple[str, ...]
"""Symbols in order, each as often as its power; the empty one is the constant's."""


class ExtentError(ValueError):
    """An extent that is no polynomial; the message has its text."""


@dataclass(frozen=True)
class Extent:
    """A sum of terms; ``terms`` is sorted, without zeros."""

    terms: tuple[tuple[Monomial, int], ...] = ()

    @staticmethod
    def of(value: int | str | Extent) -> Extent:
        """Return ``value`` as an extent: a number, or text such as ``2*s0 + 1``.

        Raises:
            ExtentError: the text is no polynomial over symbols.
        """
        if isinstance(value, Extent):
            return value
        if isinstance(value, int):
            return _collected([((), value)])
        try:
            return _read(ast.parse(value, mode="eval").body)
        except (SyntaxError, RecursionError, ValueError) as error:
            raise ExtentError(f"the size {value[:80]!r} is no sum of products of sizes") from error

    @property
    def constant(self) -> int | None:
        """The number that this extent is for all sizes, None where it varies."""
        if not self.terms:
            return 0
        return self.terms[0][1] if len(self.terms) == 1 and not self.terms[0][0] else None

    @property
    def symbols(self) -> frozenset[str]:
        """The symbols that it is made of."""
        return frozenset(symbol for monomial, _ in self.terms for symbol in monomial)

    def at(self, sizes: Mapping[str, int]) -> int:
        """Return the number that it is for ``sizes``."""
        return sum(c * prod(sizes[s] for s in monomial) for monomial, c in self.terms)

    def __add__(self, other: Extent | int) -> Extent:
        return _collected([*self.terms, *Extent.of(other).terms])

    def __sub__(self, other: Extent | int) -> Extent:
        return self + Extent.of(other) * -1

    def __mul__(self, other: Extent | int) -> Extent:
        factors = Extent.of(other).terms
        return _collected((tuple(sorted(m + n)), c * d) for m, c in self.terms for n, d in factors)

    def divided_by(self, divisor: Extent) -> Extent | None:
        """Return the quotient where ``divisor`` is one term that divides every term, else None."""
        if self == divisor:
            return Extent.of(1)
        if len(divisor.terms) != 1:
            return None
        (monomial, coefficient) = divisor.terms[0]
        quotient = []
        for term, c in self.terms:
            left = list(term)
            for symbol in monomial:
                if symbol not in left:
                    return None
                left.remove(symbol)
            if c % coefficient:
                return None
            quotient.append((tuple(left), c // coefficient))
        return _collected(quotient)

    def __str__(self) -> str:
        text = " + ".join(_term(monomial, c) for monomial, c in reversed(self.terms)) or "0"
        return text.replace("+ -", "- ")


def product(extents: Iterable[Extent]) -> Extent:
    """Return the product of ``extents``, 1 for none."""
    result = Extent.of(1)
    for extent in extents:
        result = result * extent
    return result


def _collected(terms: Iterable[tuple[Monomial, int]]) -> Extent:
    sums: dict[Monomial, int] = {}
    for monomial, coefficient in terms:
        sums[monomial] = sums.get(monomial, 0) + coefficient
    return Extent(tuple(sorted((m, c) for m, c in sums.items() if c)))


def _term(monomial: Monomial, coefficient: int) -> str:
    if not monomial:
        return str(coefficient)
    sign = {1: "", -1: "-"}.get(coefficient, f"{coefficient}*")
    return sign + "*".join(monomial)


def _read(node: ast.expr) -> Extent:
    match node:
        case ast.Constant(int(value)):
            return Extent.of(value)
        case ast.Name(name):
            return Extent((((name,), 1),))
        case ast.UnaryOp(ast.USub(), operand):
            return _read(operand) * -1
        case ast.BinOp(left, ast.Add(), right):
            return _read(left) + _read(right)
        case ast.BinOp(left, ast.Sub(), right):
            return _read(left) - _read(right)
        case ast.BinOp(left, ast.Mult(), right):
            return _read(left) * _read(right)
        case ast.BinOp(left, ast.Pow(), ast.Constant(int(power))) if 0 <= power <= 4:
            return product([_read(left)] * power)
    raise ValueError(ast.unparse(node))
