"""A problem of ``ksmith bench search``."""

import torch


def swiglu(x: torch.Tensor) -> torch.Tensor:
    """The gate of a feed-forward layer: one half of the columns gates the other."""
    gate, up = x.chunk(2, dim=-1)
    return gate * torch.sigmoid(gate) * up
