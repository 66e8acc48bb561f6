"""Penalties: what was not said stays, what was said becomes less likely."""

import torch

from pocketlm.sampling import apply_penalties, greedy


def penalise(logits, counts, repetition=1.0, frequency=0.0, presence=0.0):
    batch = len(logits)
    values = [torch.full((batch,), v) for v in (repetition, frequency, presence)]
    return apply_penalties(logits, counts, *values)


def test_without_penalties_nothing_changes():
    logits = torch.randn(4, 64)
    torch.testing.assert_close(penalise(logits, torch.ones(4, 64)), logits)


def test_repetition_lowers_positive_and_negative_logits():
    logits = torch.tensor([[2.0, -2.0, 2.0]])
    counts = torch.tensor([[1.0, 1.0, 0.0]])
    expected = torch.tensor([[1.0, -4.0, 2.0]])
    torch.testing.assert_close(penalise(logits, counts, repetition=2.0), expected)


def test_frequency_counts_and_presence_does_not():
    logits, counts = torch.zeros(1, 2), torch.tensor([[3.0, 0.0]])
    expected = torch.tensor([[-0.8, 0.0]])
    torch.testing.assert_close(penalise(logits, counts, frequency=0.2, presence=0.2), expected)


def test_greedy_takes_the_largest():
    assert greedy(torch.tensor([[0.0, 2.0, 1.0]])).tolist() == [1]
