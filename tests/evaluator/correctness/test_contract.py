from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluator.correctness.comparison import compare_values
from evaluator.correctness.contract import CheckResult, check_call, same_bits
from evaluator.correctness.expected import Expected
from evaluator.problem import Contract, Output, OutputKind, Tolerance
from evaluator.tensors import CallResult, returning_arguments
from evaluator.worker.protocol import NOTHING
from tests.evaluator.calls import make_call, make_expected, make_snapshot

ONE_OUTPUT = Contract(outputs=(Output(),), returns_tuple=True)


def truth(seed: int = 0, shape: tuple[int, ...] = (8, 64), scale: float = 1.0) -> Any:
    return np.random.default_rng(seed).normal(size=shape) * scale


def expected_of(wide: Any, arguments: dict[str, Any] | None = None) -> Expected:
    native = make_call([wide.astype(np.float32)], arguments)
    return make_expected(native, make_call([wide], arguments))


def check(expected: Expected, got: CallResult, contract: Contract = ONE_OUTPUT) -> CheckResult:
    return check_call(contract, Tolerance(), expected, got)


def kinds(result: CheckResult) -> list[str]:
    return [f.kind for f in result.faults]


@given(seed=st.integers(0, 1000), scale=st.sampled_from([1e-20, 1e-4, 1.0, 1e6]))
@settings(max_examples=40)
def test_the_reference_itself_passes_at_every_scale(seed: int, scale: float) -> None:
    wide = truth(seed, scale=scale)
    assert not check(expected_of(wide), make_call([wide.astype(np.float32)])).faults


@given(seed=st.integers(0, 1000), scale=st.sampled_from([1e-20, 1e-4, 1.0, 1e6]))
@settings(max_examples=40)
def test_zeros_the_mean_and_a_shifted_copy_fail_at_every_scale(seed: int, scale: float) -> None:
    wide = truth(seed, scale=scale)
    for wrong in (np.zeros_like(wide), np.full_like(wide, wide.mean()), np.roll(wide, 1)):
        result = check(expected_of(wide), make_call([wrong.astype(np.float32)]))
        assert kinds(result) == ["wrong values"]


def test_zeros_fail_in_small_rows_beside_large_ones() -> None:
    wide = truth() * np.logspace(-6, 6, 8)[:, None]
    wrong = wide.astype(np.float32)
    wrong[0] = 0
    assert kinds(check(expected_of(wide), make_call([wrong]))) == ["wrong values"]


@given(where=st.integers(0, 511), size=st.floats(1e-3, 1e3))
@settings(max_examples=40)
def test_one_wrong_element_is_found_and_named(where: int, size: float) -> None:
    wide = truth()
    wrong = wide.astype(np.float32)
    wrong.flat[where] += size
    result = check(expected_of(wide), make_call([wrong]))
    assert kinds(result) == ["wrong values"]
    assert result.errors[0].worst_index == np.unravel_index(where, wide.shape)


def test_lower_precision_than_the_reference_fails() -> None:
    wide = truth()
    narrow = wide.astype(np.float16).astype(np.float32)
    assert kinds(check(expected_of(wide), make_call([narrow]))) == [
        "wrong values",
        "lower precision",
    ]


@pytest.mark.parametrize("planted", [np.nan, np.inf, -np.inf])
def test_a_value_at_infinity_where_the_reference_has_none_fails(planted: float) -> None:
    wrong = truth().astype(np.float32)
    wrong[2, 3] = planted
    assert kinds(check(expected_of(truth()), make_call([wrong]))) == ["wrong values"]


@pytest.mark.parametrize("planted", [np.nan, np.inf, -np.inf])
def test_infinities_and_nan_must_stand_where_the_reference_has_them(planted: float) -> None:
    wide = truth()
    wide[2, 3] = planted
    right, wrong = wide.astype(np.float32), wide.astype(np.float32)
    wrong[2, 3] = 1.0
    assert not check(expected_of(wide), make_call([right])).faults
    assert kinds(check(expected_of(wide), make_call([wrong]))) == ["wrong values"]


def test_an_overflow_that_the_reference_has_too_is_right() -> None:
    wide = truth()
    wide[0, 0] = 1e39
    with np.errstate(over="ignore"):
        native = wide.astype(np.float32)
    expected = make_expected(make_call([native]), make_call([wide]))
    assert not check(expected, make_call([native])).faults


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"dtype": "int32"}, "wrong dtype"),
        ({"type_name": "candidate.Lazy"}, "wrong type"),
        ({"device": "cuda"}, "wrong device"),
        ({"shape": (64, 8), "strides": (8, 1)}, "wrong shape"),
        ({"shares": ("x",)}, "wrong alias"),
        ({"strides": (0, 1)}, "overlapping output"),
        ({"strides": (32, 1)}, "overlapping output"),
    ],
)
def test_form_is_exact(changes: dict[str, Any], kind: str) -> None:
    wide = truth()
    got = make_snapshot("output 0", wide.astype(np.float32), **changes)
    assert kinds(check(expected_of(wide), make_call([got]))) == [kind]


