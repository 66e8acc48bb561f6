"""Two steps of vLLM's sampler, in plain torch, from their behaviour."""

import torch


def apply_penalties(logits, prompt_mask, output_counts, presence, frequency, repetition):
    """Scale and shift the logits of tokens that were seen, in place."""
    output_mask = output_counts > 0
    scale = torch.where(prompt_mask | output_mask, repetition.unsqueeze(1), 1.0)
    logits *= torch.where(logits > 0, 1.0 / scale, scale)
    logits -= frequency.unsqueeze(1) * output_counts
    logits -= presence.unsqueeze(1) * output_mask
    return logits


def apply_top_k_top_p(logits, k, p):
    """Mask all but the k most likely tokens, then all beyond probability p."""
    logits_sort, logits_idx = logits.sort(dim=-1, descending=False)
    top_k_mask = logits_sort.size(1) - k.to(torch.long)
    top_k_mask = logits_sort.gather(1, top_k_mask.unsqueeze(dim=1))
    logits_sort = logits_sort.masked_fill(logits_sort < top_k_mask, -float("inf"))
    probs_sort = logits_sort.softmax(dim=-1)
    probs_sum = torch.cumsum(probs_sort, dim=-1)
    top_p_mask = probs_sum <= 1 - p.unsqueeze(dim=1)
    top_p_mask[:, -1] = False
    logits_sort = logits_sort.masked_fill(top_p_mask, -float("inf"))
    return logits_sort.scatter(dim=-1, index=logits_idx, src=logits_sort)


def greedy_rejection(draft_tokens, target_logits, bonus_tokens):
    """Keep drafted tokens up to the first that the target would not have chosen."""
    best = target_logits.argmax(dim=-1)
    accepted = (best == draft_tokens).to(torch.int64).cumprod(dim=-1)
    length = accepted.sum(dim=-1)
    chosen = torch.cat((best, bonus_tokens), dim=-1)
    places = torch.arange(chosen.shape[1], device=chosen.device)
    return torch.where(places[None, :] <= length[:, None], chosen, -1), length


def biased_grouped_topk(logits, bias, top_k, n_group, topk_group):
    """LightLLM's grouped routing: masked groups score zero."""
    scores = logits.sigmoid()
    choice = scores + bias.unsqueeze(0)
    groups = choice.view(scores.shape[0], n_group, -1).topk(2, dim=-1)[0].sum(dim=-1)
    kept = torch.topk(groups, k=topk_group, dim=-1, sorted=False)[1]
    mask = torch.zeros_like(groups).scatter_(1, kept, 1)
    mask = mask.unsqueeze(-1).expand(-1, -1, scores.shape[-1] // n_group)
    masked = choice.masked_fill(~mask.reshape(scores.shape[0], -1).bool(), 0.0)
    ids = torch.topk(masked, k=top_k, dim=-1, sorted=False)[1]
    weights = scores.gather(1, ids)
    return weights / weights.sum(dim=-1, keepdim=True), ids
