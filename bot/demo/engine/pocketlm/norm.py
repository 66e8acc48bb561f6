"""Root mean square normalisation, fused with the residual connection by its signature."""

import torch
from torch import Tensor


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Add ``residual`` to ``x`` and normalise the sum over its last dimension.

    Returns the normalised sum and the sum itself, the next residual. Statistics are taken
    in float32 whatever the dtype of the activations.
    """
    total = x + residual
    wide = total.to(torch.float32)
    variance = wide.pow(2).mean(dim=-1, keepdim=True)
    normed = wide * torch.rsqrt(variance + eps)
    return normed.to(total.dtype) * weight, total
