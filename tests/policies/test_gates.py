from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from policies.gates import interval_verdict, problem_verdict
from policies.model import EvaluatorPolicy


@given(low=st.floats(0.1, 10), width=st.floats(0, 5), threshold=st.floats(1.001, 1.1))
def test_faster_and_slower_exclude_each_other(low: float, width: float, threshold: float) -> None:
    high = low + width
    word = interval_verdict(low=low, high=high, lower_99=low, threshold=threshold)
    assert (word == "faster") == (low > threshold)
    if word == "slower":
        assert high < 1


def test_a_problem_with_a_slower_workload_is_not_faster() -> None:
    assert problem_verdict("faster", any_slower=True) == "ambiguous"
    assert problem_verdict("faster", any_slower=False) == "faster"
    assert problem_verdict("slower", any_slower=True) == "slower"


def test_the_default_policy_is_whole() -> None:
    policy = EvaluatorPolicy.default()
    assert policy.verdict.faster_threshold == 1.005
    assert policy.correctness.trials >= 2
