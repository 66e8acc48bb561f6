"""The decoder: attention and routed experts, with weights from a fixed seed."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .config import Config
from .norm import add_rms_norm
from .rotary import apply_rotary, rotary_tables
from .router import route


class Cache:
    """Keys and values of the positions so far, ``[batch, kv_heads, max_length, head_dim]``."""

    def __init__(self, config: Config, batch: int) -> None:
        shape = (batch, config.kv_heads, config.max_length, config.head_dim)
        self.keys = [torch.zeros(shape) for _ in range(config.layers)]
        self.values = [torch.zeros(shape) for _ in range(config.layers)]


class Attention(nn.Module):
    """Grouped-query attention of one new token per sequence to all tokens before it."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        width = (config.heads + 2 * config.kv_heads) * config.head_dim
        self.into = nn.Linear(config.hidden, width, bias=False)
        self.out = nn.Linear(config.heads * config.head_dim, config.hidden, bias=False)

    def forward(
        self, x: Tensor, cos: Tensor, sin: Tensor, keys: Tensor, values: Tensor, position: int
    ) -> Tensor:
        """``x`` is ``[batch, hidden]``; the cache is written at ``position``."""
        c = self.config
        packed = self.into(x).view(len(x), -1, c.head_dim)
        query, key, value = packed.split((c.heads, c.kv_heads, c.kv_heads), dim=1)
        query, key = apply_rotary(query.contiguous(), key.contiguous(), cos, sin)
        keys[:, :, position] = key
        values[:, :, position] = value
        past = slice(0, position + 1)
        attended = F.scaled_dot_product_attention(
            query.unsqueeze(2), keys[:, :, past], values[:, :, past], enable_gqa=True
        )
        return self.out(attended.reshape(len(x), -1))


class Experts(nn.Module):
    """All experts in one batched product; at this size that is cheaper than to gather tokens."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.gate = nn.Linear(config.hidden, config.experts, bias=False)
        self.bias = nn.Parameter(torch.zeros(config.experts))
        self.up = nn.Parameter(torch.empty(config.experts, config.hidden, config.expert_hidden))
        self.down = nn.Parameter(torch.empty(config.experts, config.expert_hidden, config.hidden))

    def forward(self, x: Tensor) -> Tensor:
        """``x`` is ``[tokens, hidden]``."""
        c = self.config
        weights, indices = route(
            self.gate(x), self.bias, c.expert_groups, c.chosen_groups, c.experts_per_token
        )
        shares = torch.zeros(len(x), c.experts).scatter_(1, indices, weights)
        inner = F.silu(torch.matmul(x, self.up))
        return torch.einsum("eth,te->th", torch.matmul(inner, self.down), shares)


class Layer(nn.Module):
    """Attention, then experts, each behind a norm that carries the residual."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.eps = config.eps
        self.attention = Attention(config)
        self.experts = Experts(config)
        self.before_attention = nn.Parameter(torch.ones(config.hidden))
        self.before_experts = nn.Parameter(torch.ones(config.hidden))


class Model(nn.Module):
    """Token ids in, logits out, one position at a time."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.embed = nn.Embedding(config.vocabulary, config.hidden)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.last_norm = nn.Parameter(torch.ones(config.hidden))
        self.head = nn.Linear(config.hidden, config.vocabulary, bias=False)
        cos, sin = rotary_tables(config.max_length, config.head_dim, config.rope_base)
        self.register_buffer("cos", cos)
        self.register_buffer("sin", sin)
        self._draw_weights()

    def _draw_weights(self) -> None:
        generator = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for weight in self.parameters():
                if weight.dim() > 1:
                    weight.normal_(std=weight.shape[-1] ** -0.5, generator=generator)

    def forward(self, tokens: Tensor, cache: Cache, position: int) -> Tensor:
        """Logits ``[batch, vocabulary]`` after ``tokens [batch]`` at ``position``."""
        x = self.embed(tokens)
        residual = torch.zeros_like(x)
        cos = self.cos[position].expand(len(tokens), -1).contiguous()
        sin = self.sin[position].expand(len(tokens), -1).contiguous()
        for number, layer in enumerate(self.layers):
            x, residual = add_rms_norm(x, residual, layer.before_attention, layer.eps)
            x = layer.attention(x, cos, sin, cache.keys[number], cache.values[number], position)
            x, residual = add_rms_norm(x, residual, layer.before_experts, layer.eps)
            x = layer.experts(x)
        x, _ = add_rms_norm(x, residual, self.last_norm, self.config.eps)
        return self.head(x)
