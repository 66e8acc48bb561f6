from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluator.correctness.contract import check_call
from evaluator.correctness.precision import Precision, measure_precision
from evaluator.problem import Contract, Output, Tolerance
from tests.evaluator.calls import make_call, make_expected

LOOSE = Tolerance(relative=1e-2)


def product(seed: int, kind: str = "float32", inner: int = 256) -> tuple[Any, Any, Any]:
    """A matrix product in float64, in float32, and in float32 with operands cut to ``kind``."""
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=(32, inner)), rng.normal(size=(inner, 32))
    a, b = a.astype(np.float32), b.astype(np.float32)
    return a.astype(float) @ b.astype(float), a @ b, cut(a, kind) @ cut(b, kind)


def cut(values: Any, kind: str) -> Any:
    """float32 with as many bits of the significand as ``kind`` has."""
    dropped = {"float32": 0, "tf32": 13, "bfloat16": 16}[kind]
    bits = np.asarray(values, np.float32).view(np.uint32).astype(np.uint64)
    half = np.uint64((1 << dropped) >> 1)
    rounded = (bits + half) >> np.uint64(dropped) << np.uint64(dropped)
    return rounded.astype(np.uint32).view(np.float32)


def precision(seed: int, kind: str) -> Precision:
    wide, native, got = product(seed, kind)
    found = measure_precision("output 0", wide, native, got, dtype="float32", reduction_length=256)
    assert found is not None
    return found


@given(seed=st.integers(0, 1000))
@settings(max_examples=20)
def test_arithmetic_is_named_by_its_error(seed: int) -> None:
    assert precision(seed, "float32").looks_like is None
    assert precision(seed, "tf32").looks_like == "TF32 or float16"
    assert precision(seed, "bfloat16").looks_like == "bfloat16 or coarser"


@pytest.mark.parametrize("kind", ["tf32", "bfloat16"])
def test_a_loose_tolerance_does_not_hide_a_lower_precision(kind: str) -> None:
    wide, native, got = product(1, kind)
    expected = make_expected(make_call([native]), make_call([wide]), reduction_length=256)
    contract = Contract(outputs=(Output(),), returns_tuple=True)
    found = check_call(contract, LOOSE, expected, make_call([got]))
    assert [f.kind for f in found.faults] == ["lower precision"]
    assert not check_call(
        contract, LOOSE, expected, make_call([got]), allow_lower_precision=True
    ).faults
    assert not check_call(contract, LOOSE, expected, make_call([native])).faults


def test_another_order_of_summation_is_no_lower_precision() -> None:
    rng = np.random.default_rng(0)
    terms = rng.normal(size=(64, 4096)).astype(np.float32)
    one_by_one = np.cumsum(terms, axis=1, dtype=np.float32)[:, -1]
    found = measure_precision(
        "output 0",
        terms.astype(float).sum(axis=1),
        terms.sum(axis=1),
        one_by_one,
        dtype="float32",
        reduction_length=4096,
    )
    assert found is not None
    assert found.looks_like is None


def test_a_reference_that_is_as_imprecise_accuses_nobody() -> None:
    wide, _, low = product(3, "tf32")
    _, _, other = product(3, "tf32")
    found = measure_precision("o", wide, low, other, dtype="float32", reduction_length=256)
    assert found is not None
    assert found.looks_like is None


def test_one_wrong_element_is_no_matter_of_precision() -> None:
    wide, native, got = product(2)
    got = got.copy()
    got[3, 4] += 1.0
    found = measure_precision("o", wide, native, got, dtype="float32", reduction_length=256)
    assert found is not None
    assert found.looks_like is None
