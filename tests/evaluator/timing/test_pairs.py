from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from evaluator.timing.gpu_limits import GPU_LIMITS
from evaluator.timing.pairs import buffer_count, copy_count
from evaluator.workload import Workload
from policies.model import EvaluatorPolicy
from tests.builders import make_tensor

POLICY = EvaluatorPolicy.default().timing
L2_BYTES = GPU_LIMITS["NVIDIA H200"].l2_bytes


def rotation(workload: Workload, l2_bytes: int | None) -> int:
    """How many inputs and copies calls rotate through."""
    seeds = buffer_count(workload, POLICY, l2_bytes=l2_bytes)
    return seeds * (1 + copy_count(workload, seeds, POLICY, l2_bytes=l2_bytes))


def sized(size_bytes: int) -> Workload:
    return Workload(name="w", arguments={"x": make_tensor(size_bytes // 4)})


@given(st.integers(4, 1 << 31))
def test_a_rotation_is_colder_than_the_cache_where_the_policy_lets_it_be(size_bytes: int) -> None:
    count = rotation(sized(size_bytes), L2_BYTES)
    assert POLICY.min_buffers <= count <= POLICY.max_rotation
    if size_bytes * POLICY.max_rotation >= 2 * POLICY.cold_l2_multiple * L2_BYTES:
        assert count * size_bytes >= POLICY.cold_l2_multiple * L2_BYTES * 0.99


def test_calls_too_small_for_any_rotation_to_be_cold_have_no_copies() -> None:
    assert rotation(sized(4096), L2_BYTES) == POLICY.max_buffers


def test_without_a_known_cache_there_are_no_copies() -> None:
    assert rotation(sized(1 << 20), None) == POLICY.max_buffers
