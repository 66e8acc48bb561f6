import torch
import triton
import triton.language as tl


@triton.jit
def rms_norm_forward_native_kernel(
    x, residual, weight, residual_2, x_2, x_stride_0, residual_stride_0
):
    program = tl.program_id(0)
    row = program.to(tl.int64)
    i = tl.arange(0, 4096)
    residual_value = tl.load(residual + row * residual_stride_0 + i).to(tl.float32)
    value = tl.load(x + row * x_stride_0 + i).to(tl.float32) + residual_value
    # Line 33: residual = x.to(orig_dtype)
    residual_3 = value.to(tl.bfloat16).to(tl.float32)
    # Line 53: variance = x_var.pow(2).mean(dim=-1, keepdim=True)
    total = tl.sum(value * value, axis=0)
    variance = total / 4096.0
    value_2 = (value * tl.rsqrt((variance + 1e-06))) * tl.load(weight + i).to(tl.float32)
    # Line 59: x = (x * self.weight).to(orig_dtype)
    x_3 = value_2.to(tl.bfloat16).to(tl.float32)
    # Line 33: residual = x.to(orig_dtype)
    tl.store(residual_2 + row * 4096 + i, residual_3)
    tl.store(x_2 + row * 4096 + i, x_3)


def rms_norm_forward_native(
    x,
    residual,
    post_residual_addition,
    quant_linear,
    cast_x_before_out_mul,
    fp32_residual,
    override_orig_dtype,
    weight,
    variance_epsilon,
    hidden_size,
    variance_size_override,
):
    x_size_0 = x.shape[0]
    assert x.shape == (x_size_0, 4096)
    if x.stride(-1) != 1:
        x = x.contiguous()
    assert residual.shape == (x_size_0, 4096)
    if residual.stride(-1) != 1:
        residual = residual.contiguous()
    assert weight.shape == (4096,)
    if weight.stride(-1) != 1:
        weight = weight.contiguous()
    residual_2 = torch.empty((x_size_0, 4096), dtype=torch.bfloat16, device=x.device)
    x_2 = torch.empty((x_size_0, 4096), dtype=torch.bfloat16, device=x.device)
    rms_norm_forward_native_kernel[(x_size_0,)](
        x,
        residual,
        weight,
        residual_2,
        x_2,
        x.stride(0),
        residual.stride(0),
        num_warps=4,
    )
    return x_2, residual_2
