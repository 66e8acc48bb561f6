"""A problem of ``ksmith bench search``."""

import torch


def group_norm_swish(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """A group norm of an image's channels with its affine part, and swish."""
    grouped = x.reshape(x.shape[0], 8, -1)
    mean = grouped.mean(dim=-1, keepdim=True)
    variance = ((grouped - mean) ** 2).mean(dim=-1, keepdim=True)
    normed = ((grouped - mean) / torch.sqrt(variance + 1e-5)).reshape(x.shape)
    scaled = normed * weight.reshape(1, -1, 1, 1) + bias.reshape(1, -1, 1, 1)
    return scaled * torch.sigmoid(scaled)
