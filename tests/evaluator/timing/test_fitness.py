"""Whether a machine may be measured on, from how the reference fares against itself."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from evaluator.evaluation import Baseline, Clock
from evaluator.timing.fitness import judge_self, unfit_message
from evaluator.timing.measure import Measurement
from evaluator.timing.pairs import PairResult
from policies.model import EvaluatorPolicy
from tests.builders import make_problem

POLICY = EvaluatorPolicy.default()
SETTINGS = POLICY.timing.self_comparison
WORKLOAD = make_problem().problem.workloads[0]


def pair(ratio: float, *, clock: Clock = Clock.GRAPH_REPLAY) -> PairResult:
    """A process pair in which the reference came out so many times as fast as itself."""
    logs = math.log(ratio) + np.random.default_rng(0).normal(0, 0.002, 30)
    own = np.full(30, 1e4)
    fields: dict[str, Any] = {
        "candidate_us": 10.0,
        "baselines_us": {Baseline.EAGER: 10.0},
        "log_ratios": {Baseline.EAGER: logs},
        "per_call_ns": {"candidate": own, "eager": own * np.exp(logs)},
        "clock": clock,
        "calls_per_block": 300,
        "buffers": 8,
        "slope_us": 10.0,
        "suspicion": None,
        "dropped": {},
        "held_back": frozenset(),
    }
    return PairResult((Measurement(**fields),))


def passes(*pairs: PairResult) -> bool:
    assert SETTINGS is not None
    return judge_self(WORKLOAD, pairs, POLICY, SETTINGS).passed


@pytest.mark.parametrize("ratio", [0.995, 1.0, 1.005])
def test_a_reference_as_fast_as_itself_lets_the_machine_pass(ratio: float) -> None:
    assert passes(pair(ratio))


@pytest.mark.parametrize("ratio", [0.96, 1.04])
def test_a_machine_that_makes_differences_of_its_own_is_unfit(ratio: float) -> None:
    assert not passes(pair(ratio))
    assert not passes(pair(ratio), pair(ratio))


def test_a_call_that_differs_from_process_to_process_does_not_condemn_the_machine() -> None:
    assert passes(pair(1.09), pair(1.0))


def test_a_noisier_clock_is_given_more_room() -> None:
    assert passes(pair(1.04, clock=Clock.WALL_PINNED))


def test_an_unfit_machine_says_by_how_much() -> None:
    assert SETTINGS is not None
    told = unfit_message(judge_self(WORKLOAD, [pair(1.04)], POLICY, SETTINGS))
    assert "1.04" in told
    assert "0.5%" in told
