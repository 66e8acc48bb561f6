"""What the driver says: moved clocks, reasons, strangers; with a driver of ours."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest

from evaluator.client import BlockTime
from evaluator.timing.clocks import NvmlMonitor, clock_moved, open_monitor, strangers


class FakeNvml:
    """Answers like ``pynvml``; what it is not told it does not support."""

    NVML_CLOCK_SM = 1
    NVML_ERROR_GPU_IS_LOST = 15
    NVML_ERROR_RESET_REQUIRED = 16

    class NVMLError(Exception):
        def __init__(self, said: str, value: int = 3) -> None:
            super().__init__(said)
            self.value = value

    def __init__(self, **answers: Any) -> None:
        self._answers = answers

    def nvmlInit(self) -> None:
        return None

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def __getattr__(self, name: str) -> Any:
        def answer(*_: object) -> Any:
            found = self._answers.get(name, self.NVMLError("not supported"))
            if isinstance(found, Exception):
                raise found
            return found

        return answer


def monitor(**answers: Any) -> NvmlMonitor:
    return NvmlMonitor(FakeNvml(**answers), 0)


def users(*pids: int) -> NvmlMonitor:
    found = [SimpleNamespace(pid=pid) for pid in pids]
    return monitor(nvmlDeviceGetComputeRunningProcesses=found)


def block(before_mhz: int, after_mhz: int) -> BlockTime:
    return BlockTime(1.0, 2, 1, clocks_mhz=(before_mhz, after_mhz))


@pytest.mark.parametrize(
    ("first", "second", "moved"),
    [
        ((1980, 1980), (1980, 1980), False),
        ((1980, 1980), (1980, 1755), True),
        ((1980, 1980), (1755, 1980), True),
        ((345, 1980), (345, 1980), False),  # an idle device rests: both blocks began alike
        ((1980, 1980), (1975, 1980), False),
    ],
)
def test_a_clock_has_moved_where_blocks_saw_different_ones(
    first: tuple[int, int], second: tuple[int, int], moved: bool
) -> None:
    assert clock_moved([block(*first), block(*second)], 0.005) is moved


def test_blocks_without_a_reading_are_let_pass() -> None:
    assert not clock_moved([BlockTime(1.0, 2, 1), block(1980, 1980)], 0.005)


def test_a_process_that_is_not_ours_is_a_stranger() -> None:
    assert strangers(users(os.getpid(), 4_000_001)) == (4_000_001,)
    assert strangers(users(os.getpid())) == ()


def test_nobody_is_a_stranger_where_the_driver_counts_in_another_namespace() -> None:
    assert strangers(users(4_000_001, 4_000_002)) == ()


def test_a_driver_that_does_not_answer_is_no_failure() -> None:
    silent = monitor()
    assert silent.clock_mhz() is None
    assert silent.held_back() == frozenset()
    assert strangers(silent) == ()


def test_reasons_for_a_low_clock_are_words_and_idling_is_none() -> None:
    assert monitor(nvmlDeviceGetCurrentClocksThrottleReasons=0x1).held_back() == frozenset()
    found = monitor(nvmlDeviceGetCurrentClocksThrottleReasons=0x4 | 0x20).held_back()
    assert found == {"power cap", "too warm"}


def test_a_processor_has_no_monitor() -> None:
    assert open_monitor("cpu") is None


@pytest.mark.parametrize(
    ("answer", "lost"),
    [
        (FakeNvml.NVMLError("GPU is lost", 15), "GPU is lost"),
        (FakeNvml.NVMLError("GPU requires restart", 16), "GPU requires restart"),
        (FakeNvml.NVMLError("not supported", 3), None),
        (SimpleNamespace(used=1), None),
    ],
)
def test_a_gpu_that_fell_off_the_bus_is_told_from_one_that_says_little(
    answer: object, lost: str | None
) -> None:
    assert monitor(nvmlDeviceGetMemoryInfo=answer).lost() == lost
