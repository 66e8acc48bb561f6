"""Compiling a candidate's C++ or CUDA in the sandbox and binding it through ctypes.

Every exported function is ``extern "C" void``. A pointer parameter takes a tensor on the
backend's device whose dtype fits the C type; bfloat16 and float16 travel as ``uint16_t*``,
in CUDA as ``__nv_bfloat16*`` and ``__half*`` too. Lengths and strides are the candidate's
business: the binding checks types and devices, not bounds.

On a GPU every function has one parameter of the type ``void*`` (or ``cudaStream_t``): the
stream that it launches on. The caller leaves it out and the binding passes torch's current
stream, so that a candidate needs no stream object and its work is ordered, captured and
timed with everything else. An error of the launch is raised after the call:

    SIGNATURES = {"scale": ("const float*", "float*", "int64_t", "void*")}
    native.scale(x, out, x.numel())
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

_POINTERS: Mapping[str, tuple[torch.dtype, ...]] = {
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
_GPU_POINTERS: Mapping[str, tuple[torch.dtype, ...]] = {
    **_POINTERS,
    "__nv_bfloat16*": (torch.bfloat16,),
    "__half*": (torch.float16,),
    "half*": (torch.float16,),
}
_NUMBERS: Mapping[str, Any] = {
    "int64_t": ctypes.c_int64,
    "int32_t": ctypes.c_int32,
    "double": ctypes.c_double,
    "float": ctypes.c_float,
    "bool": ctypes.c_bool,
}


_STREAMS = ("void*", "cudaStream_t")
_LAUNCH_ERROR = "ksmith_launch_error"


class CompileFailed(Exception):
    """The compiler refused the source, or SIGNATURES names what the library lacks."""


def compile_and_bind(
    source: object, signatures: object, build: Mapping[str, Any], *, timeout_seconds: float
) -> tuple[NativeLibrary, str]:
    """Compile ``source`` as ``build`` says (``evaluator.backends.NativeBuild``).

    Returns:
        The functions as attributes of one object, and what the compiler printed.

    Raises:
        CompileFailed: with the compiler's own message, lines counted in ``source``.
    """
    if not isinstance(source, str) or not isinstance(signatures, Mapping):
        raise CompileFailed("the candidate must define SOURCE (a string) and SIGNATURES (a dict)")
    folder = Path(tempfile.mkdtemp(prefix="ksmith-native-"))
    text = f"{source}\n{build['epilogue']}" if build["epilogue"] else source
    (folder / build["source_name"]).write_text(text, encoding="utf-8")
    said = _compile(folder, build["command"], timeout_seconds)
    library = ctypes.CDLL(str(folder / "native.so"))
    binder = _Binder(library, build["device"], takes_stream=build["takes_stream"])
    return NativeLibrary({n: binder.bind(n, types) for n, types in signatures.items()}), said


def _compile(folder: Path, command: Sequence[str], timeout_seconds: float) -> str:
    compiler = Path(command[0]).name
    # A memory checker that was loaded before the worker is not the compiler's business.
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=timeout_seconds,
        )
    except FileNotFoundError as error:
        raise CompileFailed(f"{command[0]} is not in the sandbox; install {compiler}") from error
    except subprocess.TimeoutExpired as error:
        raise CompileFailed(f"{compiler} took more than {timeout_seconds:.0f} s") from error
    said = f"{done.stderr.strip()}\n{done.stdout.strip()}".strip()
    if done.returncode != 0:
        raise CompileFailed(said or f"{compiler} ended with {done.returncode}")
    return said


class NativeLibrary:
    """What a candidate sees as ``native``: one callable per entry of SIGNATURES."""

    def __init__(self, functions: Mapping[str, Callable[..., None]]) -> None:
        self.__dict__.update(functions)


class _Binder:
    """Makes the callables of one library."""

    def __init__(self, library: ctypes.CDLL, device: str, *, takes_stream: bool) -> None:
        self._library = library
        self._device = device
        self._takes_stream = takes_stream
        self._pointers = _GPU_POINTERS if takes_stream else _POINTERS

    def bind(self, name: str, types: Sequence[str]) -> Callable[..., None]:
        """Return ``extern "C" name`` as a function of tensors and numbers.

        Raises:
            CompileFailed: it is not exported, or its types cannot be bound.
        """
        try:
            function = self._library[name]
        except AttributeError as error:
            raise CompileFailed(f'SOURCE exports no extern "C" function {name!r}') from error
        spelled = [self._plain(t) for t in types]
        function.argtypes = [_NUMBERS.get(t, ctypes.c_void_p) for t in spelled]
        function.restype = None
        streams = [i for i, t in enumerate(spelled) if t in _STREAMS]
        if not self._takes_stream:
            return self._checked(name, spelled, function)
        if len(streams) != 1:
            raise CompileFailed(
                f"SIGNATURES: {name!r} has {len(streams)} parameters of the type void* and must "
                "have one, the stream that it launches its kernels on"
            )
        launch = self._on_stream(name, function, streams[0])
        return self._checked(name, [t for t in spelled if t not in _STREAMS], launch)

    def _checked(
        self, name: str, types: Sequence[str], function: Callable[..., None]
    ) -> Callable[..., None]:
        """Check the arguments and pass the addresses of tensors."""
        known, device = self._pointers, self._device
        pointers = tuple((i, t, known[t]) for i, t in enumerate(types) if t in known)
        count = len(types)

        def call(*arguments: Any) -> None:
            if len(arguments) != count:
                raise TypeError(f"native.{name} takes {count} arguments, got {len(arguments)}")
            values = list(arguments)
            for position, c_type, dtypes in pointers:
                tensor = values[position]
                if tensor.dtype not in dtypes or tensor.device.type != device:
                    raise TypeError(
                        f"native.{name}, argument {position}: {c_type} cannot take "
                        f"{tensor.dtype} on {tensor.device}"
                    )
                values[position] = tensor.data_ptr()
            function(*values)

        return call

    def _on_stream(
        self, name: str, function: Callable[..., None], position: int
    ) -> Callable[..., None]:
        """Pass torch's current stream, and raise what the launch was refused for."""
        launch_error = getattr(self._library, _LAUNCH_ERROR)
        launch_error.restype = ctypes.c_char_p

        def launch(*values: Any) -> None:
            function(*values[:position], _current_stream(), *values[position:])
            error = launch_error()
            if error is not None:
                raise RuntimeError(f"native.{name} was not launched: {error.decode()}")

        return launch

    def _plain(self, c_type: str) -> str:
        """``const float *restrict`` and its like as ``float*``.

        Raises:
            CompileFailed: the type cannot be bound.
        """
        words = c_type.replace("*", " * ").split()
        plain = "".join(
            w for w in words if w not in ("const", "restrict", "__restrict__", "__restrict")
        )
        plain = plain.removeprefix("std::")
        known = (*self._pointers, *_NUMBERS, *(_STREAMS if self._takes_stream else ()))
        if plain not in known:
            raise CompileFailed(
                f"SIGNATURES: {c_type!r} cannot be bound; known types: {', '.join(known)}"
            )
        return plain


def _current_stream() -> int:
    """Torch's current stream on the current device, as a number."""
    return int(torch._C._cuda_getCurrentRawStream(torch._C._cuda_getDevice()))
