"""Our own clock against a worker's claims: the forger is doubted, the honest are not."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluator.client import BlockTime
from evaluator.timing.claims import SlopePair, made_up_claim, slope_ns, uncertainty, unjoined_work
from policies.model import EvaluatorPolicy

POLICY = EvaluatorPolicy.default().timing
PIPE_NS = 120_000.0


def blocks(
    call_us: float,
    calls: int,
    *,
    count: int,
    claimed_share: float = 1.0,
    noise: float = 0.0,
    seed: int = 0,
) -> list[BlockTime]:
    """Blocks of ``calls`` calls that take ``call_us`` each and claim a share of it."""
    factors = 1 + noise * np.random.default_rng(seed).standard_normal(count)
    spent = 1e3 * call_us * calls * factors
    return [
        BlockTime(claimed_share * ns, int(ns + PIPE_NS), calls, until_idle_ns=claimed_share * ns)
        for ns in spent
    ]


def pairs(call_us: float, *, seed: int = 0, count: int = 3, **how: float) -> list[SlopePair]:
    calls = max(1, round(3000 / call_us))
    usual = blocks(call_us, calls, count=count, seed=2 * seed, **how)  # type: ignore[arg-type]
    other = blocks(call_us, 2 * calls, count=count, seed=2 * seed + 1, **how)  # type: ignore[arg-type]
    return [SlopePair(u, o) for u, o in zip(usual, other, strict=True)]


def test_the_slope_is_free_of_what_a_block_costs_once() -> None:
    assert slope_ns(pairs(20.0)) == pytest.approx(20_000, rel=1e-3)


@given(call_us=st.floats(1, 5000), noise=st.floats(0, 0.2), seed=st.integers(0, 1000))
@settings(max_examples=400, derandomize=True)
def test_an_honest_claim_is_not_doubted_however_noisy_the_machine(
    call_us: float, noise: float, seed: int
) -> None:
    calls = max(1, round(3000 / call_us))
    eager = blocks(call_us, calls, count=15, noise=noise, seed=seed + 5000)
    assert made_up_claim(pairs(call_us, noise=noise, seed=seed, count=12), eager, POLICY) is None


@given(call_us=st.floats(1, 5000), share=st.floats(0.001, 0.85))
@settings(max_examples=50)
def test_a_claim_below_what_a_call_costs_is_doubted_on_a_quiet_machine(
    call_us: float, share: float
) -> None:
    eager = blocks(call_us, max(1, round(3000 / call_us)), count=15)
    doubt = made_up_claim(pairs(call_us, claimed_share=share), eager, POLICY)
    assert doubt is not None
    assert "our own clock" in doubt


def test_honesty_in_longer_blocks_alone_does_not_hide_a_forged_claim() -> None:
    usual = blocks(20.0, 150, count=3, claimed_share=0.5)
    honest = blocks(20.0, 300, count=3)
    doubt = made_up_claim(
        [SlopePair(u, o) for u, o in zip(usual, honest, strict=True)],
        blocks(20.0, 150, count=15),
        POLICY,
    )
    assert doubt is not None


@given(
    call_us=st.floats(1, 5000),
    claimed_share=st.floats(0.1, 1.0),
    slower=st.floats(1.05, 20.0),
    noise=st.floats(0, 1.0),
)
@settings(max_examples=100)
def test_a_slope_below_the_claim_or_below_zero_accuses_nobody(
    call_us: float, claimed_share: float, slower: float, noise: float
) -> None:
    """The usual blocks were disturbed: by our own clock the longer ones took hardly more."""
    calls = max(1, round(3000 / call_us))
    usual = blocks(slower * call_us, calls, count=5)
    other = blocks(call_us, 2 * calls, count=5, claimed_share=claimed_share)
    eager = blocks(call_us, calls, count=15, noise=noise)
    pairs_made = [SlopePair(u, o) for u, o in zip(usual, other, strict=True)]
    assert made_up_claim(pairs_made, eager, POLICY) is None
    if slope_ns(pairs_made) <= 0:
        assert uncertainty(pairs_made, eager) == np.inf


def test_work_that_goes_on_after_the_stream_has_ended_is_told() -> None:
    eager = blocks(20.0, 150, count=15)
    own = [BlockTime(1e6, 4_000_000, 150, until_idle_ns=3e6)] * 5
    told = unjoined_work(own, eager, POLICY)
    assert told is not None
    assert "2.00 ms" in told
    assert unjoined_work(eager, eager, POLICY) is None


@given(
    call_us=st.floats(1, 3000),
    slower=st.floats(1, 4),
    noise=st.floats(0, 0.3),
    seed=st.integers(0, 1000),
)
@settings(max_examples=300, derandomize=True)
def test_long_blocks_that_had_to_wait_for_a_core_accuse_nobody(
    call_us: float, slower: float, noise: float, seed: int
) -> None:
    """As on a machine that others use: a block of 6 ms is interrupted where one of 3 is not."""
    calls = max(1, round(3000 / call_us))
    usual = blocks(call_us, calls, count=12, noise=noise, seed=2 * seed)
    other = blocks(call_us * slower, 2 * calls, count=12, noise=noise, seed=2 * seed + 1)
    eager = blocks(call_us, calls, count=15, noise=noise, seed=seed + 5000)
    made = [SlopePair(u, o) for u, o in zip(usual, other, strict=True)]
    assert made_up_claim(made, eager, POLICY) is None
