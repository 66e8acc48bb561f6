"""A problem of ``ksmith bench search``."""

import torch


def layer_norm_gelu(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """A layer norm with its affine part, and GELU by the error function."""
    mean = x.mean(dim=-1, keepdim=True)
    variance = ((x - mean) ** 2).mean(dim=-1, keepdim=True)
    normed = (x - mean) / torch.sqrt(variance + 1e-5) * weight + bias
    return 0.5 * normed * (1 + torch.erf(normed * 0.7071067811865476))
