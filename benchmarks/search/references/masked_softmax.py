"""A problem of ``ksmith bench search``."""

import torch


def masked_softmax(scores: torch.Tensor, mask: torch.Tensor, scale: float) -> torch.Tensor:
    """Attention's weights: scores scaled, masked by addition, normalised over each row."""
    return torch.softmax(scores * scale + mask, dim=-1)
