"""CUDA C++ on an NVIDIA GPU: SOURCE is compiled by nvcc in the candidate's sandbox.

How functions are bound, and that each takes the stream it launches on, is told in
``evaluator/worker/native.py``. Kernels are compiled for the GPU that is here; without one, for
Hopper, and then nothing more is said of a candidate than whether it compiles and what its
kernels take: CUDA C++ has no interpreter.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from evaluator import machine
from evaluator.backends import Language, MemoryChecker, NativeBuild
from evaluator.backends.triton import gpu_clock
from evaluator.candidate import BackendName
from evaluator.errors import BackendUnavailable
from evaluator.evaluation import Clock
from evaluator.problem import Regime

# Precision is the reference's: no --use_fast_math. ptxas -v tells registers and spills.
FLAGS = ("-std=c++17", "-O3", "-shared", "-Xcompiler", "-fPIC", "-Xptxas", "-v")
_HOPPER = "9.0"
_ARCHITECTURE_SPECIFIC = 9
"""From this major version on, code for one architecture alone may use all of it (sm_90a)."""
LAUNCH_ERROR = """
extern "C" const char* ksmith_launch_error() {
  const cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}
"""


@dataclass(frozen=True)
class CudaBackend:
    """CUDA C++17, timed by graph replay."""

    name: ClassVar[BackendName] = BackendName.CUDA
    language: ClassVar[Language] = Language.CUDA
    title: ClassVar[str] = "CUDA C++ on an NVIDIA GPU"
    memory_checker: ClassVar[MemoryChecker] = MemoryChecker.COMPUTE_SANITIZER
    build: NativeBuild
    gpu: bool
    lacks: str
    folders: tuple[Path, ...]
    device: str = "cuda"
    interpreted: bool = False
    target: None = None
    variables: tuple[tuple[str, str], ...] = ()

    @classmethod
    def detect(cls) -> CudaBackend:
        """Return the backend for the first GPU, or, without one, to compile for Hopper.

        Raises:
            BackendUnavailable: there is no nvcc.
        """
        nvcc = find_nvcc()
        if nvcc is None:
            raise BackendUnavailable(
                "nvcc is not on this machine; install the CUDA toolkit of torch's version "
                "(https://developer.nvidia.com/cuda-downloads) and put its bin on PATH or its "
                "folder in CUDA_HOME, or choose another backend with --backend"
            )
        gpus = machine.gpus()
        return cls(
            build=build_for(nvcc, gpus[0].compute_capability if gpus else _HOPPER),
            gpu=bool(gpus),
            lacks="" if gpus else "there is no NVIDIA GPU here",
            folders=_outside_usr(nvcc),
        )

    @property
    def reference_build(self) -> NativeBuild:
        """As a candidate's."""
        return self.build

    def clock(self, regime: Regime) -> Clock:
        """Graph replay for the device's own time, events around launches otherwise."""
        return gpu_clock(regime)


def build_for(nvcc: Path, capability: str) -> NativeBuild:
    """Return how to compile for the compute capability (such as ``9.0``)."""
    number = capability.replace(".", "")
    specific = int(capability.partition(".")[0]) >= _ARCHITECTURE_SPECIFIC
    number = f"{number}a" if specific else number
    code = f"-gencode=arch=compute_{number},code=sm_{number}"
    return NativeBuild(
        command=(str(nvcc), *FLAGS, code, "-o", "native.so", "source.cu"),
        source_name="source.cu",
        device="cuda",
        epilogue=LAUNCH_ERROR,
        takes_stream=True,
    )


def find_nvcc() -> Path | None:
    """Return the nvcc of ``CUDA_HOME``, of PATH or of ``/usr/local/cuda``, None without one."""
    return next((path for path in _places() if os.access(path, os.X_OK)), None)


def _places() -> Iterator[Path]:
    home = os.environ.get("CUDA_HOME")
    if home:
        yield Path(home) / "bin" / "nvcc"
    on_path = shutil.which("nvcc")
    if on_path:
        yield Path(on_path).absolute()
    yield Path("/usr/local/cuda/bin/nvcc")


def _outside_usr(nvcc: Path) -> tuple[Path, ...]:
    """The toolkit's folder, by the name in the command and by its own, where not in ``/usr``."""
    toolkits = dict.fromkeys((nvcc.parent.parent, nvcc.resolve().parent.parent))
    return tuple(folder for folder in toolkits if not folder.is_relative_to("/usr"))


BACKEND = CudaBackend
