"""Triton for AMD's gfx942 (MI300): checked by the interpreter, compiled, never timed.

Triton's wheel brings its AMD compiler, which needs no device, so a candidate's kernels are
compiled to a code object and their registers told. An AMD GPU is not measured on: the
sandbox does not open one yet.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from evaluator.backends import KernelTarget, Language
from evaluator.backends.triton import gpu_clock, require_triton
from evaluator.candidate import BackendName
from evaluator.evaluation import Clock
from evaluator.problem import Regime

MI300 = KernelTarget(name="gfx942", backend="hip", arch="gfx942", warp_size=64)


@dataclass(frozen=True)
class HipBackend:
    """``@triton.jit`` kernels for an AMD GPU."""

    name: ClassVar[BackendName] = BackendName("hip")
    language: ClassVar[Language] = Language.TRITON
    title: ClassVar[str] = "Triton on an AMD GPU"
    memory_checker: ClassVar[None] = None
    device: str = "cpu"
    gpu: bool = False
    interpreted: bool = True
    lacks: str = "ksmith times no AMD GPU yet, it compiles for gfx942"
    build: None = None
    reference_build: None = None
    target: KernelTarget = MI300
    folders: tuple[Path, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()

    @classmethod
    def detect(cls) -> HipBackend:
        """Return the backend, which is the same on every machine.

        Raises:
            BackendUnavailable: triton is not installed.
        """
        require_triton()
        return cls()

    def clock(self, regime: Regime) -> Clock:
        """As of every GPU, where there will be one."""
        return gpu_clock(regime)


BACKEND = HipBackend
