"""Rotary position embedding."""

import torch
from torch import Tensor


def rotary_tables(length: int, dim: int, base: float) -> tuple[Tensor, Tensor]:
    """Cosines and sines of every position, each ``[length, dim]``."""
    frequencies = base ** -(torch.arange(0, dim, 2, dtype=torch.float32) / dim)
    angles = torch.outer(torch.arange(length, dtype=torch.float32), frequencies)
    both = torch.cat((angles, angles), dim=-1)
    return both.cos(), both.sin()


def rotate_half(x: Tensor) -> Tensor:
    """Swap the halves of the last dimension and negate the new first."""
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), dim=-1)


def apply_rotary(query: Tensor, key: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """Rotate ``query [tokens, heads, dim]`` and ``key [tokens, kv_heads, dim]``.

    ``cos`` and ``sin`` are ``[tokens, dim]``, the rows of the tokens' positions.
    """
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    return query * cos + rotate_half(query) * sin, key * cos + rotate_half(key) * sin
