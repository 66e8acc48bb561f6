"""What single Triton operators may do, and what they must leave alone."""

from __future__ import annotations

from evolver.proposers.mutate.triton_grid import grid_options
from evolver.proposers.mutate.triton_launch import (
    registers_options,
    stages_options,
    tile_options,
    warps_options,
)
from evolver.proposers.mutate.triton_loops import loop_hint_options
from evolver.proposers.mutate.triton_math import libdevice_options, nan_options
from evolver.proposers.mutate.triton_memory import cache_hint_options
from tests.evolver.proposers.mutate.parents import (
    RMS_NORM_TRITON,
    ROW_MAX_TRITON,
    SILU_TRITON,
    UNMASKED_TRITON,
)


def descriptions(options) -> list[str]:
    return [o.description for o in options]


def build(options, description: str) -> str:
    return next(o for o in options if o.description == description).build()


def test_a_tile_takes_the_grid_with_it() -> None:
    child = build(tile_options(SILU_TRITON), "XBLOCK 128 -> 256 in silu_kernel")
    assert "silu_kernel[(triton.cdiv(n, 256),)]" in child
    assert "XBLOCK=256" in child


def test_a_loops_tile_leaves_the_grid_alone() -> None:
    child = build(tile_options(RMS_NORM_TRITON), "R0_BLOCK 64 -> 128 in rms_norm_kernel")
    assert "[(triton.cdiv(rows, 2),)]" in child
    assert "XBLOCK=2, R0_BLOCK=128" in child


def test_a_tile_with_unmasked_accesses_only_shrinks() -> None:
    # `inner < 128` bounds a remainder, not the index: it is no mask for the tile's overhang.
    assert descriptions(tile_options(UNMASKED_TRITON)) == ["XBLOCK 256 -> 128 in double_kernel"]


def test_one_unmasked_store_is_enough_to_forbid_growth() -> None:
    source = SILU_TRITON.replace("tl.exp(-x)), mask)", "tl.exp(-x)))")
    assert descriptions(tile_options(source)) == ["XBLOCK 128 -> 64 in silu_kernel"]


def test_a_tile_that_holds_a_whole_row_does_not_move() -> None:
    assert tile_options(ROW_MAX_TRITON) == []


def test_a_program_id_used_otherwise_pins_the_tile() -> None:
    source = SILU_TRITON.replace(
        "    mask = index < n\n",
        "    mask = index < n\n    tl.store(out_ptr + tl.program_id(0), 0.0)\n",
    )
    assert tile_options(source) == []


def test_a_grid_that_does_not_divide_by_the_tile_pins_it() -> None:
    assert tile_options(SILU_TRITON.replace("triton.cdiv(n, 128)", "n // 128")) == []


def test_a_block_named_by_a_variable_moves_with_the_variable() -> None:
    source = SILU_TRITON.replace("    n = x.numel()\n", "    n = x.numel()\n    block = 128\n")
    source = source.replace("cdiv(n, 128)", "cdiv(n, block)").replace("XBLOCK=128", "XBLOCK=block")
    child = build(tile_options(source), "XBLOCK 128 -> 64 in silu_kernel")
    assert "block = 64" in child
    assert "cdiv(n, block)" in child


def test_tiles_of_a_dot_stay_at_sixteen_or_more() -> None:
    source = SILU_TRITON.replace("128", "16").replace(
        "    tl.store(", "    tl.dot(x[:, None], x[None, :])\n    tl.store("
    )
    assert descriptions(tile_options(source)) == ["XBLOCK 16 -> 32 in silu_kernel"]


def test_warps_double_or_halve_within_what_a_block_can_have() -> None:
    assert descriptions(warps_options(SILU_TRITON.replace("num_warps=4", "num_warps=32"))) == [
        "num_warps 32 -> 16 in silu_kernel"
    ]


def test_warps_that_are_not_stated_start_from_the_default() -> None:
    source = SILU_TRITON.replace(", num_warps=4", "")
    child = build(warps_options(source), "num_warps 4 -> 8 in silu_kernel")
    assert "num_stages=1, num_warps=8)" in child


def test_stages_are_left_alone_without_a_loop() -> None:
    assert stages_options(SILU_TRITON) == []
    assert descriptions(stages_options(RMS_NORM_TRITON)) == ["num_stages 1 -> 2 in rms_norm_kernel"]


