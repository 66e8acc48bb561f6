"""Triton on an NVIDIA GPU, or, where there is none, in the interpreter and never timed.

Without a GPU a candidate is checked for correctness by the interpreter on CPU tensors and
compiled for sm_90 by triton's own compiler; its status says that it was not measured.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from evaluator import machine
from evaluator.backends import KernelTarget, Language, MemoryChecker
from evaluator.candidate import BackendName
from evaluator.errors import BackendUnavailable
from evaluator.evaluation import Clock
from evaluator.problem import Regime

HOPPER = KernelTarget(name="sm_90", backend="cuda", arch=90, warp_size=32)


@dataclass(frozen=True)
class TritonBackend:
    """``@triton.jit`` kernels."""

    name: ClassVar[BackendName] = BackendName.TRITON
    language: ClassVar[Language] = Language.TRITON
    title: ClassVar[str] = "Triton on an NVIDIA GPU"
    memory_checker: ClassVar[MemoryChecker] = MemoryChecker.COMPUTE_SANITIZER
    device: str
    gpu: bool
    interpreted: bool
    lacks: str
    build: None = None
    reference_build: None = None
    target: KernelTarget = HOPPER
    folders: tuple[Path, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()

    @classmethod
    def detect(cls) -> TritonBackend:
        """Return the backend on the GPU if there is one, else on the interpreter.

        Raises:
            BackendUnavailable: triton is not installed.
        """
        require_triton()
        if machine.gpus():
            return cls(device="cuda", gpu=True, interpreted=False, lacks="")
        return cls(device="cpu", gpu=False, interpreted=True, lacks="there is no GPU here")

    def clock(self, regime: Regime) -> Clock:
        """Graph replay for the device's own time, events around launches otherwise."""
        return gpu_clock(regime)


def require_triton() -> None:
    """Do nothing where triton is installed.

    Raises:
        BackendUnavailable: it is not.
    """
    if machine.package_version("triton") is None:
        raise BackendUnavailable("triton is not installed; `pip install triton` (Linux)")


def gpu_clock(regime: Regime) -> Clock:
    """Return the clock of every device that torch calls ``cuda``."""
    return Clock.GRAPH_REPLAY if regime is Regime.DEVICE else Clock.STREAM_EVENTS


BACKEND = TritonBackend
