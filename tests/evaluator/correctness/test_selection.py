from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from evaluator.correctness.contract import check_call
from evaluator.correctness.expected import Expected
from evaluator.problem import Contract, Output, OutputKind, Tolerance
from evaluator.tensors import CallResult
from tests.evaluator.calls import make_call, make_expected

ROUTER = Contract(
    outputs=(Output(), Output(kind=OutputKind.INDICES, selects=0)), returns_tuple=True
)
ROWS, EXPERTS, TAKEN = 200, 16, 4
JITTER = 2e-7


def route(scores: Any, bias: Any) -> tuple[Any, Any]:
    """The best by score and bias; the weights are the scores alone, and they sum to one."""
    chosen = np.argsort(-(scores + bias), axis=1, kind="stable")[:, :TAKEN]
    weights = np.take_along_axis(scores, chosen, axis=1)
    return weights / weights.sum(axis=1, keepdims=True), chosen


def near_tie() -> tuple[Any, Any]:
    """Scores whose first row has its fourth and fifth choice within a rounding error."""
    rng = np.random.default_rng(5)
    scores, bias = rng.uniform(size=(ROWS, EXPERTS)), rng.uniform(-0.05, 0.05, EXPERTS)
    order = np.argsort(-(scores[0] + bias))
    scores[0, order[TAKEN]] = scores[0, order[TAKEN - 1]] + bias[order[TAKEN - 1]]
    scores[0, order[TAKEN]] -= bias[order[TAKEN]] + 1e-8
    return scores, bias


def narrow(weights: Any, chosen: Any) -> CallResult:
    return make_call([weights.astype(np.float32), chosen])


def expectation(scores: Any, bias: Any) -> Expected:
    rng = np.random.default_rng(6)
    alternatives = tuple(
        make_call(list(route(scores * (1 + JITTER * rng.normal(size=scores.shape)), bias)))
        for _ in range(8)
    )
    weights, chosen = route(scores, bias)
    plain = make_expected(narrow(weights, chosen), make_call([weights, chosen]))
    return replace(plain, alternatives=alternatives, jitter=JITTER)


def kinds(expected: Expected, got: CallResult) -> set[str]:
    return {f.kind for f in check_call(ROUTER, Tolerance(), expected, got).faults}


def test_the_other_choice_of_a_near_tie_is_right_with_its_own_weights() -> None:
    scores, bias = near_tie()
    expected = expectation(scores, bias)
    moved = scores.copy()
    moved[0, route(scores, bias)[1][0, TAKEN - 1]] -= 1e-7
    weights, chosen = route(moved, bias)
    assert (chosen[0] != route(scores, bias)[1][0]).any()
    assert "wrong values" in kinds(replace(expected, alternatives=()), narrow(weights, chosen))
    assert not kinds(expected, narrow(weights, chosen))


def test_the_other_choice_with_the_weights_of_the_first_is_wrong() -> None:
    scores, bias = near_tie()
    moved = scores.copy()
    moved[0, route(scores, bias)[1][0, TAKEN - 1]] -= 1e-7
    weights, _ = route(scores, bias)
    assert kinds(expectation(scores, bias), narrow(weights, route(moved, bias)[1]))


def test_a_choice_that_is_no_near_tie_is_wrong() -> None:
    scores, bias = near_tie()
    moved = scores.copy()
    moved[7, route(scores, bias)[1][7, 0]] = 0.0
    assert kinds(expectation(scores, bias), narrow(*route(moved, bias)))


def best(scores: Any, *, first: bool = True) -> tuple[Any, Any]:
    """The largest; among equal ones the first or the last."""
    flipped = scores if first else scores[:, ::-1]
    order = np.argsort(-flipped, axis=1, kind="stable")[:, :TAKEN]
    chosen = order if first else scores.shape[1] - 1 - order
    return np.take_along_axis(scores, chosen, axis=1), chosen


@pytest.mark.parametrize("values", [[-0.7, 0.1, 2.5], [0.0, 1.0], [-np.inf, 0.3, 0.9]])
@pytest.mark.parametrize("sigma", [2e-7, 1e-6, 1e-4])
def test_the_other_end_of_visible_ties_is_right_although_moved_inputs_select_it_too(
    values: list[float], sigma: float
) -> None:
    rng = np.random.default_rng(2)
    scores = rng.choice(values, size=(ROWS, 6)).astype(np.float32).astype(np.float64)
    noise = [1 + sigma * rng.normal(size=scores.shape) for _ in range(20)]
    alternatives = tuple(make_call(list(best(scores * n))) for n in noise)
    expected = make_expected(narrow(*best(scores)), make_call(list(best(scores))))
    expected = replace(expected, alternatives=alternatives, jitter=sigma)
    weights, chosen = best(scores, first=False)
    mine = {tuple(row) for row in chosen}
    assert any(mine & {tuple(r) for r in a.outputs[1].array()} for a in alternatives)
    assert not kinds(expected, narrow(weights, chosen))
    wrong = np.array(weights)
    wrong[3] += 0.01
    assert kinds(expected, narrow(wrong, chosen))
