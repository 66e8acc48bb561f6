"""A backend as another package would bring it: this file and one entry point are all it takes.

Its NPU is imagined: kernels are C++ that g++ compiles with a vendor's macro, run on the CPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from evaluator.backends import Language, NativeBuild
from evaluator.candidate import BackendName
from evaluator.evaluation import Clock
from evaluator.problem import Regime

_BUILD = NativeBuild(
    command=("g++", "-O2", "-fPIC", "-shared", "-D__NPU__=1", "-o", "native.so", "kernel.cpp"),
    source_name="kernel.cpp",
    device="cpu",
)


@dataclass(frozen=True)
class NpuBackend:
    """C++ for an NPU that is not there."""

    name: ClassVar[BackendName] = BackendName("npu")
    language: ClassVar[Language] = Language.CPP
    title: ClassVar[str] = "C++ on an imagined NPU"
    memory_checker: ClassVar[None] = None
    device: str = "cpu"
    gpu: bool = False
    interpreted: bool = False
    lacks: str = ""
    build: NativeBuild = _BUILD
    reference_build: None = None
    target: None = None
    folders: tuple[Path, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()

    @classmethod
    def detect(cls) -> NpuBackend:
        return cls()

    def clock(self, regime: Regime) -> Clock:
        return Clock.WALL_PINNED
