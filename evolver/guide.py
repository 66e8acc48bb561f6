"""Asks between proposals whether the search should go on, and keeps the answer.

The rules are pure (``adaptive.py``, ``headroom.py``); here they meet the run: its problem, the
policy, and what its state has become.
"""

from __future__ import annotations

from collections.abc import Sequence

from evaluator.problem import Problem
from evolver.adaptive import Advice, Decision, advise
from evolver.headroom import Headroom, headroom_of
from evolver.run import Run
from evolver.state import SearchState
from policies.model import (
    AdaptiveRule,
    EvaluatorPolicy,
    HeadroomPolicy,
    SearchPolicy,
    TrivialityPolicy,
)

_GO_ON = Decision(Advice.CONTINUE, "")


class Guide:
    """Says of a run's state whether to continue, stop or redirect; once for each state."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._policy = SearchPolicy.default()
        self._costs = EvaluatorPolicy.default().triviality
        self._headroom: Headroom | None = None
        self._asked: tuple[int, int, int] | None = None
        self._decision = _GO_ON

    def decide(self, state: SearchState) -> Decision:
        """Return the decision by the evaluations so far, always the same for the same log."""
        if self._headroom is None:
            self._headroom = self._predict(state)
        asked = (len(state.history), len(state.redirected), state.seeds)
        if self._run.config.adaptive and asked != self._asked:
            self._asked = asked
            self._decision = decide(
                state, self._headroom, self._policy.adaptive, redirected=state.redirected
            )
        return self._decision

    def _predict(self, state: SearchState) -> Headroom | None:
        return predict(state, self._run.loaded.problem, self._policy.headroom, self._costs)


def decide(
    state: SearchState,
    headroom: Headroom | None,
    rule: AdaptiveRule,
    *,
    redirected: Sequence[int],
) -> Decision:
    """Return what ``rule`` says of ``state``; all seeds together are where its history begins."""
    history = state.history[max(0, state.seeds - 1) :]
    return advise(history, headroom, rule, redirected=redirected)


def predict(
    state: SearchState, problem: Problem, policy: HeadroomPolicy, costs: TrivialityPolicy
) -> Headroom | None:
    """Return the headroom by what the first candidate that was timed told of the reference."""
    if state.first_timed is None:
        return None
    return headroom_of(state.first_timed, problem, policy, costs=costs)
