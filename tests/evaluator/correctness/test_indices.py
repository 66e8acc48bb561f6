from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluator.correctness.indices import index_faults

ROWS, CHOICES, TAKEN = 32, 16, 4


def top(scores: Any) -> tuple[Any, Any]:
    order = np.argsort(-scores, axis=1, kind="stable")[:, :TAKEN]
    return np.take_along_axis(scores, order, axis=1), order


def faults(scores: Any, indices: Any, values: Any | None = None) -> str | None:
    best, order = top(scores)
    return index_faults(
        indices=indices,
        values=best if values is None else values,
        expected_indices=order,
        native_indices=order,
        expected_values=best,
        budget=np.full(best.shape, 1e-6),
        axis=-1,
    )


@given(seed=st.integers(0, 500))
@settings(max_examples=30)
def test_another_order_among_equal_values_is_right(seed: int) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 3, (ROWS, CHOICES)).astype(float)
    scores += np.where(np.arange(CHOICES) < TAKEN + 2, 10.0, 0.0)
    permuted = rng.permutation(CHOICES)
    other = permuted[top(scores[:, permuted])[1]]
    assert faults(scores, other) is None


@given(seed=st.integers(0, 500))
@settings(max_examples=30)
def test_right_values_with_made_up_indices_are_wrong(seed: int) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(ROWS, CHOICES))
    made_up = np.stack([rng.permutation(CHOICES)[:TAKEN] for _ in range(ROWS)])
    assert faults(scores, made_up) is not None


def test_swapped_positions_of_different_values_are_wrong() -> None:
    scores = np.random.default_rng(1).normal(size=(ROWS, CHOICES))
    order = top(scores)[1]
    assert faults(scores, order[:, ::-1]) is not None


def test_a_last_index_that_nobody_selects_is_wrong_where_nothing_ties() -> None:
    scores = np.random.default_rng(1).normal(size=(ROWS, CHOICES))
    order = np.argsort(-scores, axis=1)
    skipped = np.concatenate([order[:, : TAKEN - 1], order[:, TAKEN : TAKEN + 1]], axis=1)
    assert faults(scores, skipped) is not None


def test_an_index_that_occurs_twice_is_wrong() -> None:
    scores = np.zeros((ROWS, CHOICES))
    assert faults(scores, np.zeros((ROWS, TAKEN), dtype=np.int64)) is not None


def test_which_of_the_masked_elements_fill_up_a_row_is_free() -> None:
    scores = np.random.default_rng(1).normal(size=(ROWS, CHOICES))
    scores[:, TAKEN - 2 :] = -np.inf
    other = top(scores)[1]
    other[:, TAKEN - 2 :] = [CHOICES - 1, CHOICES - 3]
    assert faults(scores, other) is None
    other[:, 0] = CHOICES - 2
    assert faults(scores, other) is not None
