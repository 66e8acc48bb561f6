"""The router: whole shares, chosen groups alone, the best experts."""

import torch

from pocketlm.router import route


def logits_of(tokens):
    return torch.randn(tokens, 16, generator=torch.Generator().manual_seed(tokens))


def test_weights_sum_to_one():
    weights, indices = route(logits_of(33), torch.zeros(16), 4, 2, 4)
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(33))
    assert indices.shape == (33, 4)


def test_experts_come_from_the_chosen_groups_alone():
    _, indices = route(logits_of(64), torch.zeros(16), 4, 2, 4)
    for row in indices // 4:
        assert len(set(row.tolist())) <= 2


def test_bias_takes_part_in_the_choice_and_not_in_the_weights():
    bias = torch.zeros(16)
    bias[3] = 10.0
    weights, indices = route(torch.zeros(8, 16), bias, 4, 2, 4)
    assert bool((indices == 3).any(dim=-1).all())
    torch.testing.assert_close(weights, torch.full((8, 4), 0.25))
