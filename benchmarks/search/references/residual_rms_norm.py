"""A problem of ``ksmith bench search``."""

import torch


def residual_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The residual is added, and the sum normalised by its root mean square; both are returned."""
    total = x + residual
    scale = torch.rsqrt(total.pow(2).mean(dim=-1, keepdim=True) + 1e-6)
    return total * scale * weight, total
