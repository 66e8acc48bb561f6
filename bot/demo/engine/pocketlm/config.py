"""Sizes of the model."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Config:
    """Small by default: a decoding step takes milliseconds on a laptop."""

    vocabulary: int = 1024
    hidden: int = 256
    layers: int = 6
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 32
    experts: int = 8
    expert_groups: int = 4
    chosen_groups: int = 2
    experts_per_token: int = 2
    expert_hidden: int = 32
    max_length: int = 128
    rope_base: float = 10000.0
    eps: float = 1e-6
