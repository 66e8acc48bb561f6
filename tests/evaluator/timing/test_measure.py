"""Rounds: which count, when sampling ends, what the clocks must agree on."""

from __future__ import annotations

import itertools
import os
import random
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest

from evaluator.client import BlockTime, Client
from evaluator.evaluation import Baseline, Clock
from evaluator.timing.contestant import Contestant
from evaluator.timing.measure import Audit, MachineBusy, Measurement, measure
from policies.model import EvaluatorPolicy, TimingBudget
from tests.builders import make_problem

POLICY = EvaluatorPolicy.default()
FAST = POLICY.timing.model_copy(
    update={
        "settle_milliseconds": 1e-3,
        "device_settle_milliseconds": 1e-3,
        "cool_down_milliseconds": 1e-3,
    }
)
BUDGET = TimingBudget(
    process_pairs=1,
    min_rounds=10,
    max_rounds=30,
    workload_seconds=0.2,
    half_width=1e-9,
    slope_pairs=3,
)
PIPE_NS = 1000
"""What a block costs by our clock beside its calls."""
Block = Callable[[int], BlockTime]


class ScriptedSession:
    """A worker that can be stopped and may be asked for a block only while it runs."""

    def __init__(self) -> None:
        self.running = True

    def pause(self) -> None:
        self.running = False

    def resume(self) -> None:
        self.running = True


class ScriptedClient:
    """Answers the n-th block with ``block(n)``; outputs are always right."""

    def __init__(self, block: Block) -> None:
        self._block = block
        self._numbers = itertools.count()
        self.session = ScriptedSession()

    def block(self, _handle: int, calls: int, *, seconds: float) -> BlockTime:
        assert self.session.running
        once = self._block(next(self._numbers))
        longer = {
            "claimed_ns": calls * once.claimed_ns,
            "wall_ns": once.wall_ns + (calls - 1) * (once.wall_ns - PIPE_NS),
            "until_idle_ns": calls * once.until_idle_ns,
        }
        return replace(once, calls=calls, **longer)

    def refill(self, _handle: int, _index: int, _seed: int, *, seconds: float) -> None:
        return None

    def last(
        self, _handle: int, _workload: Any, index: int, _pick: int, *, seconds: float
    ) -> tuple[Any, int]:
        return None, index


def took(nanoseconds: float, *, waited_ns: int = 0, wall_ns: float | None = None) -> BlockTime:
    """One call, as the worker claims it; by our own clock just as long unless stated."""
    wall = (nanoseconds if wall_ns is None else wall_ns) + PIPE_NS
    return BlockTime(nanoseconds, int(wall), 1, waited_ns, until_idle_ns=nanoseconds)


def measured(own: Block, eager: Block, clock: Clock = Clock.WALL_PINNED) -> Measurement:
    return measured_clients(ScriptedClient(own), ScriptedClient(eager), clock)


def measured_clients(
    own: ScriptedClient,
    eager: ScriptedClient,
    clock: Clock,
    *,
    verdict: str | None = None,
    rng: random.Random | None = None,
    monitor: FakeMonitor | None = None,
    writes: bool = False,
) -> Measurement:
    def contestant(client: ScriptedClient) -> Contestant:
        made = Contestant(cast(Client, client), handle=0, clock=clock)
        return replace(made, buffers=4, calls=64, in_place=True) if writes else made

    return measure(
        contestant(own),
        {Baseline.EAGER: contestant(eager)},
        make_problem().problem.workloads[0],
        budget=BUDGET,
        policy=FAST,
        confidence=0.95,
        audit=Audit(seed=1, judge=lambda *_: verdict),
        seconds=1.0,
        rng=rng or random.Random(0),
        monitor=monitor,
    )


def test_a_round_in_which_a_worker_waited_for_a_core_does_not_count() -> None:
    def disturbed_now_and_then(number: int) -> BlockTime:
        return took(9e9, waited_ns=9 * 10**9) if number % 3 == 0 else took(2e6)

    found = measured(lambda _: took(1e6), disturbed_now_and_then)
    assert np.allclose(found.log_ratios[Baseline.EAGER], np.log(2))
    assert 0.2 < found.dropped_share < 0.5


def test_a_worker_stands_still_while_another_is_timed() -> None:
    own = ScriptedClient(lambda _: took(1e6))
    candidate_ran = []

    def eager_block(_number: int) -> BlockTime:
        candidate_ran.append(own.session.running)
        return took(2e6)

    eager = ScriptedClient(eager_block)
    measured_clients(own, eager, Clock.WALL_PINNED)
    assert len(candidate_ran) >= 5
    assert not any(candidate_ran)
    assert own.session.running
    assert eager.session.running


