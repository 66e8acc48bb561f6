"""Counting what became of the targets, and telling two functions apart."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from benchmarks.extraction import figures
from benchmarks.extraction.comparison import difference
from benchmarks.extraction.targets import read_targets
from evaluator.problem import Contract, Output
from evaluator.tensors import CallResult, Snapshot
from evaluator.worker.protocol import TensorFacts
from integrations.workloads import UserWorkloads, without_lists

EQUAL = {"equal": True, "bitwise": True, "calls": 6}


def returning(*values: float, dtype: str = "float32") -> CallResult:

    kind = np.float32 if dtype == "float32" else np.int64
    facts = TensorFacts(
        name="output 0",
        type_name="torch.Tensor",
        dtype=dtype,
        shape=(len(values),),
        strides=(1,),
        offset=0,
        device="cpu",
        blob=0,
        shares=(),
    )
    storage = np.asarray(values, dtype=kind).tobytes()
    return CallResult("tensor", (Snapshot(facts, storage),), {})


def test_the_file_holds_25_targets_whose_inputs_are_workloads() -> None:
    folders, targets = read_targets()
    assert len(targets) == len({t.name for t in targets}) == 25
    for target in targets:
        assert target.repository in folders
        without_lists(UserWorkloads.model_validate(target.inputs))
    assert Counter(t.refused for t in targets)["random numbers"] == 2


def test_a_target_that_is_not_there_counts_nowhere() -> None:
    rows: dict[str, dict[str, Any]] = {
        "equal": {"extracted": True, "original": EQUAL},
        "rounded": {"extracted": True, "original": {**EQUAL, "bitwise": False}, "written": EQUAL},
        "unlike": {"extracted": True, "original": {**EQUAL, "equal": False, "bitwise": False}},
        "random": {"extracted": False, "refused": ["..."], "refused_rightly": True},
        "wrong": {"extracted": False, "failure": "..."},
        "gone": {"absent": "..."},
    }
    found = {f.name: f.value for f in figures(rows)}
    assert found == {
        "targets_total": 5,
        "extracted": 3,
        "equal_to_original": 2,
        "bitwise_equal_to_original": 1,
        "equal_to_hand_written": 1,
        "refused_rightly": 1,
    }


@pytest.mark.parametrize(
    ("left", "right", "free", "fault"),
    [
        (returning(1.0, 2.0), returning(1.0, 2.0), None, None),
        (returning(1.0, 2.0), returning(1.0, 2.0000002), None, None),
        (returning(1.0, 2.0), returning(1.0, 2.001), None, "0.001 off at 2"),
        (returning(1.0, 2.0), returning(2.0, 1.0), None, "off"),
        (returning(1.0, 2.0), returning(2.0, 1.0), -1, None),
        (returning(1.0, float("inf")), returning(1.0, 3.0), None, "infinities"),
        (returning(1, 2, dtype="int64"), returning(1, 3, dtype="int64"), None, "1 of 2"),
        (returning(1.0), returning(1.0, 1.0), None, "against"),
    ],
)
def test_a_difference_beyond_rounding_is_named(
    left: CallResult, right: CallResult, free: int | None, fault: str | None
) -> None:
    contract = Contract(outputs=(Output(order_free_dim=free),), returns_tuple=False)
    found = difference(contract, left, right)
    assert found is None if fault is None else fault in str(found)
