"""What the timekeeper makes of measurements; they are scripted, for there is no GPU here."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from evaluator import machine
from evaluator.correctness.judging import Ended
from evaluator.device import Device
from evaluator.draft import Draft
from evaluator.evaluation import Baseline, Clock, Status
from evaluator.timing import fitness, timekeeper
from evaluator.timing.measure import MachineBusy, Measurement
from evaluator.timing.pairs import PairResult
from evaluator.timing.roofline import Traffic
from evaluator.timing.samples import TimingSamples
from evaluator.timing.timekeeper import Timekeeper
from policies.model import EvaluatorPolicy
from tests.builders import make_candidate, make_problem

POLICY = EvaluatorPolicy.default()
LOADED = make_problem()
WORKLOADS = LOADED.problem.workloads[:1]
BUDGET = POLICY.timing.screen
GIB = 1 << 30
"""So much takes an H200 more than 200 us."""

Script = Callable[[Clock], PairResult]


def measurement(own_us: float, eager_us: float, **changes: Any) -> Measurement:
    own, eager = np.full(30, 1e3 * own_us), np.full(30, 1e3 * eager_us)
    return Measurement(
        **{
            "candidate_us": own_us,
            "baselines_us": {Baseline.EAGER: eager_us},
            "log_ratios": {Baseline.EAGER: np.full(30, math.log(eager_us / own_us))},
            "per_call_ns": {"candidate": own, "eager": eager},
            "clock": Clock.GRAPH_REPLAY,
            "calls_per_block": 32,
            "buffers": 8,
            "slope_us": own_us,
            "suspicion": None,
            "dropped": {},
            "held_back": frozenset(),
            **changes,
        }
    )


def always(found: Measurement) -> Script:
    return lambda clock: PairResult((replace(found, clock=clock),))


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Timekeeper]:
    """Make a timekeeper of an H200, or of two cores, on which measurements follow a script."""

    def made(script: Script, *, sink: Any = None, on_cores: bool = False) -> Timekeeper:
        def measure_pair(*_: Any, clock: Clock, **__: Any) -> PairResult:
            return script(clock)

        for module in (timekeeper, fitness):
            monkeypatch.setattr(module, "measure_pair", measure_pair)
            monkeypatch.setattr(module, "load_reference", lambda *_: None)
        monkeypatch.setattr(machine, "gpu_name", lambda _: "NVIDIA H200")
        monkeypatch.setattr(timekeeper, "traffic_of", lambda *_, **__: Traffic(GIB, 0.0))
        monkeypatch.setattr(timekeeper, "open_monitor", lambda _: None)
        backend: Any = SimpleNamespace(
            gpu=not on_cores,
            interpreted=False,
            device="cpu" if on_cores else "cuda",
            clock=lambda _: Clock.WALL_PINNED if on_cores else Clock.GRAPH_REPLAY,
        )
        worker: Any = SimpleNamespace(session=nullcontext())
        device = Device(backend.device, folder=tmp_path)
        return Timekeeper(
            LOADED, backend, POLICY, device, start_worker=lambda: worker, cores=2, sink=sink
        )

    return made


NOTHING: Any = None


def ended(keeper: Timekeeper, draft: Draft) -> Ended:
    with pytest.raises(Ended) as caught:
        keeper.time(draft, NOTHING, NOTHING, WORKLOADS, BUDGET, purpose="screen")
    return caught.value


def opened(keeper: Timekeeper, *, fresh: bool = False) -> Draft:
    draft = Draft(make_candidate())
    keeper.open_series(draft, NOTHING, WORKLOADS, fresh=fresh)
    return draft


def scripted(*pairs: Measurement) -> Script:
    """One measurement after the other; the last for ever."""
    left = list(pairs)
    return lambda clock: PairResult(
        (replace(left.pop(0) if len(left) > 1 else left[0], clock=clock),)
    )


def test_a_time_that_memory_does_not_allow_is_suspected(make: Any) -> None:
    keeper = make(scripted(measurement(400, 400), measurement(50, 400)))
    draft = opened(keeper)
    assert ended(keeper, draft).status is Status.CHEATING_SUSPECTED
    assert [f.rule for f in draft.flags] == ["roofline"]


@pytest.mark.parametrize(("own_us", "possible"), [(2000.0, True), (1000.0, False)])
def test_a_time_that_no_processor_reaches_is_suspected(
    make: Any, own_us: float, possible: bool
) -> None:
    keeper = make(scripted(measurement(4000, 4000), measurement(own_us, 4000)), on_cores=True)
    draft = opened(keeper)
    if possible:
        keeper.time(draft, NOTHING, NOTHING, WORKLOADS, BUDGET, purpose="screen")
        assert not draft.flags
    else:
        assert ended(keeper, draft).status is Status.CHEATING_SUSPECTED
        assert [f.rule for f in draft.flags] == ["roofline"]


def test_a_floor_that_the_reference_itself_is_below_is_wrong_and_accuses_nobody(
    make: Any,
) -> None:
    keeper = make(always(measurement(50, 50)))
    draft = opened(keeper)
    keeper.time(draft, NOTHING, NOTHING, WORKLOADS, BUDGET, purpose="screen")
    assert not draft.flags


def test_a_reference_that_beats_itself_ends_the_series_before_it_begins(make: Any) -> None:
    keeper = make(always(measurement(400, 440)))
    with pytest.raises(Ended, match="unfit") as caught:
        opened(keeper)
    assert caught.value.status is Status.MACHINE_UNFIT


def test_a_reference_whose_own_claims_are_doubted_says_that_the_machine_is_unfit(
    make: Any,
) -> None:
    keeper = make(always(measurement(400, 400, suspicion="clocks disagree")))
    with pytest.raises(Ended, match="clocks disagree") as caught:
        opened(keeper)
    assert caught.value.status is Status.MACHINE_UNFIT


def test_the_reference_races_once_for_many_screens_and_anew_for_each_confirmation(
    make: Any,
) -> None:
    kept: list[TimingSamples] = []
    keeper = make(always(measurement(400, 400)), sink=kept.append)
    for fresh in (False, False, True):
        check = opened(keeper, fresh=fresh).aa_check
        assert check is not None
        assert check.passed
    assert [k.purpose for k in kept] == ["reference against itself"] * 2


def test_the_regime_that_does_not_rank_is_recorded_beside_the_one_that_does(make: Any) -> None:
    keeper = make(scripted(measurement(400, 400), measurement(300, 400)))
    draft = opened(keeper)
    ranked = keeper.time(draft, NOTHING, NOTHING, WORKLOADS, BUDGET, purpose="confirmation")
    keeper.time_other_clock(draft, NOTHING, NOTHING, WORKLOADS, ranked)
    (other,) = draft.other_clock
    assert other.clock is Clock.STREAM_EVENTS
    assert other.roofline_fraction == pytest.approx(GIB / 4917e3 / 300, rel=0.05)


def test_a_machine_unfit_for_the_second_regime_costs_the_first_nothing(make: Any) -> None:
    def busy_with_launches(clock: Clock) -> PairResult:
        if clock is Clock.STREAM_EVENTS:
            raise MachineBusy("the host is busy")
        return PairResult((measurement(400, 400),))

    keeper = make(busy_with_launches)
    draft = opened(keeper)
    ranked = keeper.time(draft, NOTHING, NOTHING, WORKLOADS, BUDGET, purpose="confirmation")
    keeper.time_other_clock(draft, NOTHING, NOTHING, WORKLOADS, ranked)
    assert draft.other_clock == ()
    assert [f.rule for f in draft.flags] == ["one-clock"]