@pytest.mark.parametrize("strides", [(1, 8), (100, 1)])
def test_the_order_of_memory_and_gaps_in_it_are_free(strides: tuple[int, int]) -> None:
    wide = truth()
    memory = np.zeros(800, np.float32)
    at = np.arange(8)[:, None] * strides[0] + np.arange(64) * strides[1]
    memory[at] = wide
    got = make_snapshot("output 0", memory, shape=(8, 64), strides=strides)
    assert not check(expected_of(wide), make_call([got])).faults


def test_elements_may_share_memory_where_those_of_the_reference_do() -> None:
    row = truth(shape=(64,))
    repeated = make_snapshot("output 0", row.astype(np.float32), shape=(8, 64), strides=(0, 1))
    expected = make_expected(make_call([repeated]), make_call([np.tile(row, (8, 1))]))
    assert not check(expected, make_call([repeated])).faults


def test_count_and_container_are_exact() -> None:
    wide = truth()
    narrow = wide.astype(np.float32)
    assert kinds(check(expected_of(wide), make_call([narrow, narrow]))) == [
        "wrong number of outputs"
    ]
    bare = make_call([narrow], container="tensor")
    assert kinds(check(expected_of(wide), bare)) == ["wrong container"]


def test_an_input_that_is_not_declared_as_written_must_not_change() -> None:
    wide = truth()
    x = np.ones(4, np.float32)
    got = make_call([wide.astype(np.float32)], {"x": x * 2})
    assert kinds(check(expected_of(wide, {"x": x}), got)) == ["input modified"]


def test_an_alias_that_the_contract_asks_for_must_be_one() -> None:
    contract = Contract(outputs=(Output(alias_of="x"),), returns_tuple=True, writes=("x",))
    wide = truth()
    narrow = wide.astype(np.float32)
    expected = expected_of(wide, {"x": narrow})
    itself = make_snapshot("output 0", narrow, shares=("x",))
    assert not check(expected, make_call([itself], {"x": narrow}), contract).faults
    copy = make_call([narrow], {"x": narrow})
    assert kinds(check(expected, copy, contract)) == ["wrong alias"]


def test_writes_between_the_elements_of_a_written_argument_are_found() -> None:
    contract = Contract(outputs=(), returns_tuple=True, writes=("x",))
    storage = np.arange(16, dtype=np.float32)
    view = {"shape": (2, 4), "strides": (8, 1)}

    def call(values: Any) -> CallResult:
        snapshot = make_snapshot("x", values, **view)
        return CallResult("tuple", (), {"x": snapshot})

    expected = Expected(call(storage), None, {"x": storage.tobytes()}, 1)
    assert not check(expected, call(storage), contract).faults
    spoiled = storage.copy()
    spoiled[5] = 99
    assert kinds(check(expected, call(spoiled), contract)) == ["wrote between elements"]


def test_exact_outputs_must_be_equal() -> None:
    contract = Contract(outputs=(Output(kind=OutputKind.EXACT),), returns_tuple=True)
    counts = np.arange(12, dtype=np.int64)
    expected = make_expected(make_call([counts]), None)
    assert not check(expected, make_call([counts]), contract).faults
    wrong = counts.copy()
    wrong[7] += 1
    assert kinds(check(expected, make_call([wrong]), contract)) == ["wrong values"]


def test_order_is_free_only_where_the_contract_says_so() -> None:
    wide = truth(shape=(4, 32))
    shuffled = np.sort(wide, axis=-1).astype(np.float32)
    free = Contract(outputs=(Output(order_free_dim=1),), returns_tuple=True)
    assert not check(expected_of(wide), make_call([shuffled]), free).faults
    assert check(expected_of(wide), make_call([shuffled])).faults


def test_same_bits_sees_the_smallest_difference() -> None:
    one, other = truth(), truth()
    assert same_bits(make_call([one]), make_call([other]))
    other[0, 0] = np.nextafter(other[0, 0], np.inf)
    assert not same_bits(make_call([one]), make_call([other]))


def test_empty_tensors_are_equal() -> None:
    empty = np.zeros((0, 16))
    assert not check(expected_of(empty), make_call([empty.astype(np.float32)])).faults


