"""What an operator is: a small, checked edit of one candidate's source.

An operator lists the edits that it could make (its options), and the proposer's random
numbers choose one; so the same seed on the same parent gives the same child. An operator
returns None where it has nothing to offer. It never guesses: an edit whose safety cannot
be read from the source is not an option. Whether a child is right and faster is for the
evaluator to find out.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from evaluator.candidate import BackendName


@dataclass(frozen=True)
class Edit:
    """A new source and, in one line, what was done to get it."""

    source: str
    description: str


@dataclass(frozen=True)
class Option:
    """An edit that could be made; ``build`` makes it only when it was chosen."""

    description: str
    build: Callable[[], str]


@dataclass(frozen=True)
class Operator:
    """A named kind of edit for the candidates of one backend."""

    name: str
    applies_to: BackendName
    options: Callable[[str], Sequence[Option]]
    weight: int = 1
    """How often it is tried, relative to the others."""

    def apply(self, source: str, rng: random.Random) -> Edit | None:
        """Return one edit of ``source`` drawn with ``rng``, or None where there is none."""
        options = list(self.options(source))
        if not options:
            return None
        option = rng.choice(options)
        return Edit(option.build(), option.description)


def in_random_order(
    operators: Sequence[Operator], rng: random.Random, favour: Mapping[str, float] | None = None
) -> list[Operator]:
    """Return every operator once, heavier ones earlier on average.

    ``favour`` multiplies the weights of the operators that it names.
    """

    def drawn(operator: Operator) -> float:
        # Efraimidis and Spirakis (2006): sorting by u ** (1 / w) samples without replacement.
        weight = operator.weight * (favour or {}).get(operator.name, 1.0)
        return float(rng.random() ** (1 / weight))

    return sorted(operators, key=drawn, reverse=True)


def signed(operator: str, edit: Edit) -> Edit:
    """Return the edit with its operator's name in front of what it did."""
    return Edit(edit.source, f"{operator}: {edit.description}")


def joined(edits: Sequence[Edit]) -> Edit:
    """Return edits that follow one another as one: the last source, and all that was done."""
    return Edit(edits[-1].source, "; ".join(edit.description for edit in edits))


def operators_in(description: str) -> tuple[str, ...]:
    """Return the operators that a candidate's description names, as ``joined`` wrote it."""
    parts = [re.match(r"([a-z_0-9]+): ", part) for part in description.split("; ")]
    return tuple(part[1] for part in parts if part)


def fresh_name(wanted: str, taken: Collection[str]) -> str:
    """Return ``wanted``, or ``wanted_2``, ``wanted_3``... where it is taken."""
    name, number = wanted, 2
    while name in taken:
        name, number = f"{wanted}_{number}", number + 1
    return name
