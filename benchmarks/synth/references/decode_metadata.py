"""What a paged attention backend prepares before each decode step, in plain torch.

Written from the behaviour of SGLang 0.5.9's ``normal_decode_set_metadata`` without its sliding
window: lengths, their running sum, and the page of every token, all in place.
"""

import torch


def normal_decode_set_metadata(
    cache_seqlens_int32,
    cu_seqlens_k,
    page_table,
    req_to_token,
    req_pool_indices,
    strided_indices,
    max_seq_pages,
    seq_lens,
    seq_len_delta,
    page_size,
):
    """Write lengths, offsets and pages of the current batch."""
    cache_seqlens_int32.copy_(seq_lens + seq_len_delta)
    cu_seqlens_k[1:].copy_(torch.cumsum(cache_seqlens_int32, dim=0, dtype=torch.int32))
    slots = req_to_token[req_pool_indices[:, None], strided_indices[:max_seq_pages][None, :]]
    page_table[:, :max_seq_pages].copy_(slots // page_size)
    return cache_seqlens_int32, cu_seqlens_k, page_table
