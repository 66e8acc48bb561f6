"""Backends: how a candidate's source becomes something that runs, and on what.

A backend says which device its workers use, what they compile, and which clock times them.
Tasks, orchestration and statistics know nothing else of the device.
"""

from __future__ import annotations

from typing import Protocol

from evaluator.candidate import BackendName
from evaluator.errors import BackendUnavailable
from evaluator.evaluation import Clock
from evaluator.problem import Regime


class Backend(Protocol):
    """What the evaluator must know of a language and its device."""

    @property
    def name(self) -> BackendName:
        """The candidates' language."""

    @property
    def native(self) -> bool:
        """Whether a candidate holds C++ that the worker compiles and binds."""

    @property
    def device(self) -> str:
        """Where inputs lie, as torch spells it."""

    @property
    def gpu(self) -> bool:
        """Whether the workers' sandboxes see the GPU."""

    @property
    def interpreted(self) -> bool:
        """Whether kernels run in Triton's interpreter: correctness, and no time at all."""

    def clock(self, regime: Regime) -> Clock:
        """How blocks are timed under ``regime``."""


def choose_backend(name: BackendName) -> Backend:
    """Return the backend for this machine.

    Raises:
        BackendUnavailable: its compiler is not on this machine.
    """
    from evaluator.backends.cpp import CppBackend
    from evaluator.backends.triton import TritonBackend

    match name:
        case BackendName.CPP:
            return CppBackend.detect()
        case BackendName.TRITON:
            return TritonBackend.detect()
    raise BackendUnavailable(f"no backend is called {name}")