def test_registers_are_bounded_once_and_set_free_again() -> None:
    child = build(registers_options(SILU_TRITON), "at most 64 registers in silu_kernel")
    assert "num_stages=1, maxnreg=64)" in child
    assert build(registers_options(child), "registers as needed in silu_kernel") == SILU_TRITON


def test_a_cache_hint_replaces_the_one_before() -> None:
    first = "cache_modifier .cg on a load from x_ptr in rms_norm_kernel"
    child = build(cache_hint_options(RMS_NORM_TRITON), first)
    assert child.count('cache_modifier=".cg"') == 1
    assert "evict_last" not in child


def test_a_loop_hint_turns_range_into_tl_range() -> None:
    hint = "num_stages=2 on the loop over r0_offset in rms_norm_kernel"
    child = build(loop_hint_options(RMS_NORM_TRITON), hint)
    assert "in tl.range(0, columns, R0_BLOCK, num_stages=2):" in child


def test_flattening_is_offered_for_nests_alone() -> None:
    assert not any("flatten" in d for d in descriptions(loop_hint_options(RMS_NORM_TRITON)))


def test_a_persistent_grid_is_told_its_tiles_and_not_made_twice() -> None:
    child = build(grid_options(SILU_TRITON), "persistent grid of 264 programs in silu_kernel")
    assert "silu_kernel[(min(triton.cdiv(n, 128), 264),)]" in child
    assert "num_tiles=triton.cdiv(n, 128))" in child
    assert "for tile in tl.range(tl.program_id(0), num_tiles, tl.num_programs(0)):" in child
    again = descriptions(grid_options(child))
    assert again == [
        f"persistent grid 264 -> {n} programs in silu_kernel" for n in (132, 528, 1056)
    ]


def test_rows_per_program_walk_a_chunk_and_are_not_made_twice() -> None:
    child = build(grid_options(ROW_MAX_TRITON), "4 tiles per program in row_max_kernel")
    assert "row_max_kernel[((rows + 3) // 4,)]" in child
    assert "        row = tile\n" in child
    assert grid_options(child) == []


def test_a_persistent_kernels_tile_moves_everywhere() -> None:
    child = build(grid_options(SILU_TRITON), "persistent grid of 132 programs in silu_kernel")
    smaller = build(tile_options(child), "XBLOCK 128 -> 64 in silu_kernel")
    assert smaller.count("triton.cdiv(n, 64)") == 2
    assert "128" not in smaller


def test_a_kernel_that_returns_early_is_not_made_persistent() -> None:
    early = "    mask = index < n\n    if n == 0:\n        return\n"
    assert grid_options(SILU_TRITON.replace("    mask = index < n\n", early)) == []


def test_libdevice_becomes_tritons_own() -> None:
    child = build(libdevice_options(RMS_NORM_TRITON), "libdevice.rsqrt -> tl.rsqrt")
    assert "scale = tl.rsqrt(mean + 1e-06)" in child


def test_a_nan_carrying_reduction_becomes_tl_max() -> None:
    change = "nan_maximum -> tl.max (NaN no longer carried)"
    child = build(nan_options(ROW_MAX_TRITON), change)
    assert "tl.store(out_ptr + row, tl.max(x, 0))" in child


def test_a_nan_carrying_wrapper_of_tl_max_becomes_tl_max() -> None:
    helper = """
@triton.jit
def nan_max(values, axis: tl.constexpr):
    largest = tl.max(values, axis)
    has_nan = tl.max((values != values).to(tl.int32), axis) != 0
    return tl.where(has_nan, float("nan"), largest)


@triton.jit
def row_max_kernel("""
    source = ROW_MAX_TRITON.replace("\n@triton.jit\ndef row_max_kernel(", helper)
    source = source.replace("tl.reduce(x, 0, nan_maximum)", "nan_max(x, 0)")
    child = build(nan_options(source), "nan_max -> tl.max (NaN no longer carried)")
    assert "tl.store(out_ptr + row, tl.max(x, 0))" in child


def test_an_elementwise_maximum_lets_go_of_nan() -> None:
    source = SILU_TRITON.replace(
        "tl.exp(-x)", "tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL)"
    )
    child = build(nan_options(source), "tl.maximum without propagate_nan")
    assert "tl.maximum(x, 0.0)" in child