def test_a_scalar_output_is_compared_like_any_other() -> None:
    expected, got, budget = np.array(2.0), np.array(2.5), np.array(0.25)
    error = compare_values("output 0", expected, None, got, budget)
    assert (error.max_abs_error, error.budget_used, error.worst_index) == (0.5, 2.0, ())


def test_memory_beside_an_argument_must_stay_as_it_was() -> None:
    wide = truth()
    narrow = wide.astype(np.float32)
    expected = expected_of(wide, {"x": narrow})
    zone = b"\xff" * 64
    untouched = replace(make_call([narrow], {"x": narrow}), zones={"x": zone})
    assert not check(expected, untouched).faults
    spoiled = replace(untouched, zones={"x": zone[:-1] + b"\0"})
    assert kinds(check(expected, spoiled)) == ["wrote out of bounds"]


def test_on_extreme_values_only_gross_errors_count() -> None:
    wide = truth()
    slightly_off = (wide + 4e-6).astype(np.float32)
    expected = replace(expected_of(wide), stress=True)
    assert kinds(check(expected_of(wide), make_call([slightly_off]))) == ["wrong values"]
    assert not check(expected, make_call([slightly_off])).faults
    assert kinds(check(expected, make_call([wide.astype(np.float32) * 1.01]))) == ["wrong values"]


@given(shape=st.sampled_from([(3, 70_000), (200_001,), (5, 4, 17), (70_000, 3), (1,)]))
@settings(max_examples=5)
def test_the_worst_element_is_found_in_any_block(shape: tuple[int, ...]) -> None:
    wide = truth(shape=shape)
    wrong = wide.astype(np.float32)
    at = int(np.random.default_rng(1).integers(wrong.size))
    wrong.flat[at] += 2.0
    error = check(expected_of(wide), make_call([wrong])).errors[0]
    assert error.worst_index == np.unravel_index(at, shape)
    assert abs(error.max_abs_error - 2.0) < 1e-5


WRITES = Contract(
    outputs=(Output(alias_of="x"),), returns_tuple=False, returns_none=True, writes=("x",)
)


def written(before: Any, after: Any) -> tuple[Expected, Callable[..., CallResult]]:
    """What a function that returns None must leave in ``x``, and calls that leave something."""

    def leaving(values: Any, container: str = NOTHING) -> CallResult:
        call = make_call([], {"x": values}, container=container)
        return returning_arguments(call, ["x"])

    inputs = {"x": make_snapshot("x", before).storage}
    return replace(make_expected(leaving(after), None), inputs=inputs), leaving


def test_where_none_is_returned_the_written_argument_is_judged() -> None:
    before, after = truth(1).astype(np.float32), truth(2).astype(np.float32)
    expected, leaving = written(before, after)
    half = np.concatenate([after[:4], before[4:]])
    assert not check(expected, leaving(after), WRITES).faults
    assert kinds(check(expected, leaving(before), WRITES)) == ["wrong values"]
    assert kinds(check(expected, leaving(half), WRITES)) == ["wrong values"]
    assert kinds(check(expected, leaving(after, "tensor"), WRITES)) == ["wrong container"]


def test_a_low_precision_shows_although_most_of_the_argument_is_left_as_it_was() -> None:
    before = truth(1).astype(np.float32)
    wide = before.astype(np.float64)
    wide[:1] = truth(2, (1, 64))
    expected, leaving = written(before, wide.astype(np.float32))
    rough = wide.astype(np.float32)
    rough[:1] = rough[:1].astype(np.float16)
    loose = Tolerance(relative=0.01)
    found = check_call(WRITES, loose, expected, leaving(rough))
    assert kinds(found) == ["lower precision"]


def test_a_written_integer_that_is_off_by_one_is_wrong() -> None:
    pages = np.arange(64, dtype=np.int32)
    expected, leaving = written(np.zeros_like(pages), pages)
    exact = WRITES.model_copy(
        update={"outputs": (Output(kind=OutputKind.EXACT, alias_of="x"),)}, deep=True
    )
    assert kinds(check(expected, leaving(pages + 1), exact)) == ["wrong values"]
    returns_nothing_of_it = Contract(outputs=(), returns_tuple=True, writes=("x",))
    other = replace(expected, native=make_call([], {"x": pages}))
    got = make_call([], {"x": pages + 1})
    assert kinds(check(other, got, returns_nothing_of_it)) == ["wrong values"]


def test_none_without_a_write_is_no_contract() -> None:
    with pytest.raises(ValueError, match="must write an argument"):
        Contract(outputs=(), returns_tuple=False, returns_none=True)
