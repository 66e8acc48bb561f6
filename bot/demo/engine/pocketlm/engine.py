"""Batched greedy generation with penalties."""

import torch
from torch import Tensor

from .config import Config
from .model import Cache, Model
from .sampling import apply_penalties, greedy


class Engine:
    """Generates for a batch of prompts of equal length."""

    def __init__(self, config: Config | None = None) -> None:
        self.config = config or Config()
        self.model = Model(self.config).eval()

    @torch.inference_mode()
    def generate(self, prompts: Tensor, steps: int) -> Tensor:
        """``prompts [batch, length]`` to new tokens ``[batch, steps]``."""
        batch, length = prompts.shape
        if length + steps > self.config.max_length:
            raise ValueError(f"{length} + {steps} tokens exceed {self.config.max_length}")
        cache = Cache(self.config, batch)
        counts = torch.zeros(batch, self.config.vocabulary)
        penalties = [torch.full((batch,), value) for value in (1.2, 0.1, 0.1)]
        for position in range(length - 1):
            self.model(prompts[:, position], cache, position)
        token, made = prompts[:, -1], []
        for position in range(length - 1, length - 1 + steps):
            logits = self.model(token, cache, position)
            token = greedy(apply_penalties(logits, counts, *penalties))
            counts.scatter_add_(1, token.unsqueeze(1), torch.ones(batch, 1))
            made.append(token)
        return torch.stack(made, dim=1)
