"""Who may use a device: threads of one process, and processes of one machine."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from evaluator.device import Device
from evaluator.evaluation import Clock

Turn = Callable[[Device], AbstractContextManager[None]]
BUILDING: Turn = lambda device: device.building()  # noqa: E731
RUNNING: Turn = lambda device: device.running()  # noqa: E731
REPLAYING: Turn = lambda device: device.timing(Clock.GRAPH_REPLAY)  # noqa: E731
LAUNCHING: Turn = lambda device: device.timing(Clock.STREAM_EVENTS)  # noqa: E731


@pytest.fixture
def device(tmp_path: Path) -> Device:
    return Device("cuda:0", folder=tmp_path)


def goes_on_beside(device: Device, first: Turn, second: Turn) -> bool:
    """Whether ``second`` may start in another thread while ``first`` goes on."""
    entered = threading.Event()

    def other() -> None:
        with second(device):
            entered.set()

    with first(device):
        thread = threading.Thread(target=other)
        thread.start()
        beside = entered.wait(0.2)
    thread.join(5)
    assert entered.is_set(), "the second never came to its turn"
    return beside


@pytest.mark.parametrize(
    ("first", "second", "beside"),
    [
        (BUILDING, BUILDING, True),
        (BUILDING, RUNNING, True),
        (BUILDING, REPLAYING, True),
        (BUILDING, LAUNCHING, False),
        (RUNNING, RUNNING, False),
        (RUNNING, REPLAYING, False),
        (REPLAYING, REPLAYING, False),
        (REPLAYING, BUILDING, True),
        (LAUNCHING, BUILDING, False),
        (LAUNCHING, RUNNING, False),
    ],
)
def test_only_what_disturbs_a_measurement_waits_for_it(
    device: Device, first: Turn, second: Turn, beside: bool
) -> None:
    assert goes_on_beside(device, first, second) is beside


@pytest.mark.parametrize("timing", [REPLAYING, LAUNCHING])
def test_who_times_may_look_into_what_was_timed(device: Device, timing: Turn) -> None:
    with timing(device), device.running(), device.building():
        pass


def test_a_failure_gives_the_device_back(device: Device) -> None:
    for turn in (BUILDING, RUNNING, REPLAYING, LAUNCHING):
        with pytest.raises(ZeroDivisionError), turn(device):
            1 / 0  # noqa: B018
    assert goes_on_beside(device, BUILDING, REPLAYING)


def test_another_process_waits_for_the_device(device: Device, tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from evaluator.device import Device\n"
        "with Device('cuda:0', folder=Path(sys.argv[1])).running(): print('mine', flush=True)"
    )
    with device.running():
        other = subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True
        )
        with pytest.raises(subprocess.TimeoutExpired):
            other.wait(1.5)
    assert other.communicate(timeout=10)[0] == "mine\n"
