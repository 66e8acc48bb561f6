"""What the GPU's driver says while we measure: its clock, why it is held back, who else is there.

Read through NVML, from outside every worker, so no candidate can change it. Two blocks can be
compared where the device ran at one clock during both; the readings right before a block are
compared with each other, and those right after, because an idle device may rest at another
clock than a busy one. Where there is no NVIDIA driver there is nothing to read and no gate.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from typing import Any, Protocol

from evaluator.client import BlockTime
from evaluator.sandbox.memory import tree

HELD_BACK = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x20: "too warm",
    0x40: "too warm (hardware)",
    0x80: "power brake",
}
"""NVML's reasons for which a clock is lower than asked for; idling and settings are none."""


class Monitor(Protocol):
    """The driver's word on one device."""

    def clock_mhz(self) -> int | None:
        """The clock of the multiprocessors now; None if the driver does not tell."""

    def held_back(self) -> frozenset[str]:
        """Why the clock is lower than it could be, in words; empty if it is not."""

    def users(self) -> frozenset[int]:
        """The processes that compute on the device, by the host's numbers."""


class NvmlMonitor:
    """Asks NVML; what it does not answer is None or empty."""

    def __init__(self, nvml: Any, index: int) -> None:
        """Open device ``index`` with the module ``pynvml``, or one like it."""
        self._nvml = nvml
        nvml.nvmlInit()
        self._handle = nvml.nvmlDeviceGetHandleByIndex(index)

    def clock_mhz(self) -> int | None:
        """The clock of the multiprocessors now."""
        answer = self._ask(self._nvml.nvmlDeviceGetClockInfo, self._nvml.NVML_CLOCK_SM)
        return None if answer is None else int(answer)

    def held_back(self) -> frozenset[str]:
        """Why the clock is lower than it could be."""
        bits = self._ask(self._nvml.nvmlDeviceGetCurrentClocksThrottleReasons) or 0
        return frozenset(word for bit, word in HELD_BACK.items() if bits & bit)

    def users(self) -> frozenset[int]:
        """The processes that compute on the device."""
        found = self._ask(self._nvml.nvmlDeviceGetComputeRunningProcesses) or ()
        return frozenset(process.pid for process in found)

    def _ask(self, question: Callable[..., Any], *arguments: Any) -> Any:
        with suppress(self._nvml.NVMLError):
            return question(self._handle, *arguments)
        return None


def open_monitor(device: str) -> Monitor | None:
    """Return the monitor of ``cuda`` or ``cuda:N``; None without a driver or for another device."""
    if not device.startswith("cuda"):
        return None
    import pynvml

    with suppress(pynvml.NVMLError):
        return NvmlMonitor(pynvml, int(device.partition(":")[2] or 0))
    return None


def clock_moved(blocks: Collection[BlockTime], share: float) -> bool:
    """Whether the device's clock differed between ``blocks`` by more than ``share``."""
    readings = [block.clocks_mhz for block in blocks if block.clocks_mhz is not None]
    before, after = [b for b, _ in readings], [a for _, a in readings]
    return any(_spread(side) > share for side in (before, after))


def strangers(monitor: Monitor, own: Iterable[int] | None = None) -> tuple[int, ...]:
    """Return the processes on the device that are not ours.

    Args:
        monitor: says who is there.
        own: by default this process and all that it started. Where none of them is among those
            on the device, the driver counts processes in another namespace, and nobody can tell.
    """
    users = monitor.users()
    ours = users.intersection(tree(os.getpid()) if own is None else own)
    return tuple(sorted(users - ours)) if ours else ()


def _spread(clocks_mhz: Collection[int]) -> float:
    return max(clocks_mhz) / max(1, min(clocks_mhz)) - 1 if clocks_mhz else 0.0
