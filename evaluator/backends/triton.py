"""Triton on an NVIDIA GPU, or, where there is none, in the interpreter and never timed.

Without a GPU a candidate is checked for correctness by the interpreter on CPU tensors and
compiled for sm_90 by triton's own compiler; its status says that it was not measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from evaluator import machine
from evaluator.candidate import BackendName
from evaluator.errors import BackendUnavailable
from evaluator.evaluation import Clock
from evaluator.problem import Regime

CAPABILITY = 90
"""What kernels are compiled for where no GPU is: Hopper."""


@dataclass(frozen=True)
class TritonBackend:
    """``@triton.jit`` kernels."""

    device: str
    gpu: bool
    interpreted: bool
    name: ClassVar[BackendName] = BackendName.TRITON
    native: bool = False

    @classmethod
    def detect(cls) -> TritonBackend:
        """Return the backend on the GPU if there is one, else on the interpreter.

        Raises:
            BackendUnavailable: triton is not installed.
        """
        if machine.package_version("triton") is None:
            raise BackendUnavailable("triton is not installed; `pip install triton` (Linux)")
        found = bool(machine.gpus())
        return cls(device="cuda" if found else "cpu", gpu=found, interpreted=not found)

    def clock(self, regime: Regime) -> Clock:
        """Graph replay for the device's own time, events around launches otherwise."""
        return Clock.GRAPH_REPLAY if regime is Regime.DEVICE else Clock.STREAM_EVENTS
