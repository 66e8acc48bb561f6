"""Compiles a kernel file's C++ at its first use and binds it through ctypes.

The text below this docstring is copied into every kernel file of the ``cpp`` backend, so
it imports the standard library and torch alone and knows nothing of ksmith. It follows
the rules by which the kernel was measured: the same compiler flags, the same meaning of
the C types (``evaluator/worker/native.py``; a test compares the two).
"""

import ctypes
import hashlib
import logging
import os
import platform
import shutil
import stat
import subprocess
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

_COMPILER = "g++"
_FLAGS = (
    *("-std=c++17", "-O3", "-march=native", "-fopenmp", "-fPIC", "-shared"),
    *("-fno-math-errno", "-fno-trapping-math"),
)
_COMPILE_SECONDS = 120

_NUMBERS = {
    "int64_t": ctypes.c_int64,
    "int32_t": ctypes.c_int32,
    "double": ctypes.c_double,
    "float": ctypes.c_float,
    "bool": ctypes.c_bool,
}
_POINTERS = {
    "float*": (torch.float32,),
    "double*": (torch.float64,),
    "int64_t*": (torch.int64,),
    "int32_t*": (torch.int32,),
    "int16_t*": (torch.int16,),
    "int8_t*": (torch.int8,),
    "uint8_t*": (torch.uint8,),
    "bool*": (torch.bool,),
    "uint16_t*": (torch.bfloat16, torch.float16),
}


class NativeLibrary:
    """C++ functions, compiled once per user, processor and source, then kept on disk.

    ``library.name(...)`` calls ``extern "C" name``: CPU tensors for pointers, numbers for
    numbers. Where nothing can be compiled, ``ready()`` is False and stays so.
    """

    def __init__(self, source: str, signatures: dict[str, tuple[str, ...]]) -> None:
        self._source = source
        self._signatures = signatures
        self._lock = threading.Lock()
        self._failed = False
        self._loaded = False

    def ready(self) -> bool:
        """Whether the functions can be called; the first call compiles them (about a second)."""
        if not self._loaded and not self._failed:
            with self._lock:
                self._load_once()
        return self._loaded

    def _load_once(self) -> None:
        if self._loaded or self._failed:
            return
        try:
            library = ctypes.CDLL(str(_compiled(self._source)))
            if hasattr(library, "omp_set_num_threads"):  # its OpenMP is not torch's own
                library.omp_set_num_threads(torch.get_num_threads())
            for name, types in self._signatures.items():
                setattr(self, name, _bound(library, name, types))
            self._loaded = True
        except (OSError, AttributeError, subprocess.SubprocessError) as error:
            self._failed = True
            detail = getattr(error, "stderr", None) or error
            logging.getLogger(__name__).warning("kernel not compiled, slower path kept: %s", detail)


def _compiled(source: str) -> Path:
    """Path of the shared library for ``source``; compiled into a temporary name, then renamed."""
    compiler = shutil.which(_COMPILER)
    if compiler is None:
        raise FileNotFoundError(f"no C++ compiler {_COMPILER!r} on PATH")
    facts = "\n".join((source, compiler, *_FLAGS, _processor()))
    library = _cache_folder() / f"{hashlib.sha256(facts.encode()).hexdigest()[:32]}.so"
    if library.exists():
        return library
    with tempfile.TemporaryDirectory(dir=library.parent) as folder:
        made = Path(folder) / "kernel.so"
        subprocess.run(
            [compiler, *_FLAGS, "-x", "c++", "-", "-o", str(made)],
            input=source,
            text=True,
            capture_output=True,
            check=True,
            timeout=_COMPILE_SECONDS,
        )
        made.replace(library)
    return library


def _cache_folder() -> Path:
    """A folder that only this user can write to, since what lies in it is executed."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = Path(base) / "fused-kernels"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.stat()
    if status.st_uid != os.getuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(f"{folder} can be written to by others")
    return folder


def _processor() -> str:
    """What ``-march=native`` depends on: a home folder may be shared by unlike machines."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine() + platform.processor()
    kinds = ("model name", "flags", "Features", "CPU part")
    return "\n".join(sorted({line for line in lines if line.startswith(kinds)}))


def _bound(library: ctypes.CDLL, name: str, types: tuple[str, ...]) -> Callable[..., None]:
    """A Python function that checks and converts its arguments and calls ``name``."""
    function = getattr(library, name)
    function.restype = None
    spelled = [_plain(c_type) for c_type in types]
    pointers = [_POINTERS.get(c_type) for c_type in spelled]
    function.argtypes = [_NUMBERS.get(c_type, ctypes.c_void_p) for c_type in spelled]

    def call(*arguments: Any) -> None:
        values = []
        for argument, dtypes in zip(arguments, pointers, strict=True):
            if dtypes is None:
                values.append(argument)
                continue
            if argument.device.type != "cpu" or argument.dtype not in dtypes:
                raise TypeError(f"{name} needs a CPU tensor of {dtypes}, got {argument.dtype}")
            values.append(argument.data_ptr())
        function(*values)

    return call


def _plain(c_type: str) -> str:
    """``const float *restrict`` and its like as ``float*``."""
    words = c_type.replace("*", " * ").split()
    qualifiers = ("const", "restrict", "__restrict__", "__restrict")
    return "".join(w for w in words if w not in qualifiers).removeprefix("std::")
