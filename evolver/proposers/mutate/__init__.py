"""The ``mutate`` proposer: one or two small structured edits of the parent, or a crossover.

It needs no model and no device. The operators lie in ``triton_edits.py`` and
``cpp_edits.py``; each refuses what it cannot show to be safe, and the evaluator judges the
rest. Where good candidates of the island are at hand, a child may take a kernel of one.
"""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Mapping, Sequence

from evaluator.candidate import BackendName, Candidate
from evolver.library.entry import Known
from evolver.proposers.base import ProposalContext
from evolver.proposers.mutate.cpp_edits import CPP_OPERATORS
from evolver.proposers.mutate.crossover import CROSSOVERS
from evolver.proposers.mutate.operators import Edit, Operator, in_random_order, joined, signed
from evolver.proposers.mutate.triton_edits import TRITON_OPERATORS

OPERATORS: Mapping[BackendName, Sequence[Operator]] = {
    BackendName.TRITON: TRITON_OPERATORS,
    BackendName.CPP: CPP_OPERATORS,
}

TWO_EDITS_PROBABILITY = 0.3
"""Single edits say what helped; pairs get past steps that pay only together."""
CROSSOVER_PROBABILITY = 0.15
"""How often a mate is asked first, where there is one."""
MOST_FAVOUR = 3.0
"""What worked elsewhere makes an operator at most so much likelier: it may not work here."""
CROSSOVER = "crossover"

log = logging.getLogger(__name__)


class MutateProposer:
    """Proposes edits of ``context.parent``."""

    name = "mutate"

    def propose(self, context: ProposalContext) -> Candidate | None:
        """Return a child of the parent, or None without a parent or an operator that applies."""
        if context.parent is None:
            return None
        parent = context.parent.candidate
        mates = [
            mate
            for mate in (exemplar.candidate for exemplar in context.exemplars)
            if mate.backend is parent.backend and mate.id != parent.id
        ]
        favour = favour_of(context.known)
        crossover = CROSSOVER_PROBABILITY * favour.get(CROSSOVER, 1.0)
        if mates and context.rng.random() < crossover:
            mate = context.rng.choice(mates)
            edit = cross(parent.source, mate.source, parent.backend, context.rng)
            if edit is not None:
                return self._child(parent, edit, (parent.id, mate.id))
        edit = mutate(parent.source, parent.backend, context.rng, favour)
        return None if edit is None else self._child(parent, edit, (parent.id,))

    def _child(self, parent: Candidate, edit: Edit, parents: tuple[str, ...]) -> Candidate | None:
        child = Candidate.create(
            edit.source,
            backend=parent.backend,
            proposer=self.name,
            parents=parents,
            description=edit.description,
        )
        return child if child.id not in parents else None


def cross(source: str, mate: str, backend: BackendName, rng: random.Random) -> Edit | None:
    """Give ``source`` something of ``mate``; None where the two cannot be crossed."""
    options = CROSSOVERS[backend](source, mate)
    if not options:
        return None
    option = rng.choice(options)
    return signed(CROSSOVER, Edit(option.build(), option.description))


def favour_of(known: Sequence[Known]) -> Mapping[str, float]:
    """Return by how much each operator's weight rises: with what it gained on similar problems.

    An operator that alone doubled the speed of a problem of the very same kind counts most.
    """
    raised: dict[str, float] = {}
    for one in known:
        names = one.entry.change.operators
        for name in names:
            gain = one.similarity * math.log(one.entry.gain.low) / len(names)
            raised[name] = raised.get(name, 1.0) + 3.0 * gain
    return {name: min(MOST_FAVOUR, weight) for name, weight in raised.items()}


def mutate(
    source: str,
    backend: BackendName,
    rng: random.Random,
    favour: Mapping[str, float] | None = None,
) -> Edit | None:
    """Apply one or two operators of ``backend`` to ``source``; None where none applies."""
    wanted = 2 if rng.random() < TWO_EDITS_PROBABILITY else 1
    done: list[Edit] = []
    current = source
    for operator in in_random_order(OPERATORS[backend], rng, favour):
        if len(done) == wanted:
            break
        edit = operator.apply(current, rng)
        if edit is None or edit.source == current:
            continue
        log.debug("operator %s: %s", operator.name, edit.description)
        current = edit.source
        done.append(signed(operator.name, edit))
    return joined(done) if done else None