def test_workers_run_on_after_a_block_that_failed() -> None:
    own = ScriptedClient(lambda _: took(1e6))

    def dies(_number: int) -> BlockTime:
        raise RuntimeError("gone")

    with pytest.raises(RuntimeError, match="gone"):
        measured_clients(own, ScriptedClient(dies), Clock.WALL_PINNED)
    assert own.session.running


def test_a_candidate_whose_own_threads_fight_is_slow_and_not_excused() -> None:
    found = measured(
        lambda n: took(4e6, waited_ns=4 * 10**6) if n % 2 else took(1e6), lambda _: took(2e6)
    )
    assert found.dropped_share == 0
    assert len(found.log_ratios[Baseline.EAGER]) == BUDGET.max_rounds


def test_where_most_rounds_are_disturbed_the_rest_are_not_believed() -> None:
    with pytest.raises(MachineBusy):
        measured(lambda _: took(1e6), lambda n: took(2e6, waited_ns=10**6 if n % 10 else 0))


def test_a_machine_on_which_every_round_is_disturbed_gives_no_number() -> None:
    with pytest.raises(MachineBusy, match="other work took the cores"):
        measured(lambda _: took(1e6), lambda _: took(1e6, waited_ns=10**6))


def test_rounds_that_are_slow_but_undisturbed_are_waited_for() -> None:
    def slow(number: int) -> BlockTime:
        time.sleep(BUDGET.workload_seconds * (number < 8))
        return took(1e6)

    found = measured(slow, lambda _: took(2e6))
    assert len(found.log_ratios[Baseline.EAGER]) >= 5


class FindsItsResult(ScriptedClient):
    """After the first call on each of four buffers, a call takes a tenth."""

    def block(self, handle: int, calls: int, *, seconds: float) -> BlockTime:
        full = super().block(handle, calls, seconds=seconds)
        share = (min(calls, 4) + max(0, calls - 4) / 10) / calls
        taken = {"claimed_ns": full.claimed_ns * share, "until_idle_ns": full.claimed_ns * share}
        return replace(full, wall_ns=int(full.wall_ns * share), **taken)


def test_work_that_is_skipped_where_its_result_stands_is_told_from_honest_work() -> None:
    def once(_number: int) -> BlockTime:
        return took(1e5)

    def suspected(own: ScriptedClient, eager: ScriptedClient) -> str:
        return measured_clients(own, eager, Clock.WALL_PINNED, writes=True).suspicion or ""

    assert "result stands in a written argument" in suspected(
        FindsItsResult(once), ScriptedClient(once)
    )
    assert not suspected(ScriptedClient(once), ScriptedClient(once))
    # Where restoring alone makes the next calls slow, the reference shows it as well.
    assert "result stands" not in suspected(FindsItsResult(once), FindsItsResult(once))


class LastRound(random.Random):
    """Puts the audit into the last round that it may fall into."""

    def randrange(self, start: int, *_: object) -> int:  # type: ignore[override]
        return start - 1


def test_a_block_is_audited_although_slow_rounds_end_before_its_turn() -> None:
    def slow(number: int) -> BlockTime:
        time.sleep(BUDGET.workload_seconds * (number < 8))
        return took(1e6)

    own, eager = ScriptedClient(slow), ScriptedClient(lambda _: took(2e6))
    found = measured_clients(own, eager, Clock.WALL_PINNED, verdict="stale", rng=LastRound())
    assert len(found.log_ratios[Baseline.EAGER]) < BUDGET.min_rounds
    assert found.suspicion == "stale"


def test_a_little_waiting_is_the_life_of_every_process() -> None:
    found = measured(lambda _: took(1e6), lambda _: took(1e6, waited_ns=10**4))
    assert found.dropped_share == 0


def test_waiting_for_a_core_does_not_matter_where_the_device_keeps_the_clock() -> None:
    found = measured(lambda _: took(1e6, waited_ns=10**6), lambda _: took(1e6), Clock.GRAPH_REPLAY)
    assert found.dropped_share == 0


def test_a_claim_above_the_wall_time_is_impossible_even_in_a_dropped_round() -> None:
    def impossible(number: int) -> BlockTime:
        return BlockTime(1e6, 10, 1) if number == 3 else took(1e6)

    def disturbed_when_it_matters(number: int) -> BlockTime:
        return took(1e6, waited_ns=10**6 if number in (2, 3) else 0)

    found = measured(impossible, disturbed_when_it_matters)
    assert found.suspicion is not None
    assert "wall time" in found.suspicion


class FakeMonitor:
    """A device whose clock is ``mhz(n)`` at the n-th reading."""

    def __init__(self, mhz: Callable[[int], int], users: frozenset[int] = frozenset()) -> None:
        self._mhz = mhz
        self._users = users
        self._readings = itertools.count()

    def clock_mhz(self) -> int:
        return self._mhz(next(self._readings))

    def held_back(self) -> frozenset[str]:
        return frozenset({"power cap"})

    def users(self) -> frozenset[int]:
        return self._users


