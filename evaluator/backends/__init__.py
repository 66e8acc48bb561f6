"""Backends: how a candidate's source becomes something that runs, and on what.

A backend says what its source compiles with, which device its workers use, which clock times
them and what is missing here. Tasks, orchestration and statistics know nothing else of the
device. Each is one module: here, named as the backend, with its class as ``BACKEND``; or in
another package, which names the class as an entry point of the group ``ksmith.backends``.
"""

from __future__ import annotations

import pkgutil
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib import import_module, metadata
from pathlib import Path
from typing import ClassVar, Protocol, Self

from evaluator.candidate import BackendName
from evaluator.errors import BackendUnavailable
from evaluator.evaluation import Clock
from evaluator.problem import Regime

ENTRY_POINTS = "ksmith.backends"


class Language(StrEnum):
    """What a candidate's kernels are written in, and so which source policy reads them."""

    TRITON = "triton"
    CPP = "cpp"
    CUDA = "cuda"
    """CUDA C++ and its dialects."""

    @property
    def native(self) -> bool:
        """Whether the kernels are text in ``SOURCE``, bound through ``SIGNATURES``."""
        return self is not Language.TRITON


class MemoryChecker(StrEnum):
    """The programs that watch a candidate's memory accesses."""

    ADDRESS_SANITIZER = "AddressSanitizer"
    """Of gcc, with its undefined behaviour checks, for code on the CPU."""
    COMPUTE_SANITIZER = "compute-sanitizer"
    """NVIDIA's, for kernels on its GPUs."""


@dataclass(frozen=True)
class NativeBuild:
    """How a worker makes a library of a candidate's SOURCE, and what may be passed to it."""

    command: tuple[str, ...]
    """Run in a folder of its own that holds the source; leaves ``native.so`` there."""
    source_name: str
    device: str
    """Where the tensors of pointer parameters lie, as ``torch.device.type`` spells it."""
    epilogue: str = ""
    """Appended to the source. May define ``extern "C" const char* ksmith_launch_error()``,
    which is asked after every call and returns null where the launch was accepted."""
    takes_stream: bool = False
    """Whether every function must take the stream that it launches on (as ``void*``)."""


@dataclass(frozen=True)
class KernelTarget:
    """The device that Triton kernels are compiled for where none is here."""

    name: str
    """For people, such as ``sm_90``."""
    backend: str
    """Triton's name of the vendor's stack: ``cuda`` or ``hip``."""
    arch: int | str
    warp_size: int


class Backend(Protocol):
    """What the evaluator must know of a language and its device on this machine."""

    name: ClassVar[BackendName]
    language: ClassVar[Language]
    title: ClassVar[str]
    """The candidates and where they run, for people: ``C++ on the CPU``."""
    memory_checker: ClassVar[MemoryChecker | None]
    """What the deep check runs candidates under (``evaluator/deep.py``)."""

    @classmethod
    def detect(cls) -> Self:
        """Look at this machine; import no torch and start no device.

        Raises:
            BackendUnavailable: nothing can be said of a candidate here; the message names
                what is missing and the remedy.
        """

    @property
    def device(self) -> str:
        """Where inputs lie, as torch spells it."""

    @property
    def gpu(self) -> bool:
        """Whether the workers' sandboxes see the GPU."""

    @property
    def interpreted(self) -> bool:
        """Whether kernels run in Triton's interpreter: correctness, and no time at all."""

    @property
    def lacks(self) -> str:
        """Why candidates are not measured here, as a clause; '' where they are."""

    @property
    def build(self) -> NativeBuild | None:
        """How SOURCE is compiled, None where a candidate has none."""

    @property
    def reference_build(self) -> NativeBuild | None:
        """How a reference with a SOURCE of its own is compiled, None where it cannot be."""

    @property
    def target(self) -> KernelTarget | None:
        """What interpreted kernels are compiled for."""

    @property
    def folders(self) -> tuple[Path, ...]:
        """Where compiler and driver live, if outside ``/usr``; workers see them read-only."""

    @property
    def variables(self) -> tuple[tuple[str, str], ...]:
        """What the environment of workers must say besides."""

    def clock(self, regime: Regime) -> Clock:
        """How blocks are timed under ``regime``."""


def runs_here(backend: Backend) -> bool:
    """Whether candidates can be run at all; if not, they are compiled and no more is said."""
    return not backend.lacks or backend.interpreted


def backend_names() -> tuple[BackendName, ...]:
    """Return every backend that is installed, those of ksmith first."""
    own = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return tuple(BackendName(name) for name in dict.fromkeys((*own, *sorted(_plugins()))))


@cache
def backend_class(name: BackendName) -> type[Backend]:
    """Return the class of the backend ``name``.

    Raises:
        BackendUnavailable: there is none, or its package does not import.
    """
    if name not in backend_names():
        known = ", ".join(backend_names())
        raise BackendUnavailable(
            f"no backend is called {name!r}; choose one of {known}, or install the package "
            f"that brings it (entry point {ENTRY_POINTS!r})"
        )
    plugin = _plugins().get(name)
    if plugin is None:
        found: type[Backend] = import_module(f"{__name__}.{name}").BACKEND
        return found
    try:
        found = plugin.load()
    except Exception as error:  # a stranger's package may fail in any way
        raise BackendUnavailable(
            f"the backend {name!r} of {plugin.value} does not import: {error}; update or remove "
            "that package"
        ) from error
    return found


def language_of(name: BackendName) -> Language:
    """Return what the backend's candidates are written in.

    Raises:
        BackendUnavailable: no such backend is installed.
    """
    return backend_class(name).language


def choose_backend(name: BackendName) -> Backend:
    """Return the backend as it is on this machine.

    Raises:
        BackendUnavailable: it is not installed, or what it needs is missing.
    """
    return backend_class(name).detect()


def _plugins() -> dict[str, metadata.EntryPoint]:
    return {point.name: point for point in metadata.entry_points(group=ENTRY_POINTS)}
