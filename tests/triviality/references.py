"""The references of the labelled wins: each a function of tensors, as a repository has it.

Names follow the engines that have such code (SGLang, vLLM, LMDeploy, KernelBench); bodies are
written here.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

INF = float("inf")


def copy_out(x: Tensor) -> Tensor:
    return x.clone()


def as_view(x: Tensor) -> Tensor:
    return x.view(-1, x.shape[-1]).transpose(0, 1)


def transpose_copy(x: Tensor) -> Tensor:
    return x.transpose(-1, -2).contiguous()


def cast_down(x: Tensor) -> Tensor:
    return x.to(torch.bfloat16)


def zeros_out(x: Tensor) -> Tensor:
    return torch.zeros_like(x)


def concat_qkv(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.cat((q, k, v), dim=-1)


def times_one(x: Tensor) -> Tensor:
    return x * 1.0


def relu_clamped(x: Tensor) -> Tensor:
    return torch.clamp(torch.relu(x), max=0.0)


def relu(x: Tensor) -> Tensor:
    return torch.relu(x)


def gelu(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


def add(a: Tensor, b: Tensor) -> Tensor:
    return a + b


def softmax(x: Tensor) -> Tensor:
    return torch.softmax(x, dim=-1)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.layer_norm(x, (x.shape[-1],), weight, bias)


def row_sum(x: Tensor) -> Tensor:
    return x.sum(dim=-1)


def greedy_token(logits: Tensor) -> Tensor:
    return torch.argmax(logits, dim=-1)


def matmul(a: Tensor, b: Tensor) -> Tensor:
    return a @ b


def top_values(x: Tensor) -> tuple[Tensor, Tensor]:
    values, indices = torch.topk(x, 8, dim=-1)
    return values, indices


def sort_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    values, indices = torch.sort(x, dim=-1)
    return values, indices


def running_sum(x: Tensor) -> Tensor:
    return torch.cumsum(x, dim=-1)


def token_embedding(table: Tensor, ids: Tensor) -> Tensor:
    return F.embedding(ids, table)


def add_relu(a: Tensor, b: Tensor) -> Tensor:
    return torch.relu(a + b)


def scale_bias(x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    return x * scale + bias


def silu_and_mul(x: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    return F.silu(x[..., :half]) * x[..., half:]


def gelu_and_mul(x: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    return F.gelu(x[..., :half]) * x[..., half:]


def bias_gelu(x: Tensor, bias: Tensor) -> Tensor:
    return F.gelu(x + bias)


def sigmoid_gate(x: Tensor, gate: Tensor) -> Tensor:
    return x * torch.sigmoid(gate)


def residual_scale(x: Tensor, residual: Tensor) -> Tensor:
    return residual + 0.5 * x


def soft_cap(logits: Tensor) -> Tensor:
    return torch.tanh(logits / 30.0) * 30.0


def next_positions(positions: Tensor) -> Tensor:
    return positions + 1


def masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    return torch.softmax((scores * 0.125).masked_fill(mask, -INF).float(), dim=-1)


def rms_norm(x: Tensor, residual: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    x = x.float() + residual.float()
    residual = x.to(weight.dtype)
    variance = x.pow(2).mean(dim=-1, keepdim=True)
    return (x * torch.rsqrt(variance + 1e-6)).to(weight.dtype) * weight, residual


def gemma_norm(x: Tensor, weight: Tensor) -> Tensor:
    wide = x.float()
    wide = wide * torch.rsqrt(wide.pow(2).mean(dim=-1, keepdim=True) + 1e-6)
    return (wide * (1.0 + weight.float())).to(x.dtype)


def group_norm_silu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.silu(F.group_norm(x, 32, weight, bias))


def rotary(query: Tensor, key: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    query.copy_(query * cos + _rotate_half(query) * sin)
    key.copy_(key * cos + _rotate_half(key) * sin)
    return query, key


def _rotate_half(x: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), dim=-1)


def qk_norm(
    query: Tensor, key: Tensor, q_weight: Tensor, k_weight: Tensor
) -> tuple[Tensor, Tensor]:
    return gemma_norm(query, q_weight), gemma_norm(key, k_weight)


def quant_per_token(x: Tensor) -> tuple[Tensor, Tensor]:
    wide = x.float()
    scale = wide.abs().amax(dim=-1, keepdim=True).clamp(min=1e-10) / 127.0
    return torch.round(wide / scale).clamp(-128, 127).to(torch.int8), scale


def quant_per_group(x: Tensor) -> tuple[Tensor, Tensor]:
    groups = x.view(x.shape[0], -1, 128).float()
    scale = groups.abs().amax(dim=-1, keepdim=True).clamp(min=1e-10) / 448.0
    return (groups / scale).clamp(-448, 448).to(torch.float8_e4m3fn), scale.squeeze(-1)


def norm_rope_quant(x: Tensor, weight: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    normed = gemma_norm(x, weight)
    turned = normed * cos + _rotate_half(normed) * sin
    return quant_per_token(turned)


def topk_router(logits: Tensor) -> tuple[Tensor, Tensor]:
    weights, ids = torch.topk(torch.softmax(logits.float(), dim=-1), 8, dim=-1)
    return weights / weights.sum(dim=-1, keepdim=True), ids.to(torch.int32)


def grouped_router(logits: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    rows = logits.shape[0]
    scores = torch.sigmoid(logits.float())
    choice = scores + bias
    group_scores = torch.topk(choice.view(rows, 8, -1), 2, dim=-1)[0].sum(dim=-1)
    kept = torch.topk(group_scores, 4, dim=-1)[1]
    mask = torch.zeros_like(group_scores).scatter_(1, kept, 1.0)
    wide = mask.unsqueeze(-1).expand(rows, 8, choice.shape[-1] // 8).reshape(rows, -1)
    ids = torch.topk(choice.masked_fill(wide == 0, 0.0), 8, dim=-1)[1]
    weights = scores.gather(1, ids)
    return weights / (weights.sum(dim=-1, keepdim=True) + 1e-20) * 2.5, ids.to(torch.int32)


def moe_align(ids: Tensor) -> tuple[Tensor, Tensor]:
    flat = ids.flatten()
    order = torch.argsort(flat, stable=True)
    counts = torch.zeros(257, dtype=torch.int64, device=ids.device)
    counts = counts.scatter_add(0, flat.long(), torch.ones_like(flat, dtype=torch.int64))
    return order, torch.cumsum((counts + 63) // 64 * 64, dim=0)


def moe_combine(expert_out: Tensor, weights: Tensor) -> Tensor:
    return (expert_out * weights.unsqueeze(-1)).sum(dim=1)


def top_p(logits: Tensor) -> Tensor:
    probs = torch.softmax(logits.float(), dim=-1)
    ordered, where = torch.sort(probs, dim=-1, descending=True)
    ordered = ordered.masked_fill(torch.cumsum(ordered, dim=-1) - ordered > 0.9, 0.0)
    kept = torch.zeros_like(probs).scatter(1, where, ordered)
    return kept / kept.sum(dim=-1, keepdim=True)


def min_p(logits: Tensor) -> Tensor:
    probs = torch.softmax(logits.float(), dim=-1)
    kept = probs.masked_fill(probs < 0.05 * probs.amax(dim=-1, keepdim=True), 0.0)
    return kept / kept.sum(dim=-1, keepdim=True)


def penalties(logits: Tensor, tokens: Tensor, repetition: Tensor) -> Tensor:
    counts = torch.zeros_like(logits).scatter_add(
        1, tokens, torch.ones_like(tokens, dtype=logits.dtype)
    )
    scaled = torch.where(logits > 0, logits / repetition, logits * repetition)
    return torch.where(counts > 0, scaled, logits) - 0.1 * counts


def decode_attention(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    scores = torch.matmul(query, keys.transpose(-1, -2)) * 0.088
    weights = torch.softmax(scores.masked_fill(mask, -INF).float(), dim=-1).to(values.dtype)
    return torch.matmul(weights, values)


def merge_states(a: Tensor, a_lse: Tensor, b: Tensor, b_lse: Tensor) -> tuple[Tensor, Tensor]:
    high = torch.maximum(a_lse, b_lse)
    wa, wb = torch.exp(a_lse - high), torch.exp(b_lse - high)
    total = wa + wb
    merged = (a * wa.unsqueeze(-1) + b * wb.unsqueeze(-1)) / total.unsqueeze(-1)
    return merged, high + torch.log(total)


def write_cache(
    key: Tensor, value: Tensor, key_cache: Tensor, value_cache: Tensor, slots: Tensor
) -> tuple[Tensor, Tensor]:
    key_cache[slots] = key
    value_cache[slots] = value
    return key_cache, value_cache


def slot_mapping(positions: Tensor, table: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    block = table[rows, positions // 64]
    slots = block * 64 + positions % 64
    lengths = torch.zeros(table.shape[0], dtype=torch.int64, device=rows.device)
    return slots, lengths.scatter_reduce(0, rows, positions + 1, "amax")


def conv_update(x: Tensor, state: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    state = torch.cat((state[..., 1:], x.unsqueeze(-1)), dim=-1)
    return F.silu((state * weight).sum(dim=-1)), state


def delta_step(
    query: Tensor, key: Tensor, value: Tensor, state: Tensor, decay: Tensor, beta: Tensor
) -> tuple[Tensor, Tensor]:
    state = state * decay.exp()[..., None, None]
    memory = (state * key.unsqueeze(-1)).sum(dim=-2)
    delta = (value - memory) * beta.unsqueeze(-1)
    state = state + key.unsqueeze(-1) * delta.unsqueeze(-2)
    return (state * query.unsqueeze(-1)).sum(dim=-2), state


def hashed_ngrams(ids: Tensor, factors: Tensor) -> Tensor:
    before = torch.cat((torch.zeros_like(ids[:, :1]), ids[:, :-1]), dim=-1)
    earlier = torch.cat((torch.zeros_like(ids[:, :2]), ids[:, :-2]), dim=-1)
    mixed = (ids * factors[0]) ^ (before * factors[1]) ^ (earlier * factors[2])
    return mixed % 100_003


def token_logprob(logits: Tensor, ids: Tensor) -> Tensor:
    return torch.log_softmax(logits.float(), dim=-1).gather(1, ids.unsqueeze(-1)).squeeze(-1)


def bitmask(logits: Tensor, words: Tensor) -> Tensor:
    bits = torch.arange(32, device=words.device, dtype=torch.int32)
    allowed = ((words.unsqueeze(-1) >> bits) & 1).view(logits.shape[0], -1)
    return logits.masked_fill(allowed[:, : logits.shape[-1]] == 0, -INF)


def int4_linear(x: Tensor, packed: Tensor, scale: Tensor) -> Tensor:
    low, high = packed & 15, packed >> 4
    weight = torch.stack((low, high), dim=-1).view(packed.shape[0], -1).to(x.dtype) - 8
    return x @ (weight * scale)


def instance_norm_divide(x: Tensor) -> Tensor:
    mean = x.mean(dim=(2, 3), keepdim=True)
    variance = x.var(dim=(2, 3), keepdim=True, unbiased=False)
    return (x - mean) / torch.sqrt(variance + 1e-5) / 2.0
