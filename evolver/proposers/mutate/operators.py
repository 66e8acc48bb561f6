"""What an operator is: a small, checked edit of one candidate's source.

An operator lists the edits that it could make (its options), and the proposer's random
numbers choose one; so the same seed on the same parent gives the same child. An operator
returns None where it has nothing to offer. It never guesses: an edit whose safety cannot
be read from the source is not an option. Whether a child is right and faster is for the
evaluator to find out.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
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


def in_random_order(operators: Sequence[Operator], rng: random.Random) -> list[Operator]:
    """Return every operator once, heavier ones earlier on average."""
    # Efraimidis and Spirakis (2006): sorting by u ** (1 / w) samples without replacement.
    return sorted(operators, key=lambda op: rng.random() ** (1 / op.weight), reverse=True)


def fresh_name(wanted: str, taken: Collection[str]) -> str:
    """Return ``wanted``, or ``wanted_2``, ``wanted_3``... where it is taken."""
    name, number = wanted, 2
    while name in taken:
        name, number = f"{wanted}_{number}", number + 1
    return name
