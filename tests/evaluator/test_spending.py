"""Where an evaluation's time goes, by a clock that the test moves."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

import pytest

from evaluator.device import Device
from evaluator.evaluation import Clock, Stage
from evaluator.spending import StageClock, staged


class Hand:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def hand() -> Hand:
    return Hand()


@pytest.fixture
def device(tmp_path: Path, hand: Hand) -> Device:
    return Device("cuda:0", folder=tmp_path, clock=hand)


def test_a_moment_belongs_to_the_innermost_stage(hand: Hand) -> None:
    clock = StageClock(clock=hand)
    with clock.open():
        hand.now += 1  # before any stage: nobody's
        with staged(Stage.TIMING):
            hand.now += 2
            with staged(Stage.BASELINE):
                hand.now += 4
            hand.now += 8
    assert clock.seconds == {Stage.TIMING: 10, Stage.BASELINE: 4}


def test_a_stage_that_fails_is_counted_and_the_one_around_it_goes_on(hand: Hand) -> None:
    clock = StageClock(clock=hand)
    with clock.open(), staged(Stage.CORRECTNESS):
        with contextlib.suppress(InterruptedError), staged(Stage.START):
            hand.now += 1
            raise InterruptedError
        hand.now += 2
    assert clock.seconds == {Stage.START: 1, Stage.CORRECTNESS: 2}


def test_stages_that_nobody_counts_are_free_of_charge(hand: Hand) -> None:
    with staged(Stage.BUILD):
        hand.now += 1
    clock = StageClock(clock=hand)
    thread = threading.Thread(target=lambda: staged(Stage.BUILD).__enter__())
    with clock.open():
        thread.start()
        thread.join()
    assert clock.seconds == {}


def test_the_device_is_held_once_however_often_a_thread_takes_it(
    device: Device, hand: Hand
) -> None:
    clock = StageClock(device, clock=hand)
    with device.timing(Clock.STREAM_EVENTS):
        hand.now += 1
        with device.running():
            hand.now += 2
    with device.building():
        hand.now += 4
    assert clock.device_seconds == 3


def test_turns_of_other_threads_and_of_earlier_work_are_not_charged(
    device: Device, hand: Hand
) -> None:
    def run() -> None:
        with device.running():
            hand.now += 5

    run()
    clock = StageClock(device, clock=hand)
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert clock.device_seconds == 0
    assert device.turns() == (5, 0)


def test_waiting_for_the_device_is_not_the_stages_time(device: Device, hand: Hand) -> None:
    taken, done = threading.Event(), threading.Event()

    def hold() -> None:
        with device.running():
            taken.set()
            done.wait(5)
            hand.now += 7

    other = threading.Thread(target=hold)
    other.start()
    taken.wait(5)
    clock = StageClock(device, clock=hand)
    with clock.open(), staged(Stage.TIMING):
        hand.now += 1
        threading.Timer(0.05, done.set).start()
        with device.running():
            hand.now += 2
    other.join(5)
    assert clock.seconds == {Stage.TIMING: 3, Stage.WAITING: 7}
    assert clock.device_seconds == 2
