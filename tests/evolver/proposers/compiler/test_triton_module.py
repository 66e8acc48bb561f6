"""From Inductor's text to a standalone module, on a saved sample."""

from __future__ import annotations

import ast
from types import SimpleNamespace
from typing import Any

import pytest

from evolver.proposers.compiler.emitter.inductor_module import KernelMeta, LaunchConfig
from evolver.proposers.compiler.emitter.triton_module import GroupSource, triton_module
from evolver.proposers.compiler.emitter.workloads import (
    EmissionFailed,
    Input,
    Request,
    TensorInput,
    contiguous_strides,
    group_workloads,
)
from tests.evolver.proposers.compiler.inductor_text import SQUARE_SUM

META = KernelMeta(
    grid_type="Grid1D",
    signature={"in_ptr0": "*bf16", "in_ptr1": "*fp32", "out_ptr0": "*fp32", "xnumel": "i32"},
    configs=(
        LaunchConfig({"XBLOCK": 1, "R0_BLOCK": 2048}, num_warps=16, num_stages=1),
        LaunchConfig({"XBLOCK": 8, "R0_BLOCK": 256}, num_warps=8, num_stages=1),
    ),
)


def tensor(*shape: int, dtype: str) -> TensorInput:
    return TensorInput(shape, dtype, contiguous_strides(shape))


def make_request() -> Request:
    workloads = tuple(
        Input(f"n{n}", {"x": tensor(n, 2048, dtype="bfloat16"), "bias": tensor(dtype="float32")})
        for n in (1, 32)
    )
    return Request("", "f", None, "square_sum", ("x", "bias"), (), False, workloads, "triton")


def make_module(source: str = SQUARE_SUM, *, meta: KernelMeta = META, **changes: Any) -> str:
    request = make_request()
    [group] = group_workloads(request.workloads)
    returned = SimpleNamespace(argument=None, graph_output=0, constant=None)
    traced: Any = SimpleNamespace(
        group=group,
        input_names=("x", "bias"),
        symbols={"s0": "s95"},
        returns=(returned,),
        returns_tuple=False,
    )
    groups = [GroupSource(traced, source, ["s0 % 2 == 0"])]
    return triton_module(request, groups, title="t.", meta_of=lambda _kernel: meta, **changes)


def test_nothing_of_inductor_is_left() -> None:
    code = make_module().split('"""', 2)[2]
    for word in ("inductor", "async_compile", "triton_helpers", "assert_size", "stream", "tmp"):
        assert word not in code


def test_it_imports_torch_and_triton_alone() -> None:
    imports = [ast.unparse(n) for n in ast.parse(make_module()).body if isinstance(n, ast.Import)]
    assert imports == ["import torch", "import triton", "import triton.language as tl"]


def test_kernel_and_arguments_are_named_after_what_they_are() -> None:
    assert "def add_mul_sum_kernel(\n    x_ptr, bias_ptr, out_ptr, row_numel," in make_module()


def test_the_launch_is_plain_and_its_grid_follows_the_block() -> None:
    source = make_module(config_index=1)
    assert "add_mul_sum_kernel[(triton.cdiv(s0, 8),)](" in source
    assert "x, bias, out, s0, XBLOCK=8, R0_BLOCK=256, num_warps=8, num_stages=1" in source


def test_a_constant_extent_is_held_by_the_kernel_and_not_passed() -> None:
    source = make_module()
    assert "col_numel = 2048" in source
    assert "x, bias, out, s0, XBLOCK" in source


def test_the_result_is_allocated_in_its_own_shape_on_the_inputs_device() -> None:
    assert "out = torch.empty((s0,), dtype=torch.float32, device=x.device)" in make_module()


def test_a_request_outside_the_groups_is_refused_in_words() -> None:
    source = make_module()
    assert "and s0 % 2 == 0" in source
    assert "raise NotImplementedError(" in source


def test_a_load_keeps_its_mask() -> None:
    assert "col_mask & row_mask" in make_module()


def test_an_unknown_grid_is_refused_rather_than_guessed() -> None:
    odd = KernelMeta("CooperativeReductionGrid", META.signature, META.configs)
    with pytest.raises(EmissionFailed, match="CooperativeReductionGrid"):
        make_module(meta=odd)


def test_a_module_without_a_kernel_of_its_own_is_refused() -> None:
    start = SQUARE_SUM.index("            triton_red_fused_add_mul_sum_0_xnumel = s95")
    end = SQUARE_SUM.index("            del arg0_1")
    with pytest.raises(EmissionFailed, match="no kernel of its own"):
        make_module(SQUARE_SUM[:start] + SQUARE_SUM[end:])
