from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from evaluator.correctness.variants import derived_layouts, derived_shapes, derived_values
from evaluator.problem import Contract
from evaluator.workload import DType, TensorSpec, Twist, ValueKind, Values, Workload
from tests.builders import make_problem, make_tensor

EXTENTS = st.integers(2, 3000)


def pair(first: dict[str, Any], second: dict[str, Any]) -> list[Workload]:
    return [Workload(name="a", arguments=first), Workload(name="b", arguments=second)]


def shapes(workload: Workload) -> dict[str, tuple[int, ...]]:
    return {name: spec.shape for name, spec in workload.tensors.items()}


@given(rows=st.tuples(EXTENTS, EXTENTS), cols=st.tuples(EXTENTS, EXTENTS))
@settings(max_examples=40)
def test_extents_that_vary_together_are_derived_together(
    rows: tuple[int, int], cols: tuple[int, int]
) -> None:
    def arguments(i: int) -> dict[str, Any]:
        return {
            "x": make_tensor(rows[i], 2 * cols[i]),
            "weight": make_tensor(cols[i]),
            "offsets": make_tensor(rows[i] + 1, dtype=DType.INT32),
            "cols": cols[i],
            "fixed": make_tensor(64),
        }

    for found in derived_shapes(pair(arguments(0), arguments(1)), most=9):
        x, weight, offsets = (shapes(found)[n] for n in ("x", "weight", "offsets"))
        if len(set(rows)) > 1 and len(set(cols)) > 1 and rows != cols:
            assert x[1] == 2 * weight[0] or rows == tuple(2 * c for c in cols)
            assert found.arguments["cols"] == weight[0]
        if len(set(rows)) > 1 and rows != cols:
            assert offsets[0] in (x[0] + 1, 1)
        assert shapes(found)["fixed"] == (64,)
        inside = all(
            min(low, high) <= value <= max(low, high)
            for value, (low, high) in ((x[0], rows), (weight[0], cols))
        )
        assert inside or found.may_refuse


def test_one_workload_gives_no_shapes_since_its_extents_may_be_fixed() -> None:
    assert derived_shapes(make_problem("rotary").problem.workloads, most=9) == []


def test_sizes_are_odd_one_large_and_empty_and_none_was_declared() -> None:
    declared = make_problem().problem.workloads
    found = derived_shapes(declared, most=9)
    assert [shapes(w)["x"] for w in found] == [(17, 131), (1, 1), (37, 129), (0, 129), (7, 0)]
    assert [w.may_refuse for w in found] == [False, True, True, True, True]
    assert all(w.held_out for w in found)


def test_what_all_declared_extents_share_is_kept_or_may_be_refused() -> None:
    found = derived_shapes(pair({"x": make_tensor(4, 1024)}, {"x": make_tensor(4, 4096)}), most=9)
    must = [shapes(w)["x"] for w in found if not w.may_refuse]
    assert must == [(4, 2 * 1024)]


def test_indices_keep_to_the_extent_that_bounds_them() -> None:
    def arguments(rows: int) -> dict[str, Any]:
        high = Values(kind=ValueKind.INTEGERS, low=0, high=rows)
        return {
            "table": make_tensor(rows, 8),
            "at": make_tensor(5, dtype=DType.INT64, values=high),
        }

    for found in derived_shapes(pair(arguments(100), arguments(50)), most=9):
        at = found.tensors["at"].values.high
        assert at <= max(1, shapes(found)["table"][0])


def test_an_extent_is_not_cut_below_indices_that_nothing_ties_to_it() -> None:
    free = Values(kind=ValueKind.INTEGERS, low=0, high=40)
    at = make_tensor(5, dtype=DType.INT64, values=free)
    declared = pair(
        {"table": make_tensor(100, 8), "at": at}, {"table": make_tensor(50, 8), "at": at}
    )
    assert all(shapes(w)["table"][0] >= 40 for w in derived_shapes(declared, most=9))


def test_bounded_arguments_keep_their_generator() -> None:
    bounded = make_tensor(4, 8, values=Values(kind=ValueKind.UNIFORM, low=0, high=1))
    workload = Workload(name="w", arguments={"x": make_tensor(4, 8), "p": bounded, "n": 3})
    found = list(derived_values(workload))
    assert {t for w in found for t in w.twists.values()} >= {Twist.LARGE, Twist.ZEROS}
    assert all(set(w.twists) == {"x"} for w in found)
    assert not list(derived_values(Workload(name="w", arguments={"p": bounded})))


def test_strides_change_for_contiguous_arguments_that_are_only_read() -> None:
    workload = Workload(
        name="w",
        arguments={
            "x": make_tensor(4, 6),
            "written": make_tensor(4, 6),
            "strided": TensorSpec(shape=(4, 6), strides=(8, 1)),
        },
    )
    contract = Contract(outputs=(), returns_tuple=True, writes=("written",))
    found = derived_layouts(workload, contract)
    assert [w.tensors["x"].strides for w in found] == [(14, 1), (1, 4), (0, 1)]
    assert all(w.tensors["written"] == workload.tensors["written"] for w in found)
    assert all(w.tensors["strided"] == workload.tensors["strided"] for w in found)
    assert all(w.may_refuse for w in found)
