"""The tensor part of DeepSeek's Engram layer, in plain torch, from its published description.

Per stream: a key of the embedding against the hidden state gives a gate; the gated value goes
through a causal depthwise convolution over time with dilation, and is added to it.
"""

import math

import torch
import torch.nn.functional as F


def _rms(x, weight, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


class Engram:
    """Gates, values and a short convolution over the streams of a hidden state."""

    def forward(self, embeddings, hidden_states):
        """``embeddings`` [B, T, E], ``hidden_states`` [B, T, G, D] -> [B, T, G, D]."""
        batch, length, groups, width = hidden_states.shape
        gates = []
        for g in range(4):
            key = F.linear(embeddings, self.key_weight[g], self.key_bias[g])
            key = _rms(key, self.key_norm[g], 1.1920929e-07)
            query = _rms(hidden_states[:, :, g, :], self.query_norm[g], 1.1920929e-07)
            raw = (key * query).sum(-1) / math.sqrt(1024)
            gates.append(torch.sigmoid(raw.abs().clamp_min(1e-6).sqrt() * raw.sign()))
        gate = torch.stack(gates, dim=2).unsqueeze(-1)
        value = F.linear(embeddings, self.value_weight, self.value_bias)
        value = gate * value.unsqueeze(2)
        normed = _rms(value, self.conv_norm, 1e-5)
        channels = normed.reshape(batch, length, groups * width).transpose(1, 2)
        mixed = F.conv1d(channels, self.conv_weight, padding=9, dilation=3, groups=groups * width)[
            ..., :length
        ]
        mixed = F.silu(mixed).transpose(1, 2).reshape(batch, length, groups, width)
        return value + mixed


class ShortConv:
    """The convolution of the layer alone."""

    def forward(self, x):
        """``x`` [B, T, G, D] -> [B, T, G, D]."""
        batch, length, groups, width = x.shape
        streams = [_rms(x[:, :, g, :], self.norm_weight[g], 1e-5) for g in range(4)]
        channels = torch.cat(streams, dim=-1).transpose(1, 2)
        mixed = F.conv1d(channels, self.conv_weight, padding=9, dilation=3, groups=groups * width)[
            ..., :length
        ]
        return F.silu(mixed).transpose(1, 2).view(batch, length, groups, width).contiguous()
