from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluator.evaluation import Baseline, Speedup, Verdict
from evaluator.timing.statistics import (
    Judge,
    Samples,
    half_width,
    problem_speedup,
    workload_speedup,
)
from policies.model import EvaluatorPolicy

JUDGE = Judge(confidence=0.95, threshold=1.005, process_noise=0.001)


def rounds(ratio: float, *, noise: float = 0.005, count: int = 40, seed: int = 0) -> np.ndarray:
    return math.log(ratio) + np.random.default_rng(seed).normal(0, noise, count)


def samples(ratio: float, *, pairs: int = 1, weight: float = 1.0, seed: int = 0) -> Samples:
    made = tuple(rounds(ratio, seed=seed + i) for i in range(pairs))
    return Samples("w", weight, made)


@given(ratio=st.floats(0.2, 20.0), seed=st.integers(0, 100))
@settings(max_examples=25)
def test_the_interval_holds_the_ratio_and_the_value(ratio: float, seed: int) -> None:
    found = workload_speedup(samples(ratio, seed=seed), Baseline.EAGER, JUDGE)
    assert found.low <= found.value <= found.high
    assert found.value == pytest.approx(ratio, rel=0.02)
    assert found.low * 0.99 <= ratio <= found.high * 1.01
    assert found.lower_99 <= found.value


@given(ratio=st.floats(0.5, 2.0), seed=st.integers(0, 100))
@settings(max_examples=25)
def test_swapping_the_contestants_inverts_the_speedup(ratio: float, seed: int) -> None:
    there = samples(ratio, seed=seed)
    back = Samples("w", 1.0, tuple(-p for p in there.pairs))
    one = workload_speedup(there, Baseline.EAGER, JUDGE)
    other = workload_speedup(back, Baseline.EAGER, JUDGE)
    assert one.value * other.value == pytest.approx(1.0, rel=1e-9)


@pytest.mark.parametrize(
    ("ratio", "verdict"),
    [(1.5, Verdict.FASTER), (0.5, Verdict.SLOWER), (1.0, Verdict.SAME), (1.005, Verdict.AMBIGUOUS)],
)
def test_verdicts_follow_the_interval(ratio: float, verdict: Verdict) -> None:
    quiet = Samples("w", 1.0, (rounds(ratio, noise=0.002, count=200),))
    assert workload_speedup(quiet, Baseline.EAGER, JUDGE).verdict is verdict


def test_noise_alone_is_never_faster() -> None:
    verdicts = [
        workload_speedup(
            Samples("w", 1.0, (rounds(1.0, noise=0.03, count=30, seed=s),)), Baseline.EAGER, JUDGE
        ).verdict
        for s in range(100)
    ]
    assert verdicts.count(Verdict.FASTER) <= 2


def test_one_slow_workload_keeps_a_problem_from_being_faster() -> None:
    mixed = [samples(3.0), Samples("slow", 1.0, (rounds(0.8, seed=9),))]
    found = problem_speedup(mixed, Baseline.EAGER, JUDGE)
    assert found.value > 1.3
    assert found.verdict is Verdict.AMBIGUOUS


def test_weights_make_a_weighted_geometric_mean() -> None:
    mixed = [samples(4.0, weight=3.0), Samples("b", 1.0, (rounds(1.0, seed=5),))]
    found = problem_speedup(mixed, Baseline.EAGER, JUDGE)
    assert found.value == pytest.approx(4.0**0.75, rel=0.01)


def test_processes_that_disagree_widen_the_interval() -> None:
    agree = Samples("w", 1.0, tuple(rounds(1.1, seed=i) for i in range(3)))
    differ = Samples("w", 1.0, tuple(rounds(r, seed=i) for i, r in enumerate((1.0, 1.1, 1.2))))
    narrow = workload_speedup(agree, Baseline.EAGER, JUDGE)
    wide = workload_speedup(differ, Baseline.EAGER, JUDGE)
    assert wide.high - wide.low > 5 * (narrow.high - narrow.low)


def test_the_same_samples_give_the_same_interval() -> None:
    one = workload_speedup(samples(1.2), Baseline.EAGER, JUDGE)
    assert one == workload_speedup(samples(1.2), Baseline.EAGER, JUDGE)


def test_more_rounds_narrow_the_interval() -> None:
    few, many = rounds(1.0, count=20), rounds(1.0, count=320)
    assert half_width(many, 0.95) < half_width(few, 0.95) / 2


def test_no_rounds_are_an_error() -> None:
    with pytest.raises(ValueError, match="rounds"):
        workload_speedup(Samples("w", 1.0, (np.array([]),)), Baseline.EAGER, JUDGE)


BLOCK_NOISE = 0.004
PROCESS_NOISE = EvaluatorPolicy.default().verdict.process_noise["graph_replay"]


def simulated_confirmations(ratio: float, *, count: int, pairs: int = 3) -> list[Speedup]:
    """Confirmations of a known ratio: blocks and processes differ as much as the policy expects."""
    judge = Judge(confidence=0.95, threshold=1.005, process_noise=PROCESS_NOISE)
    rng = np.random.default_rng(7)
    found = []
    for _ in range(count):
        centres = math.log(ratio) + rng.normal(0, PROCESS_NOISE, pairs)
        made = tuple(c + rng.normal(0, BLOCK_NOISE, 25) for c in centres)
        found.append(workload_speedup(Samples("w", 1.0, made), Baseline.EAGER, judge))
    return found


@pytest.mark.parametrize("pairs", [1, 3])
def test_the_lower_bound_exceeds_the_truth_in_no_more_than_one_of_a_hundred(pairs: int) -> None:
    found = simulated_confirmations(1.1, count=600, pairs=pairs)
    assert sum(s.lower_99 > 1.1 for s in found) <= 0.015 * len(found)
    assert sum(s.low <= 1.1 <= s.high for s in found) >= 0.94 * len(found)


def test_a_kernel_against_itself_is_hardly_ever_faster() -> None:
    found = simulated_confirmations(1.0, count=300)
    assert sum(s.verdict is Verdict.FASTER for s in found) <= 1


def test_two_per_cent_are_found() -> None:
    found = simulated_confirmations(1.02, count=200)
    assert sum(s.verdict is Verdict.FASTER for s in found) >= 0.95 * len(found)


def test_short_calls_are_less_certain_than_long_ones_with_the_same_rounds() -> None:
    made = (rounds(1.02, noise=0.001),)
    long = workload_speedup(Samples("w", 1.0, made), Baseline.EAGER, JUDGE)
    short = workload_speedup(Samples("w", 1.0, made, call_noise=0.01), Baseline.EAGER, JUDGE)
    assert long.verdict is Verdict.FASTER
    assert short.verdict is Verdict.AMBIGUOUS
    assert short.value == long.value
