import torch
import triton
import triton.language as tl


@triton.jit
def default_apply_rotary_emb_impl_forward_kernel(
    query_rows,
    cos,
    sin,
    key_rows,
    query_stride_0,
    query_stride_1,
    cos_stride_0,
    sin_stride_0,
    key_stride_0,
    key_stride_1,
    query_size_0,
):
    program = tl.program_id(0)
    programs_0 = query_size_0 * 32
    if program < programs_0:
        flat = program.to(tl.int64)
        row_0 = flat // 32
        row_1 = flat % 32
        i = tl.arange(0, 128)
        query_rows_value = tl.load(
            query_rows + row_0 * query_stride_0 + row_1 * query_stride_1 + i
        ).to(tl.float32)
        # Line 46: cos = cos.unsqueeze(-2)
        cos_2 = tl.load(cos + row_0 * cos_stride_0 + i).to(tl.float32)
        value = (query_rows_value * cos_2).to(tl.bfloat16).to(tl.float32)
        inside = i > 63
        query_rows_value_2 = tl.load(
            query_rows + row_0 * query_stride_0 + row_1 * query_stride_1 + i - 64,
            mask=inside,
            other=0.0,
        ).to(tl.float32)
        inside_2 = i < 64
        query_rows_value_3 = tl.load(
            query_rows + row_0 * query_stride_0 + row_1 * query_stride_1 + i + 64,
            mask=(~inside) & inside_2,
            other=0.0,
        ).to(tl.float32)
        update = tl.where(inside_2, (-query_rows_value_3).to(tl.bfloat16).to(tl.float32), 0.0)
        # Line 48: sin = sin.unsqueeze(-2)
        sin_2 = tl.load(sin + row_0 * sin_stride_0 + i).to(tl.float32)
        # Line 69: q_sin = rotate_fn(query) * sin
        q_sin = (
            (tl.where(inside, query_rows_value_2, update) * sin_2).to(tl.bfloat16).to(tl.float32)
        )
        tl.debug_barrier()  # what is overwritten now was read above
        # Line 71: q_embed.add_(q_sin)
        tl.store(
            query_rows + row_0 * query_stride_0 + row_1 * query_stride_1 + i,
            (value + q_sin).to(tl.bfloat16),
        )
    else:
        program -= programs_0
        flat_2 = program.to(tl.int64)
        row_0_2 = flat_2 // 8
        row_1_2 = flat_2 % 8
        j = tl.arange(0, 128)
        key_rows_value = tl.load(key_rows + row_0_2 * key_stride_0 + row_1_2 * key_stride_1 + j).to(
            tl.float32
        )
        # Line 46: cos = cos.unsqueeze(-2)
        cos_3 = tl.load(cos + row_0_2 * cos_stride_0 + j).to(tl.float32)
        inside_3 = j > 63
        key_rows_value_2 = tl.load(
            key_rows + row_0_2 * key_stride_0 + row_1_2 * key_stride_1 + j - 64,
            mask=inside_3,
            other=0.0,
        ).to(tl.float32)
        inside_4 = j < 64
        key_rows_value_3 = tl.load(
            key_rows + row_0_2 * key_stride_0 + row_1_2 * key_stride_1 + j + 64,
            mask=(~inside_3) & inside_4,
            other=0.0,
        ).to(tl.float32)
        update_2 = tl.where(inside_4, (-key_rows_value_3).to(tl.bfloat16).to(tl.float32), 0.0)
        # Line 48: sin = sin.unsqueeze(-2)
        sin_3 = tl.load(sin + row_0_2 * sin_stride_0 + j).to(tl.float32)
        # Line 72: k_sin = rotate_fn(key) * sin
        k_sin = (
            (tl.where(inside_3, key_rows_value_2, update_2) * sin_3).to(tl.bfloat16).to(tl.float32)
        )
        value_2 = (
            ((key_rows_value * cos_3).to(tl.bfloat16).to(tl.float32) + k_sin)
            .to(tl.bfloat16)
            .to(tl.float32)
        )
        tl.debug_barrier()  # what is overwritten now was read above
        # Line 74: k_embed.add_(k_sin)
        tl.store(key_rows + row_0_2 * key_stride_0 + row_1_2 * key_stride_1 + j, value_2)


def default_apply_rotary_emb_impl_forward(query, key, cos, sin, inplace, complex_mode):
    query_size_0 = query.shape[0]
    assert query.shape == (query_size_0, 32, 128)
    query_rows = query
    if query_rows.stride(-1) != 1:
        query_rows = query_rows.contiguous()
    assert key.shape == (query_size_0, 8, 128)
    key_rows = key
    if key_rows.stride(-1) != 1:
        key_rows = key_rows.contiguous()
    assert cos.shape == (query_size_0, 128)
    if cos.stride(-1) != 1:
        cos = cos.contiguous()
    assert sin.shape == (query_size_0, 128)
    if sin.stride(-1) != 1:
        sin = sin.contiguous()
    default_apply_rotary_emb_impl_forward_kernel[(query_size_0 * 32 + query_size_0 * 8,)](
        query_rows,
        cos,
        sin,
        key_rows,
        query_rows.stride(0),
        query_rows.stride(1),
        cos.stride(0),
        sin.stride(0),
        key_rows.stride(0),
        key_rows.stride(1),
        query_size_0,
        num_warps=1,
    )
    if query_rows is not query:
        query.copy_(query_rows)
    if key_rows is not key:
        key.copy_(key_rows)
    return query, key
