"""What the GPU's driver says while we measure: its clock, why it is held back, who else is there.

Read through NVML, from outside every worker, so no candidate can change it. Two blocks can be
compared where the device ran at one clock during both; the readings right before a block are
compared with each other, and those right after, because an idle device may rest at another
clock than a busy one. Where there is no NVIDIA driver there is nothing to read and no gate.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from evaluator.client import BlockTime

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

    def lost(self) -> str | None:
        """Why nothing runs on the device any more, in the driver's words; None if it may."""


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

    def lost(self) -> str | None:
        """Why nothing runs on the device any more."""
        fatal = (self._nvml.NVML_ERROR_GPU_IS_LOST, self._nvml.NVML_ERROR_RESET_REQUIRED)
        try:
            self._nvml.nvmlDeviceGetMemoryInfo(self._handle)
        except self._nvml.NVMLError as error:
            return str(error) if error.value in fatal else None
        return None

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


def strangers(monitor: Monitor) -> tuple[int, ...]:
    """Return the processes on the device that neither are this one nor descend from it.

    Where none is ours, the driver counts processes in another namespace, and nobody can tell.
    """
    users = monitor.users()
    foreign = {pid for pid in users if not _descends_from(pid, os.getpid())}
    return tuple(sorted(foreign)) if foreign != users else ()


def _descends_from(pid: int, ancestor: int) -> bool:
    """Whether ``/proc`` leads from ``pid`` up to ``ancestor``."""
    while pid > 1 and pid != ancestor:
        try:
            stat = Path(f"/proc/{pid}/stat").read_bytes()
        except OSError:
            return False
        # The command's name, in parentheses, may itself hold spaces and parentheses.
        pid = int(stat.rpartition(b")")[2].split()[1])
    return pid == ancestor


def _spread(clocks_mhz: Collection[int]) -> float:
    return max(clocks_mhz) / max(1, min(clocks_mhz)) - 1 if clocks_mhz else 0.0
