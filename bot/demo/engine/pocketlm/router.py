"""The choice of experts: groups first, then experts within the chosen groups."""

import torch
from torch import Tensor


def route(
    logits: Tensor, bias: Tensor, groups: int, chosen_groups: int, top_k: int
) -> tuple[Tensor, Tensor]:
    """Weights and indices of the ``top_k`` experts of each token, ``[tokens, top_k]`` both.

    ``logits`` are ``[tokens, experts]``. A group's score is the sum of its two best
    experts. ``bias`` takes part in the choice, not in the weights, which sum to one.
    """
    tokens, experts = logits.shape
    scores = logits.sigmoid()
    choice = scores + bias
    group_scores = choice.view(tokens, groups, -1).topk(2, dim=-1)[0].sum(dim=-1)
    best_groups = group_scores.topk(chosen_groups, dim=-1)[1]
    mask = torch.zeros_like(group_scores).scatter_(1, best_groups, 1.0)
    mask = mask.unsqueeze(-1).expand(tokens, groups, experts // groups).reshape(tokens, -1)
    indices = choice.masked_fill(mask == 0, float("-inf")).topk(top_k, dim=-1)[1]
    weights = scores.gather(1, indices)
    return weights / weights.sum(dim=-1, keepdim=True), indices
