"""Importing source text as a module, and saying where in it something failed.

The source becomes a file of its own in the sandbox's private /tmp, because triton reads
kernels back from their file. Nothing is added to ``sys.path``.
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
import traceback
from pathlib import Path
from types import ModuleType

import torch

from .calls import BrokenContract
from .integrity import Tampered
from .native import CompileFailed
from .protocol import Failure

_MESSAGE_CHARACTERS = 2000
_TRACE_CHARACTERS = 4000
_OUT_OF_MEMORY_TEXTS = ("out of memory", "can't allocate memory", "cannot allocate memory")
_COMPILE_ERRORS = ("triton.compiler.errors", "triton.runtime.errors.PTXASError")


def import_source(source: str, name: str) -> ModuleType:
    """Execute ``source`` as the module ``name`` and return it."""
    path = Path(tempfile.mkdtemp(prefix="ksmith-")) / f"{name}.py"
    path.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def describe_failure(error: BaseException, module_name: str) -> Failure:
    """Say what ``error`` is, in plain values."""
    kind = type(error)
    return Failure(
        kind=_kind(error),
        type_name=kind.__qualname__,
        message=_message(error)[:_MESSAGE_CHARACTERS],
        line=_line(error, module_name),
        trace="".join(traceback.format_exception(error))[-_TRACE_CHARACTERS:],
    )


def _kind(error: BaseException) -> str:
    qualified = f"{type(error).__module__}.{type(error).__qualname__}"
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return "out_of_memory"
    if isinstance(error, RuntimeError) and any(t in str(error) for t in _OUT_OF_MEMORY_TEXTS):
        return "out_of_memory"
    if isinstance(error, (CompileFailed, SyntaxError)) or qualified.startswith(_COMPILE_ERRORS):
        return "compile"
    if isinstance(error, BrokenContract):
        return "contract"
    if isinstance(error, Tampered):
        return "tampering"
    return "exception"


def _message(error: BaseException) -> str:
    text = str(error).strip()
    return text if text else type(error).__qualname__


def _line(error: BaseException, module_name: str) -> int | None:
    """The deepest line of the module on the stack, or where its syntax breaks."""
    if isinstance(error, SyntaxError):
        return error.lineno
    frames = traceback.extract_tb(error.__traceback__)
    own = [f.lineno for f in frames if Path(f.filename).name == f"{module_name}.py"]
    return own[-1] if own else None