def on_a_device(monitor: FakeMonitor) -> Measurement:
    own, eager = ScriptedClient(lambda _: took(1e6)), ScriptedClient(lambda _: took(2e6))
    return measured_clients(own, eager, Clock.GRAPH_REPLAY, monitor=monitor)


def test_a_round_in_which_the_clock_moved_does_not_count_and_is_told_apart() -> None:
    found = on_a_device(FakeMonitor(lambda n: 1755 if n % 50 == 0 else 1980))
    assert 0 < found.dropped_share < 0.5
    assert list(found.dropped) == ["the device's clock moved"]
    assert found.held_back == {"power cap"}


def test_a_clock_that_never_holds_gives_no_number() -> None:
    with pytest.raises(MachineBusy, match="clock moved"):
        on_a_device(FakeMonitor(lambda n: 1980 - 15 * (n % 7)))


def test_a_device_that_someone_else_uses_gives_no_number() -> None:
    with pytest.raises(MachineBusy, match="someone else uses the GPU"):
        on_a_device(FakeMonitor(lambda _: 1980, frozenset({os.getpid(), 4_000_001})))


def test_our_own_clock_finds_a_candidate_out_that_claims_half_its_time() -> None:
    found = measured(lambda _: took(1e6, wall_ns=2e6), lambda _: took(2e6))
    assert found.suspicion is not None
    assert "our own clock" in found.suspicion


def test_where_our_own_clock_is_too_noisy_to_check_a_claim_there_is_no_number() -> None:
    with pytest.raises(MachineBusy, match="our own clock is uncertain"):
        measured(lambda _: took(1e6, wall_ns=2e6), lambda n: took(1e6, wall_ns=1e6 + n % 5 * 1e6))


class Remembering(ScriptedClient):
    """Keeps what it was given: a call on content that it has seen takes ``known_ns``."""

    def __init__(self, new_ns: float, known_ns: float) -> None:
        super().__init__(lambda _: took(known_ns))
        self._surcharge = new_ns - known_ns
        self._seen: set[int] = set()
        self._is_new = False

    def refill(self, _handle: int, _index: int, seed: int, *, seconds: float) -> None:
        self._is_new = seed not in self._seen
        self._seen.add(seed)

    def block(self, handle: int, calls: int, *, seconds: float) -> BlockTime:
        once = super().block(handle, calls, seconds=seconds)
        extra = self._surcharge if self._is_new else 0.0
        self._is_new = False
        return replace(
            once,
            claimed_ns=once.claimed_ns + extra,
            wall_ns=int(once.wall_ns + extra),
            until_idle_ns=once.until_idle_ns + extra,
        )


@pytest.mark.parametrize("clock", [Clock.WALL_PINNED, Clock.GRAPH_REPLAY, Clock.STREAM_EVENTS])
@pytest.mark.parametrize(("new_ns", "found_out"), [(2.4e6, True), (1.5e5, False)])
def test_outputs_that_are_remembered_by_content_are_found_out(
    clock: Clock, new_ns: float, found_out: bool
) -> None:
    """E46: half as slow again is what caches and branch predictors remember, and honest."""
    own = Remembering(new_ns, 1e5)
    found = measured_clients(own, ScriptedClient(lambda _: took(2.4e6)), clock)
    assert ("outputs are remembered" in (found.suspicion or "")) is found_out


def test_noise_alone_is_not_taken_for_memory() -> None:
    rng = random.Random(3)
    for _ in range(20):
        own = ScriptedClient(lambda _: took(1e6 * (1 if rng.random() < 0.97 else 5)))
        found = measured_clients(own, ScriptedClient(lambda _: took(2e6)), Clock.WALL_PINNED)
        assert "remembered" not in (found.suspicion or "")


def test_where_more_calls_take_less_time_by_our_own_clock_there_is_no_number() -> None:
    class Disturbed(ScriptedClient):
        def block(self, handle: int, calls: int, *, seconds: float) -> BlockTime:
            return replace(
                super().block(handle, 1, seconds=seconds), calls=calls, wall_ns=9 * 10**6 // calls
            )

    with pytest.raises(MachineBusy, match="more calls took less time"):
        measured_clients(
            Disturbed(lambda _: took(1e6)), ScriptedClient(lambda _: took(2e6)), Clock.WALL_PINNED
        )


def test_our_own_clock_agrees_with_an_honest_candidate() -> None:
    found = measured(lambda _: took(1e6), lambda _: took(2e6))
    assert found.suspicion is None
    assert found.slope_us == pytest.approx(1e3, rel=0.01)
