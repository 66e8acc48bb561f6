"""Penalties on what was said already, and the choice of the next token."""

from torch import Tensor


def apply_penalties(
    logits: Tensor, counts: Tensor, repetition: Tensor, frequency: Tensor, presence: Tensor
) -> Tensor:
    """Make tokens that occurred already less likely.

    ``logits`` and ``counts`` (how often each token occurred, as floats) are
    ``[batch, vocabulary]``; the three penalties are ``[batch]``.
    """
    seen = (counts > 0).to(logits.dtype)
    scale = 1 + (repetition - 1).unsqueeze(1) * seen
    logits = (logits > 0) * (logits / scale) + (logits <= 0) * (logits * scale)
    return logits - frequency.unsqueeze(1) * counts - presence.unsqueeze(1) * seen


def greedy(logits: Tensor) -> Tensor:
    """The most likely token of each sequence."""
    return logits.argmax(dim=-1)
