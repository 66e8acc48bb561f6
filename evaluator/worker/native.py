"""Compiling a candidate's C++ in the sandbox and binding it through ctypes.

Every exported function is ``extern "C" void``. A pointer parameter takes a CPU tensor whose
dtype fits the C type; bfloat16 and float16 travel as ``uint16_t*``. Lengths and strides are
the candidate's business: the binding checks types and devices, not bounds.
"""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from .compiler import COMPILER, FLAGS

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
_NUMBERS: Mapping[str, Any] = {
    "int64_t": ctypes.c_int64,
    "int32_t": ctypes.c_int32,
    "double": ctypes.c_double,
    "float": ctypes.c_float,
    "bool": ctypes.c_bool,
}


class CompileFailed(Exception):
    """The compiler refused the source, or SIGNATURES names what the library lacks."""


def compile_and_bind(
    source: object, signatures: object, *, timeout_seconds: float
) -> NativeLibrary:
    """Compile ``source`` and return its functions as attributes of one object.

    Raises:
        CompileFailed: with the compiler's own message, lines counted in ``source``.
    """
    if not isinstance(source, str) or not isinstance(signatures, Mapping):
        raise CompileFailed("a cpp candidate defines SOURCE (a string) and SIGNATURES (a dict)")
    folder = Path(tempfile.mkdtemp(prefix="ksmith-native-"))
    (folder / "source.cpp").write_text(source, encoding="utf-8")
    _compile(folder, timeout_seconds)
    library = ctypes.CDLL(str(folder / "native.so"))
    functions = {name: _bind(library, name, types) for name, types in signatures.items()}
    return NativeLibrary(functions)


def _compile(folder: Path, timeout_seconds: float) -> None:
    command = [COMPILER, *FLAGS, "-o", "native.so", "source.cpp"]
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=timeout_seconds
        )
    except FileNotFoundError as error:
        raise CompileFailed(f"{COMPILER} is not in the sandbox; install g++") from error
    except subprocess.TimeoutExpired as error:
        raise CompileFailed(f"{COMPILER} took more than {timeout_seconds:.0f} s") from error
    if done.returncode != 0:
        raise CompileFailed(done.stderr.strip() or f"{COMPILER} ended with {done.returncode}")


class NativeLibrary:
    """What a candidate sees as ``native``: one callable per entry of SIGNATURES."""

    def __init__(self, functions: Mapping[str, Callable[..., None]]) -> None:
        self.__dict__.update(functions)


def _bind(library: ctypes.CDLL, name: str, types: Sequence[str]) -> Callable[..., None]:
    try:
        function = library[name]
    except AttributeError as error:
        raise CompileFailed(f'SOURCE exports no extern "C" function {name!r}') from error
    spelled = tuple(_plain(t) for t in types)
    function.argtypes = [_NUMBERS.get(t, ctypes.c_void_p) for t in spelled]
    function.restype = None
    pointers = tuple((i, t, _POINTERS[t]) for i, t in enumerate(spelled) if t in _POINTERS)
    count = len(spelled)

    def call(*arguments: Any) -> None:
        if len(arguments) != count:
            raise TypeError(f"native.{name} takes {count} arguments, got {len(arguments)}")
        values = list(arguments)
        for position, c_type, dtypes in pointers:
            tensor = values[position]
            if tensor.dtype not in dtypes or tensor.device.type != "cpu":
                raise TypeError(
                    f"native.{name}, argument {position}: {c_type} cannot take "
                    f"{tensor.dtype} on {tensor.device}"
                )
            values[position] = tensor.data_ptr()
        function(*values)

    return call


def _plain(c_type: str) -> str:
    """``const float *restrict`` and its like as ``float*``.

    Raises:
        CompileFailed: the type cannot be bound.
    """
    words = c_type.replace("*", " * ").split()
    plain = "".join(
        w for w in words if w not in ("const", "restrict", "__restrict__", "__restrict")
    )
    plain = plain.removeprefix("std::")
    if plain not in _POINTERS and plain not in _NUMBERS:
        known = ", ".join((*_POINTERS, *_NUMBERS))
        raise CompileFailed(f"SIGNATURES: {c_type!r} cannot be bound; known types: {known}")
    return plain
