"""Triviality: the labelled wins, the reasons, and what must hold for any win."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.census.similarity import similarity
from evaluator.census.triviality import (
    LabelledWin,
    WinFacts,
    complexity,
    facts_of,
    judge_triviality,
    read_corpus,
    score_corpus,
)
from evaluator.evaluation import Baseline, WorkloadCensus
from policies.model import EvaluatorPolicy
from tests import samples
from tests.builders import make_evaluation, make_speedup
from tests.triviality import features

POLICY = EvaluatorPolicy.default().triviality
CORPUS = read_corpus(features.FOLDER)


def is_held_out(case: LabelledWin) -> bool:
    return int(hashlib.sha256(case.id.encode()).hexdigest(), 16) % 3 == 0


HELD_OUT = [c for c in CORPUS if is_held_out(c)]
TUNED_ON = [c for c in CORPUS if not is_held_out(c)]


def make_win(**changes: object) -> WinFacts:
    """A router: complex, nine times eager, six times the compiler."""
    fields: dict[str, object] = {
        "gain": 9.0,
        "gain_low": 8.9,
        "over_compiled": 6.0,
        "over_compiled_low": 5.9,
        "eager_us": 60.0,
        "candidate_us": 6.7,
        "eager_launches": 14,
        "launches": 1,
        "launch_us": 1.6,
        "reference_ops": {"sigmoid": 1, "add": 1, "topk": 3, "gather": 1, "sum": 2, "div": 1},
    }
    return WinFacts.model_validate({**fields, **changes})


def small(**changes: object) -> WinFacts:
    fields: dict[str, object] = {"reference_ops": {"add": 1, "relu": 1}, "eager_launches": 2}
    return make_win(**{**fields, **changes})


def reasons(facts: WinFacts) -> str:
    judged = judge_triviality(facts, POLICY)
    assert judged.trivial == (judged.score >= POLICY.trivial_from)
    return "; ".join(judged.reasons)


@pytest.mark.parametrize("cases", [CORPUS, TUNED_ON, HELD_OUT], ids=["all", "tuned", "held-out"])
def test_trivial_wins_are_told_from_others(cases: list[LabelledWin]) -> None:
    precision, recall, count = score_corpus(cases, POLICY)
    assert count == len(cases)
    assert precision >= 0.9
    assert recall >= 0.9


def test_the_corpus_is_large_and_of_both_kinds() -> None:
    assert len(CORPUS) >= 60
    assert len({c.id for c in CORPUS}) == len(CORPUS)
    share = sum(c.trivial for c in CORPUS) / len(CORPUS)
    assert 0.4 < share < 0.7
    assert len(HELD_OUT) >= len(CORPUS) / 4


def test_the_corpus_says_what_its_references_and_programs_say() -> None:
    cases = features.read_cases()
    assert [c["id"] for c in cases] == [c.id for c in CORPUS]
    for case, recorded in zip(cases, CORPUS, strict=True):
        assert case["why"]
        found = features.labelled(case)
        assert found.trivial == recorded.trivial
        for name, value in found.facts.model_dump().items():
            expected = getattr(recorded.facts, name)
            if isinstance(value, float):
                value, expected = pytest.approx(value, rel=1e-3), expected
            assert expected == value, (recorded.id, name)


def test_a_fused_router_is_not_trivial() -> None:
    assert judge_triviality(make_win(), POLICY).score == 0.0


def test_what_the_compiler_gives_is_trivial() -> None:
    facts = make_win(over_compiled=1.02, over_compiled_low=1.01)
    assert reasons(facts) == "torch.compile already gives 98% of this speed"


def test_fewer_launches_of_two_ops_are_trivial_and_of_a_router_are_not() -> None:
    times = {"eager_us": 3.2, "candidate_us": 1.6, "gain": 2.0, "gain_low": 1.99}
    unknown = {"over_compiled": None, "over_compiled_low": None}
    text = reasons(small(**times, **unknown))
    assert text == (
        "eager spends 3.2 of 3.2 us launching 2 kernels of a problem of 2 ops; "
        "the win is fewer launches"
    )
    assert not judge_triviality(make_win(eager_us=22.4, candidate_us=1.6), POLICY).trivial


def test_what_shows_end_to_end_is_not_trivial_and_what_does_not_is() -> None:
    launches = {"eager_us": 3.2, "candidate_us": 1.6, "gain": 2.0, "gain_low": 1.99}
    assert not judge_triviality(small(**launches, end_to_end_share=0.05), POLICY).trivial
    assert "of the time of the whole program" in reasons(make_win(end_to_end_share=1e-4))


@pytest.mark.parametrize(
    "change", [{"unimproved": True}, {"degenerate": True}, {"reference_ops": {}}]
)
def test_no_gain_makes_up_for_a_win_that_is_none(change: dict[str, object]) -> None:
    facts = make_win(gain=100.0, gain_low=99.0, end_to_end_share=0.5, **change)
    assert judge_triviality(facts, POLICY).trivial


def test_the_first_translation_is_known_by_its_text() -> None:
    renamed = samples.RMS_NORM_TRITON.replace("total", "summed").replace(
        "num_warps=4", "num_warps=8"
    )
    assert similarity(samples.RMS_NORM_TRITON, renamed) == 1.0
    assert similarity(samples.RMS_NORM_CPP, samples.ROTARY_CPP) < 0.7
    compiled = (features.FOLDER / "programs" / "compiler_rms_norm.txt").read_text()
    assert similarity(samples.RMS_NORM_TRITON, compiled) < 0.5
    unknown = {"over_compiled": None, "over_compiled_low": None}
    assert "first translation" in reasons(make_win(similarity=0.97, **unknown))


def test_complexity_follows_the_ops() -> None:
    names = [
        complexity(ops, POLICY).name
        for ops in (
            {"copy_": 2},
            {"add": 1, "relu": 1},
            {"pow": 1, "mean": 1, "add": 1, "rsqrt": 1, "mul": 2},
            {"sigmoid": 1, "topk": 2, "gather": 1, "sum": 1, "div": 1},
        )
    ]
    assert names == ["move", "simple", "composite", "complex"]


@given(low=st.floats(0.5, 20), more=st.floats(1.0, 5.0), share=st.none() | st.floats(0, 1))
def test_a_larger_gain_is_never_more_trivial(low: float, more: float, share: float | None) -> None:
    one = make_win(gain_low=low, end_to_end_share=share)
    other = one.model_copy(update={"gain_low": low * more})
    assert judge_triviality(other, POLICY).score <= judge_triviality(one, POLICY).score


def test_a_record_tells_the_facts() -> None:
    evaluation = make_evaluation(speedup=2.0, candidate_us=50.0)
    assert facts_of(evaluation, EvaluatorPolicy.default()) is None
    census = WorkloadCensus(
        workload="small",
        method="host",
        launches=1,
        reference_launches=7,
        reference_ops={"add": 2, "mean": 1},
    )
    speedups = (*evaluation.speedups, make_speedup(1.2, baseline=Baseline.COMPILED))
    known = evaluation.model_copy(update={"census": (census,), "speedups": speedups})
    facts = facts_of(known, EvaluatorPolicy.default(), similarity=0.3)
    assert facts is not None
    assert (facts.eager_launches, facts.launches, facts.similarity) == (7, 1, 0.3)
    assert facts.eager_us == pytest.approx(100.0)
    assert facts.over_compiled == pytest.approx(1.2)
