"""The operators that restructure kernels: what they give, and where they must not be offered."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluator.candidate import BackendName
from evolver.proposers.mutate import OPERATORS
from evolver.proposers.mutate.operators import in_random_order
from evolver.proposers.mutate.triton_accumulate import accumulate_options
from evolver.proposers.mutate.triton_arithmetic import (
    division_options,
    exponential_options,
    index_options,
)
from evolver.proposers.mutate.triton_fission import fission_options
from evolver.proposers.mutate.triton_forward import reuse_options
from evolver.proposers.mutate.triton_fuse import fuse_options
from evolver.proposers.mutate.triton_one_pass import one_pass_options
from evolver.proposers.mutate.triton_split import split_options
from tests.evaluator.source_policy.checking import check, refusals
from tests.evolver.proposers.mutate.parents import (
    EMITTED_TRITON,
    GATED_TRITON,
    RMS_NORM_TRITON,
    ROW_MAX_TRITON,
    SILU_TRITON,
)

RMS_NORM = EMITTED_TRITON["rms_norm"]
PER_OPERATOR = EMITTED_TRITON["rms_norm, a kernel per operator"]
BY_SHAPE = EMITTED_TRITON["rms_norm, by shape"]
STRUCTURAL = (
    "one_pass",
    "fuse",
    "split",
    "fission",
    "reuse",
    "index",
    "division",
    "exponential",
    "accumulate",
)


def only(options) -> str:
    assert len(options) == 1, [o.description for o in options]
    return options[0].build()


def descriptions(options) -> list[str]:
    return [o.description for o in options]


@settings(max_examples=3)
@given(st.sampled_from(sorted(EMITTED_TRITON)), st.integers(0, 2**32))
def test_chains_of_rewrites_pass_the_source_policy_and_stay_bounded(name, seed) -> None:
    parent, rng = EMITTED_TRITON[name], random.Random(seed)
    child = parent
    operators = [o for o in OPERATORS[BackendName.TRITON] if o.name in STRUCTURAL]
    for _ in range(4):
        edits = (o.apply(child, rng) for o in in_random_order(operators, rng))
        edit = next((e for e in edits if e is not None), None)
        child = child if edit is None else edit.source
    found = check(child, entry=name.split(",")[0], backend=BackendName.TRITON)
    assert refusals(found) == []  # the router's own top-k by torch is a warning
    assert len(child) < 3 * len(parent)


def test_a_looped_reduction_holds_its_rows_and_loads_them_once() -> None:
    child = only(one_pass_options(RMS_NORM))
    assert "for col_start" not in child
    assert "R0_BLOCK=triton.next_power_of_2(s1)" in child
    assert child.count("tl.load(") == 3  # x, residual, weight: the sum is in registers
    assert one_pass_options(child) == []


def test_what_was_stored_is_taken_back_in_the_type_of_its_tensor() -> None:
    child = only(one_pass_options(RMS_NORM))
    kept = "total.to(out1_ptr.dtype.element_ty)"
    assert f"out1 = tl.where(col_mask & row_mask, {kept}, 0.0)" in child


def test_a_row_without_masks_is_not_held_at_once() -> None:
    assert (
        one_pass_options(RMS_NORM_TRITON.replace("mask = column < columns", "mask = row_mask"))
        == []
    )


def test_a_load_after_a_store_that_may_overlap_it_stays() -> None:
    in_place = RMS_NORM_TRITON.replace("out = torch.empty_like(x)", "out = x.view(x.shape)")
    doubled = in_place.replace(
        "        weight = tl.load",
        "        tl.store(out_ptr + (column + columns * row), x, row_mask & mask)\n"
        "        x = tl.load(x_ptr + (column + columns * row), row_mask & mask, other=0.0)\n"
        "        weight = tl.load",
    )
    assert reuse_options(doubled) == []
    apart = doubled.replace("out = x.view(x.shape)", "out = torch.empty_like(x)")
    assert only(reuse_options(apart)).count("tl.load(x_ptr") == doubled.count("tl.load(x_ptr") - 1


def test_a_load_under_another_mask_stays() -> None:
    twice = SILU_TRITON.replace(
        "    tl.store(", "    y = tl.load(x_ptr + index, index < n - 1)\n    tl.store("
    )
    assert reuse_options(twice) == []


def test_a_load_is_not_shared_over_a_change_of_its_index() -> None:
    twice = SILU_TRITON.replace(
        "    tl.store(",
        "    index = index + 1\n    y = tl.load(x_ptr + index, mask)\n    tl.store(",
    )
    assert reuse_options(twice) == []


def test_launches_over_one_index_space_are_fused_and_their_buffer_is_not_written() -> None:
    child = only(fuse_options(GATED_TRITON))
    assert child.count("@triton.jit") == 1
    assert "tl.store(middle_ptr" not in child
    assert "x_2 = stored.to(middle_ptr.dtype.element_ty)" in child
    assert "num_warps=8" in child


def test_a_buffer_that_is_returned_is_still_written() -> None:
    source = GATED_TRITON.replace("return out", "return out, middle")
    assert "tl.store(middle_ptr + index, stored, mask)" in only(fuse_options(source))


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("x = tl.load(middle_ptr + index, mask)", "x = tl.load(middle_ptr + n - 1 - index, mask)",
         "reads what another program writes"),
        ("x = tl.load(middle_ptr + index, mask)", "x = tl.load(middle_ptr + index, index < 5)",
         "reads under another mask"),
        ("    out = torch.empty_like(x)\n", "    out = x\n", "writes what may overlap"),
        ("    out = torch.empty_like(x)\n", "    out = middle\n", "writes what it reads"),
        ("    out = torch.empty_like(x)\n", "    out = torch.empty_like(x)\n    n = n // 2\n",
         "changes a size in between"),
        ("    out = torch.empty_like(x)\n", "    out = torch.empty_like(x)\n    middle.neg_()\n",
         "works on the buffer in between"),
        ("[(triton.cdiv(n, 128),)](middle", "[(triton.cdiv(n, 64),)](middle", "has another grid"),
    ],
)  # fmt: skip
def test_launches_that_depend_on_each_other_otherwise_stay_apart(old, new, why) -> None:
    assert old in GATED_TRITON
    assert fuse_options(GATED_TRITON.replace(old, new)) == [], why


def test_independent_launches_share_a_grid_and_pass_over_one_between() -> None:
    found = fuse_options(EMITTED_TRITON["rotary"])
    assert "add_cat_mul_neg_kernel and add_cat_mul_neg_kernel_2 in one launch, side by side" in (
        descriptions(found)
    )
    child = found[0].build()
    assert "[(triton.cdiv(8192, 256) + triton.cdiv(2048, 256),)]" in child
    assert "if tl.program_id(0) < first_programs:" in child
    assert "(tl.program_id(0) - first_programs) * XBLOCK_2" in child


def test_a_write_is_not_moved_over_a_launch_that_reads_it() -> None:
    names = descriptions(fuse_options(EMITTED_TRITON["rotary"]))
    assert not any("kernel and add_cat_mul_neg_kernel_1 in" in name for name in names)


def test_a_kernel_with_two_outputs_is_split_between_them_and_fused_again() -> None:
    option = next(o for o in fission_options(BY_SHAPE) if "one for out1_ptr" in o.description)
    child = option.build()
    part = child.split("def add_mean_mul_pow_rsqrt_kernel_out1(")[1].split("@triton.jit")[0]
    assert "rsqrt" not in part
    assert part.count("tl.load(") == 2
    assert any("one after the other" in d for d in descriptions(fuse_options(child)))


def test_a_kernel_that_reads_what_it_writes_is_not_split() -> None:
    assert fission_options(RMS_NORM) == []


def test_the_sum_of_a_row_is_shared_out_and_added_up_in_order() -> None:
    child = split_options(PER_OPERATOR)[1].build()
    assert "tl.range(tl.program_id(1) * R0_BLOCK, col_numel, 4 * R0_BLOCK)" in child
    assert "mean_pow_kernel[(triton.cdiv(s0, 2), 4)]" in child
    assert "for part in tl.static_range(SPLITS):" in child
    assert split_options(child) == []


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("acc + out1 * out1", "acc * 0.5 + out1 * out1", "is no sum"),
        ("tl.store(buffer_ptr + row, row_sum,", "tl.store(buffer_ptr + row, row_sum * 2,",
         "works on the sum"),
        ("(s0, 1), (1, s0)", "(s0, 1), (3, s0)", "has holes between its elements"),
        ("(1, s0), dtype=torch.float32", "(1, s0), dtype=torch.float64", "is wider"),
    ],
)  # fmt: skip
def test_other_reductions_are_not_shared_out(old, new, why) -> None:
    assert old in PER_OPERATOR
    assert split_options(PER_OPERATOR.replace(old, new)) == [], why


def test_a_division_becomes_a_product_and_back() -> None:
    child = only(division_options(SILU_TRITON))
    assert "x * (1.0 / (1.0 + tl.exp(-x)))" in child
    assert only(division_options(child)) == SILU_TRITON


def test_exp_becomes_exp2_of_the_scaled_argument() -> None:
    child = only(exponential_options(SILU_TRITON))
    assert "tl.exp2((-x) * 1.4426950408889634)" in child
    assert exponential_options(child) == []


def test_strides_are_plain_where_the_size_comes_from_a_shape() -> None:
    child = only(index_options(RMS_NORM))
    assert "x_ptr + (col + row * ks0)" in child
    unknown = RMS_NORM.replace("s1 = x.shape[1]", "s1 = x.shape[1] - 1")
    assert index_options(unknown) == []


def test_quotients_lose_their_sign_only_for_indices_that_have_none() -> None:
    wanted = "quotients of indices without a sign in add_kernel"
    assert wanted in descriptions(index_options(PER_OPERATOR))
    shifted = PER_OPERATOR.replace(
        "div_floor_integer(index, ks0)", "div_floor_integer(index - 1, ks0)"
    )
    assert wanted not in descriptions(index_options(shifted))


def test_a_kernel_without_a_loop_over_its_row_offers_no_other_pass() -> None:
    assert one_pass_options(ROW_MAX_TRITON) == split_options(ROW_MAX_TRITON) == []


def test_a_sum_grows_by_whole_tiles_and_keeps_one_value_a_row() -> None:
    child = only(accumulate_options(RMS_NORM))
    assert "acc = tl.full([XBLOCK, 1], 0, tl.float32)" in child
    assert "[XBLOCK, R0_BLOCK]), 0), 1)[:, None]" in child
    assert "row_sum = acc\n" in child
    assert accumulate_options(child) == []


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("total_1 = acc + total * total", "total_1 = acc + total * acc", "uses the sum itself"),
        ("[XBLOCK, R0_BLOCK], 0, tl.float32", "[XBLOCK, R0_BLOCK], 1, tl.float32", "starts at 1"),
        ("row_sum = tl.sum(acc, 1)[:, None]", "row_sum = tl.max(acc, 1)[:, None]", "is no sum"),
        ("acc = tl.where(col_mask & row_mask, total_1, acc)",
         "acc = tl.where(col_mask & row_mask, acc, total_1)", "keeps the other branch"),
    ],
)  # fmt: skip
def test_other_accumulators_keep_a_value_for_each_lane(old, new, why) -> None:
    assert old in RMS_NORM
    assert accumulate_options(RMS_NORM.replace(old, new)) == [], why
