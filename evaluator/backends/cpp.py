"""C++ on the CPU: one ``extern "C"`` library per candidate, compiled by g++ in its sandbox.

``evaluator/worker/native.py`` compiles ``SOURCE`` in about half a second and puts the bound
functions into the module as ``native``. An integrated patch builds the same source in the
same way, so that what was measured is what is shipped.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from evaluator.backends import Language, MemoryChecker, NativeBuild
from evaluator.candidate import BackendName
from evaluator.errors import BackendUnavailable
from evaluator.evaluation import Clock
from evaluator.problem import Regime

COMPILER = "g++"
FLAGS = (
    "-std=c++17",
    "-O3",
    "-march=native",
    "-fopenmp",
    "-fPIC",
    "-shared",
    "-fno-math-errno",
    "-fno-trapping-math",
)
"""The one place; ``integrations/patch/runtime/native.py`` ships a copy that a test compares."""

_BUILD = NativeBuild(
    command=(COMPILER, *FLAGS, "-o", "native.so", "source.cpp"),
    source_name="source.cpp",
    device="cpu",
)


@dataclass(frozen=True)
class CppBackend:
    """C++17 with OpenMP, timed by the wall clock on pinned cores."""

    name: ClassVar[BackendName] = BackendName.CPP
    language: ClassVar[Language] = Language.CPP
    title: ClassVar[str] = "C++ on the CPU"
    memory_checker: ClassVar[MemoryChecker] = MemoryChecker.ADDRESS_SANITIZER
    device: str = "cpu"
    gpu: bool = False
    interpreted: bool = False
    lacks: str = ""
    build: NativeBuild = _BUILD
    target: None = None
    folders: tuple[Path, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()

    @classmethod
    def detect(cls) -> CppBackend:
        """Return the backend.

        Raises:
            BackendUnavailable: there is no compiler.
        """
        if shutil.which(COMPILER) is None:
            raise BackendUnavailable(
                f"{COMPILER} is not on this machine; install it (Debian, Ubuntu: "
                "`apt-get install g++`), or choose another backend with --backend"
            )
        return cls()

    @property
    def reference_build(self) -> NativeBuild:
        """As a candidate's."""
        return self.build

    def clock(self, regime: Regime) -> Clock:  # noqa: ARG002 (a CPU has one regime)
        """Wall time: a call on a CPU has no launch to leave out."""
        return Clock.WALL_PINNED


BACKEND = CppBackend
