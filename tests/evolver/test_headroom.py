"""The predicted headroom of references, against cases worked out by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.correctness.probe import Intake
from evaluator.evaluation import Baseline, CensusMethod, Status, WorkloadCensus
from evolver.headroom import Bound, ReferenceFacts, headroom_of, predict
from policies.model import EvaluatorPolicy, HeadroomPolicy
from tests.builders import make_evaluation, make_problem

POLICY = HeadroomPolicy(achievable_share=0.8, library_share=0.75, library_gain=1.0)
COSTS = EvaluatorPolicy.default().triviality


def test_a_chain_of_ops_over_much_memory_is_bound_by_it() -> None:
    # 80 us of 100 at the floor's 0.8: a fused kernel takes 10 / 0.8 = 12.5 us.
    found = predict([ReferenceFacts(eager_us=100, launch_us=1.6, floor_us=10, ops=8)], POLICY)
    assert found.bound_by is Bound.MEMORY
    assert found.speedup_possible == pytest.approx(8)
    assert (found.low, found.high) == (pytest.approx(1), pytest.approx(10))
    assert found.evidence == "eager takes 100 us in 8 ops, memory allows 10 us"


def test_small_ops_can_become_one_launch_and_no_less() -> None:
    found = predict([ReferenceFacts(eager_us=16, launch_us=1.6, floor_us=0.1, ops=10)], POLICY)
    assert found.bound_by is Bound.LAUNCH
    assert found.speedup_possible == pytest.approx(10)


def test_products_stay_the_librarys() -> None:
    # Three quarters of 100 us are the product's: the rest may vanish, and no more.
    gemm = ReferenceFacts(eager_us=100, launch_us=1.6, floor_us=10, ops=3, products=1)
    found = predict([gemm], POLICY)
    assert found.bound_by is Bound.LIBRARY
    assert found.speedup_possible == pytest.approx(100 / 75)
    assert found.high == pytest.approx(10)


def test_without_a_floor_half_of_the_passes_may_be_saved_in_logs() -> None:
    found = predict([ReferenceFacts(eager_us=60, launch_us=1.5, ops=4)], POLICY)
    assert found.bound_by is Bound.UNKNOWN
    assert found.speedup_possible == pytest.approx(2)
    assert found.high == pytest.approx(40)


def test_what_the_compiler_reached_is_possible() -> None:
    facts = ReferenceFacts(eager_us=100, launch_us=1.6, floor_us=50, compiled_us=40)
    found = predict([facts], POLICY)
    assert found.low == found.speedup_possible == pytest.approx(2.5)


def test_a_reference_at_the_roofline_has_no_headroom() -> None:
    found = predict([ReferenceFacts(eager_us=100, launch_us=1.6, floor_us=95, ops=1)], POLICY)
    assert found.speedup_possible == pytest.approx(1)
    assert found.high == pytest.approx(100 / 95)


def test_no_floor_binds_where_something_trivial_passes() -> None:
    facts = [ReferenceFacts(eager_us=160, launch_us=1.6, floor_us=80)]
    assert predict(facts, POLICY).high == pytest.approx(2)
    assert predict(facts, POLICY, trivial=True).high == pytest.approx(100)


def test_workloads_count_by_their_weight() -> None:
    two = ReferenceFacts(eager_us=80, launch_us=1, floor_us=32, weight=3)
    launch = ReferenceFacts(eager_us=32, launch_us=1, floor_us=0.1, weight=1)
    found = predict([two, launch], POLICY)
    assert found.speedup_possible == pytest.approx((2**3 * 32) ** 0.25)
    assert found.bound_by is Bound.MEMORY


@given(
    st.lists(
        st.builds(
            ReferenceFacts,
            eager_us=st.floats(0.5, 1e6),
            launch_us=st.floats(0.5, 5),
            weight=st.floats(0.1, 10),
            floor_us=st.none() | st.floats(0.01, 1e6),
            compiled_us=st.none() | st.floats(0.5, 1e6),
            ops=st.none() | st.integers(1, 200),
            products=st.integers(0, 5),
        ),
        min_size=1,
        max_size=4,
    ),
    st.booleans(),
)
def test_a_prediction_lies_in_its_range_and_is_never_a_slowdown(
    facts: list[ReferenceFacts], trivial: bool
) -> None:
    found = predict(facts, POLICY, trivial=trivial)
    slack = 1 + 1e-9
    assert found.low * slack >= 1
    assert found.low <= found.speedup_possible * slack <= found.high * slack**2


def test_the_facts_are_the_references_whichever_candidate_was_judged() -> None:
    problem = make_problem().problem
    judged = make_evaluation(candidate_us=50, speedup=2)
    timings = tuple(t.model_copy(update={"floor_us": 10.0}) for t in judged.timings)
    census = tuple(
        WorkloadCensus(
            workload=w.name,
            method=CensusMethod.DISPATCH,
            launches=1,
            reference_ops={"addmm": 1, "add_": 3},
        )
        for w in problem.workloads
    )
    judged = judged.model_copy(update={"timings": timings, "census": census})
    found = headroom_of(judged, problem, POLICY, costs=COSTS)
    assert found is not None
    assert found.evidence.startswith("eager takes 100 us in 4 ops, 1 of them products")
    assert found.speedup_possible == pytest.approx(100 / 75)
    assert judged.timings[0].baselines_us[Baseline.EAGER] == pytest.approx(100)
    open_end = headroom_of(
        judged, problem, POLICY, costs=COSTS, intake=Intake(trivial={"output 0": ("zeros",)})
    )
    assert open_end is not None
    assert open_end.high > found.high


def test_what_was_not_timed_tells_no_headroom() -> None:
    problem = make_problem().problem
    assert (
        headroom_of(make_evaluation(status=Status.INCORRECT), problem, POLICY, costs=COSTS) is None
    )
