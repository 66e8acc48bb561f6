"""Where a candidate stands in the archive, its score aside: complexity and strategy.

Two kernels of equal size and speed may be as unlike as one that keeps a row in registers and
one that loops over it, so the archive tells strategies apart. A strategy is read from the
text alone, never fails, and may be wrong where code hides its structure; nothing but
diversity rests on it.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from evaluator.backends import Language, language_of
from evaluator.candidate import Candidate, native_text
from evolver.descriptors import Complexity, complexity_in
from evolver.strategy_kinds import PLAINEST, Strategy
from evolver.strategy_native import native_strategy
from evolver.strategy_triton import triton_strategy

__all__ = ["Place", "Strategy", "place_of", "strategy_in"]


@dataclass(frozen=True)
class Place:
    """Complexity and strategy of a candidate."""

    complexity: Complexity
    strategy: Strategy = PLAINEST


def place_of(candidate: Candidate) -> Place:
    """Return the place of the candidate: a function of its source and backend alone."""
    tree, language = ast.parse(candidate.source), language_of(candidate.backend)
    return Place(complexity_in(tree, language), strategy_in(tree, language))


def strategy_in(tree: ast.Module, language: Language) -> Strategy:
    """Return the strategy that a candidate's code follows, the plainest where it is too deep."""
    try:
        if not language.native:
            return triton_strategy(tree)
        return native_strategy(tree, native_text(tree) or "", on_cpu=language is Language.CPP)
    except RecursionError:
        return PLAINEST
