"""How workloads fall into groups that one trace can serve."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from evolver.proposers.compiler.emitter.workloads import (
    Input,
    TensorInput,
    contiguous_strides,
    group_workloads,
    static_groups,
)


def make_input(name: str = "w", **values: Any) -> Input:
    return Input(name, values)


def tensor(*shape: int, dtype: str = "float32", **changes: Any) -> TensorInput:
    return TensorInput(
        **{"shape": shape, "dtype": dtype, "strides": contiguous_strides(shape), **changes}
    )


def test_an_extent_that_differs_becomes_a_symbol_and_others_stay_numbers() -> None:
    [group] = group_workloads([make_input(x=tensor(n, 64)) for n in (1, 16)])
    [x] = group.tensors
    assert [d.symbol for d in x.dimensions] == ["s0", None]
    assert group.symbols == {"s0": (1, 16)}


def test_the_example_of_a_symbol_avoids_the_sizes_that_torch_specialises() -> None:
    [group] = group_workloads([make_input(x=tensor(n, 64)) for n in (16, 1)])
    assert group.tensors[0].dimensions[0].size == 16


def test_extents_that_agree_in_every_workload_share_a_symbol() -> None:
    [group] = group_workloads([make_input(x=tensor(n, 64), y=tensor(n, 8)) for n in (2, 5)])
    assert [t.dimensions[0].symbol for t in group.tensors] == ["s0", "s0"]


def test_extents_that_agree_by_chance_in_one_workload_do_not_share_a_symbol() -> None:
    shapes = [(4, 4), (8, 2)]
    [group] = group_workloads([make_input(x=tensor(a), y=tensor(b)) for a, b in shapes])
    assert [t.dimensions[0].symbol for t in group.tensors] == ["s0", "s1"]


def test_a_symbol_does_not_take_the_name_of_a_parameter() -> None:
    [group] = group_workloads([make_input(s0=tensor(n)) for n in (2, 5)])
    assert set(group.symbols).isdisjoint({"s0"})


def test_scalars_dtypes_ranks_and_layouts_separate_workloads() -> None:
    workloads = [
        make_input(x=tensor(4, 4), flag=True),
        make_input(x=tensor(4, 4), flag=False),
        make_input(x=tensor(4, 4, dtype="bfloat16"), flag=True),
        make_input(x=tensor(16), flag=True),
        make_input(x=tensor(4, 4, strides=(1, 4)), flag=True),
        make_input(x=None, flag=True),
    ]
    assert len(group_workloads(workloads)) == len(workloads)


def test_true_and_one_are_different_scalars() -> None:
    assert len(group_workloads([make_input(k=True), make_input(k=1)])) == 2


def test_a_dimension_that_varies_elsewhere_is_a_symbol_even_in_a_single_workload() -> None:
    workload = make_input(x=tensor(4, 64), y=tensor(4, 8))
    [group] = group_workloads([workload], varying=[[("x", 0), ("y", 0)]])
    assert [t.dimensions[0].symbol for t in group.tensors] == ["s0", "s0"]
    assert [t.dimensions[1].symbol for t in group.tensors] == [None, None]


def test_static_groups_hold_each_distinct_shape_once() -> None:
    [group] = group_workloads([make_input(x=tensor(n)) for n in (2, 5, 2)])
    assert [g.symbols for g in static_groups(group)] == [{}, {}]


@given(st.lists(st.integers(0, 5), max_size=4))
def test_strides_of_a_contiguous_tensor_step_over_all_later_extents(shape: list[int]) -> None:
    strides = contiguous_strides(shape)
    for i in range(len(shape) - 1):
        assert strides[i] == strides[i + 1] * max(shape[i + 1], 1)
