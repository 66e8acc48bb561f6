"""What must move: found from a reference by changing its inputs, and never too much."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evaluator.evaluation import Clock
from evaluator.tensors import plain_arguments
from evaluator.timing.gpu_limits import GPU_LIMITS
from evaluator.timing.roofline import Traffic, below_floor, core_floor_us, floor_us, least_read
from evaluator.worker.calls import Target
from evaluator.worker.traffic import observe
from evaluator.workload import DType, TensorSpec, ValueKind, Values, Workload
from tests.builders import make_tensor

H200 = GPU_LIMITS["NVIDIA H200"]
MIB = 1 << 20


def observed(function: Any, writes: tuple[str, ...] = (), **arguments: Any) -> dict[str, Any]:
    """What sampling finds of ``function`` on its arguments, on the CPU."""
    workload = Workload(name="w", arguments=arguments)
    target = Target("f", None, tuple(arguments), ())
    with torch.no_grad():
        return observe(
            target,
            {"f": function},
            plain_arguments(workload),
            writes,
            seeds=[1, 2, 3, 4],
            device="cpu",
            samples=16,
            seconds=20,
        )


def read_bytes(found: dict[str, Any], name: str) -> float:
    return least_read(**found["readings"][name])


def test_inputs_of_which_all_matters_are_read_whole_but_for_the_doubt() -> None:
    found = observed(lambda x, w: x * w, x=make_tensor(32, 64), w=make_tensor(64))
    assert 0.7 * 32 * 64 * 4 < read_bytes(found, "x") < 32 * 64 * 4
    assert found["written_bytes"] == 32 * 64 * 4


def test_what_an_index_may_skip_counts_nothing_and_the_index_itself_counts() -> None:
    rows = make_tensor(8, dtype=DType.INT64, values=Values(kind=ValueKind.INTEGERS, high=1000))
    found = observed(lambda x, rows: x[rows], x=make_tensor(1000, 4), rows=rows)
    assert read_bytes(found, "x") == 0
    assert read_bytes(found, "rows") > 0


def test_a_selection_must_read_what_it_does_not_select() -> None:
    found = observed(lambda x: x.topk(2).values, x=make_tensor(4, 256))
    assert read_bytes(found, "x") > 0
    assert found["written_bytes"] == 4 * 2 * 4


def test_half_an_input_counts_nothing() -> None:
    found = observed(lambda x: x[: x.shape[0] // 2] * 2, x=make_tensor(64, 8))
    assert read_bytes(found, "x") == 0


def test_of_a_written_argument_what_is_left_as_it_was_need_not_be_read() -> None:
    def fill(cache: torch.Tensor, rows: torch.Tensor) -> None:
        cache[:8] = rows

    def accumulate(total: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return total.add_(x)

    found = observed(fill, ("cache",), cache=make_tensor(64, 4), rows=make_tensor(8, 4))
    assert read_bytes(found, "cache") == 0
    assert read_bytes(found, "rows") > 0
    assert found["written_bytes"] == 8 * 4 * 4
    found = observed(accumulate, ("total",), total=make_tensor(64), x=make_tensor(64))
    assert read_bytes(found, "total") > 0


def test_values_that_can_be_guessed_need_not_be_read() -> None:
    ones = make_tensor(64, values=Values(kind=ValueKind.CONSTANT, low=1.0))
    found = observed(lambda x, ones: x * ones, x=make_tensor(64), ones=ones)
    assert "ones" not in found["readings"]


def test_an_expanded_input_counts_once_and_so_does_an_output_that_repeats() -> None:
    wide = TensorSpec(shape=(64, 16), strides=(0, 1))
    found = observed(lambda x: x + 1, x=wide)
    assert read_bytes(found, "x") <= 16 * 4
    assert found["written_bytes"] == 16 * 4


def test_a_view_of_an_input_writes_nothing() -> None:
    assert observed(lambda x: x.t(), x=make_tensor(8, 8))["written_bytes"] == 0


def test_an_argument_that_is_written_counts_as_read_and_written() -> None:
    found = observed(lambda x, y: x.add_(y), ("x",), x=make_tensor(64), y=make_tensor(64))
    assert read_bytes(found, "x") > 0
    assert found["written_bytes"] == 64 * 4


@given(
    read=st.floats(0, 1e9),
    written=st.floats(0, 1e9),
    buffers=st.integers(2, 32),
    clock=st.sampled_from((Clock.GRAPH_REPLAY, Clock.STREAM_EVENTS)),
)
def test_the_floor_is_never_above_moving_every_byte_through_dram(
    read: float, written: float, buffers: int, clock: Clock
) -> None:
    found = floor_us(Traffic(read, written), H200, buffers=buffers, clock=clock, in_place=False)
    assert 0 <= found <= (read + written) / H200.dram_bytes_per_us + 1e-9


def test_a_rotation_that_fits_the_cache_is_bounded_by_the_cache_alone() -> None:
    traffic = Traffic(read_bytes=MIB, written_bytes=0)
    found = floor_us(traffic, H200, buffers=8, clock=Clock.GRAPH_REPLAY, in_place=False)
    assert found == pytest.approx(MIB / H200.l2_bytes_per_us)


def test_two_megabytes_are_not_stored_in_a_microsecond_by_two_cores_but_are_by_eight() -> None:
    traffic = Traffic(read_bytes=2 * MIB, written_bytes=2 * MIB)
    assert core_floor_us(traffic, cores=2) == pytest.approx(2.73, rel=0.01)
    assert core_floor_us(traffic, cores=8) < 1
    assert core_floor_us(Traffic(), cores=2) == 0


def test_what_the_first_caches_hold_may_be_read_in_no_time() -> None:
    assert core_floor_us(Traffic(read_bytes=256 << 10), cores=2) == 0
    assert core_floor_us(Traffic(read_bytes=MIB), cores=2) > 0.9


def test_a_time_below_the_floor_is_impossible_and_one_within_the_slack_is_not() -> None:
    assert below_floor(8.0, 10.0, 0.1) is not None
    assert below_floor(9.5, 10.0, 0.1) is None
    assert below_floor(8.0, None, 0.1) is None
