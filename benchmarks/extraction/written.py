"""References written by hand from the specification of what a target computes.

Plain loops and formulae, unlike the originals on purpose; they run inside the sandbox, in the
place of the original, and take the problem's parameters by position.
"""

import math
from typing import Any

import torch


def decode_metadata(*values: Any) -> Any:
    """Lengths, their running sum and each row's pages, all written in place."""
    cache_seqlens, cu_seqlens, page_table, slots, rows, strides, pages = values[:7]
    lengths, delta, size = values[7:10]
    total = 0
    for row in range(len(lengths)):
        cache_seqlens[row] = int(lengths[row]) + delta
        total += int(cache_seqlens[row])
        cu_seqlens[row + 1] = total
        for column in range(pages):
            slot = int(slots[int(rows[row]), int(strides[column])])
            page_table[row, column] = math.floor(slot / size)


def noaux_tc(*values: Any) -> Any:
    """Grouped routing: scores outside the best groups count as zero, weights leave the bias out."""
    logits, bias, _, k, groups, kept, experts, _, scaling = values[:9]
    scores = torch.sigmoid(logits)
    weights, ids = [], []
    for row in range(len(logits)):
        biased = scores[row] + bias
        members = biased.split(experts // groups)
        strength = torch.stack([torch.sort(m, descending=True)[0][:2].sum() for m in members])
        best = set(torch.argsort(strength, descending=True)[:kept].tolist())
        choice = torch.cat([m if g in best else m * 0 for g, m in enumerate(members)])
        chosen = torch.argsort(choice, descending=True)[:k]
        weight = scores[row, chosen]
        weights.append(scaling * weight / (weight.sum() + 1e-20))
        ids.append(chosen)
    return torch.stack(weights), torch.stack(ids)


def engram(embeddings: torch.Tensor, hidden: torch.Tensor, *state: torch.Tensor) -> Any:
    """Gated values of each stream, and their causal convolution over time added."""
    width = hidden.shape[-1]
    value_w, value_b, key_w, key_b = state[0], state[1], state[2:10:2], state[3:10:2]
    norm1, norm2, taps, norms = state[10:14], state[14:18], state[18], state[19:23]

    def normal(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps) * weight

    eps = torch.finfo(torch.float32).eps
    value, streams = embeddings @ value_w.T + value_b, []
    for g in range(4):
        key = normal(embeddings @ key_w[g].T + key_b[g], norm1[g], eps)
        raw = (key * normal(hidden[:, :, g], norm2[g], eps)).sum(-1) / math.sqrt(1024)
        gate = torch.sigmoid(torch.sign(raw) * torch.sqrt(torch.clamp(raw.abs(), min=1e-6)))
        streams.append(gate[..., None] * value)
    gated = torch.stack(streams, 2)
    channels = torch.cat([normal(gated[:, :, g], norms[g], 1e-5) for g in range(4)], -1)
    mixed = torch.zeros_like(channels)
    for time in range(channels.shape[1]):
        for tap in range(4):
            earlier = time - 3 * (3 - tap)
            if earlier >= 0:
                mixed[:, time] += channels[:, earlier] * taps[:, 0, tap]
    return gated + (mixed * torch.sigmoid(mixed)).reshape(*gated.shape[:3], width)
