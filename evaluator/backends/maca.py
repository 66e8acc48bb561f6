"""MACA C++ on a MetaX GPU: the protocol of ``cuda``, with ``mxcc`` for nvcc.

MetaX's torch presents its device as ``cuda``, with streams, events and graphs of the same
names, so workers, clocks and checks are those of an NVIDIA GPU. Written after MetaX's public
guides and never run on one: no such GPU was at hand. A reference may be CUDA C++ itself
(``SOURCE`` and ``SIGNATURES`` in ``reference.py``), which the toolkit's bridge compiles. The
problems of Kernel-Smith's MACA evaluation are in ``benchmarks/maca45``.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from evaluator.backends import Language, NativeBuild
from evaluator.backends.cuda import LAUNCH_ERROR as CUDA_LAUNCH_ERROR
from evaluator.backends.triton import gpu_clock
from evaluator.candidate import BackendName
from evaluator.errors import BackendUnavailable
from evaluator.evaluation import Clock
from evaluator.problem import Regime

FLAGS = ("-x", "maca", "-offload-arch", "native", "-std=c++17", "-O3", "-fPIC", "-shared")
CUDA_FLAGS = ("-std=c++17", "-O3", "-fPIC", "-shared")
_USUAL_ROOT = Path("/opt/maca")
_DRIVER = Path("/opt/mxdriver")
_CONTROL_NODE = Path("/dev/mxcd")
_LAUNCH_ERROR = """
#include <mc_runtime.h>
extern "C" const char* ksmith_launch_error() {
  const mcError_t error = mcGetLastError();
  return error == mcSuccess ? nullptr : mcGetErrorString(error);
}
"""


@dataclass(frozen=True)
class MacaBackend:
    """MACA C++17, timed by graph replay."""

    name: ClassVar[BackendName] = BackendName("maca")
    language: ClassVar[Language] = Language.CUDA
    title: ClassVar[str] = "MACA C++ on a MetaX GPU"
    memory_checker: ClassVar[None] = None
    build: NativeBuild
    reference_build: NativeBuild
    gpu: bool
    lacks: str
    folders: tuple[Path, ...]
    variables: tuple[tuple[str, str], ...]
    device: str = "cuda"
    interpreted: bool = False
    target: None = None

    @classmethod
    def detect(cls) -> MacaBackend:
        """Return the backend of the MACA toolkit in ``MACA_PATH`` or ``/opt/maca``.

        Raises:
            BackendUnavailable: there is no mxcc.
        """
        root = Path(os.environ.get("MACA_PATH") or _USUAL_ROOT)
        mxcc = root / "mxgpu_llvm" / "bin" / "mxcc"
        if not os.access(mxcc, os.X_OK):
            raise BackendUnavailable(
                f"MetaX's compiler is not at {mxcc}; install the MACA toolkit "
                "(https://developer.metax-tech.com) or set MACA_PATH to its folder, or choose "
                "another backend with --backend"
            )
        gpu = _CONTROL_NODE.exists()
        return cls(
            build=build_with(root),
            reference_build=build_cuda_with(root),
            gpu=gpu,
            lacks="" if gpu else f"there is no MetaX GPU here ({_CONTROL_NODE})",
            folders=tuple(folder for folder in (root, _DRIVER) if folder.is_dir()),
            variables=_variables(root),
        )

    def clock(self, regime: Regime) -> Clock:
        """Graph replay for the device's own time, events around launches otherwise."""
        return gpu_clock(regime)


def build_with(root: Path) -> NativeBuild:
    """Return how the toolkit in ``root`` compiles a candidate."""
    mxcc = root / "mxgpu_llvm" / "bin" / "mxcc"
    return NativeBuild(
        command=(str(mxcc), *FLAGS, f"--maca-path={root}", "-o", "native.so", "source.cpp"),
        source_name="source.cpp",
        device="cuda",
        epilogue=_LAUNCH_ERROR,
        takes_stream=True,
    )


def build_cuda_with(root: Path) -> NativeBuild:
    """Return how the toolkit's bridge compiles a reference in CUDA C++, as in the paper."""
    cucc = root / "tools" / "cu-bridge" / "bin" / "cucc"
    return NativeBuild(
        command=(str(cucc), *CUDA_FLAGS, "-o", "native.so", "source.cu"),
        source_name="source.cu",
        device="cuda",
        epilogue=CUDA_LAUNCH_ERROR,
        takes_stream=True,
    )


def _variables(root: Path) -> tuple[tuple[str, str], ...]:
    libraries = (root / "lib", root / "mxgpu_llvm" / "lib", _DRIVER / "lib")
    return (("MACA_PATH", str(root)), ("LD_LIBRARY_PATH", ":".join(map(str, libraries))))


BACKEND = MacaBackend
