"""Whether the loaded module left this process as it found it.

Before the module is imported the guard notes what stands behind the names that the worker,
and the torch that it measures with, rely on; before every reply it looks whether the same
still does, and whether a hook was left behind. Code in the same process can undo such a
check, so it proves nothing for a hostile candidate: it names the plain ways of tampering,
and what is claimed in spite of it still has to pass the supervisor's clock and floors.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from types import (
    BuiltinFunctionType,
    FunctionType,
    MethodDescriptorType,
    ModuleType,
)
from typing import Any

import torch
from torch.overrides import _get_current_function_mode_stack
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

_KINDS = (BuiltinFunctionType, FunctionType, MethodDescriptorType, ModuleType, type)
_OF_TORCH = (
    *("empty", "empty_like", "zeros", "full", "where", "equal", "from_numpy"),
    *("randn", "rand", "randint", "Generator"),
)
_OF_TENSORS = (
    *("detach", "untyped_storage", "storage_offset", "stride", "size", "data_ptr"),
    *("set_", "copy_", "fill_", "mul_", "add_", "clone", "cpu", "to", "numpy"),
    *("contiguous", "is_contiguous", "view", "as_strided", "element_size"),
)
_OF_CUDA = ("Event", "CUDAGraph", "Stream", "synchronize", "current_stream", "graph", "stream")
_OF_EVENTS = ("record", "elapsed_time", "synchronize", "wait", "query")
_OF_GRAPHS = ("replay", "capture_begin", "capture_end")
_CALLED_BACK = {7: "SIGBUS", 11: "SIGSEGV", 14: "SIGALRM", 26: "SIGVTALRM", 27: "SIGPROF"}


class Tampered(Exception):
    """The module changed what it is measured with."""


class Guard:
    """What stood behind the watched names when it was made."""

    def __init__(self) -> None:
        """Note everything; the worker's own modules must be imported by now."""
        found = [(owner, name, getattr(owner, name, None)) for owner, name in _watched()]
        self._kept = [kept for kept in found if isinstance(kept[2], _KINDS)]
        self._signals = _caught_signals()

    def check(self) -> None:
        """Look again.

        Raises:
            Tampered: something is not as it was; the message names it.
        """
        for owner, name, value in self._kept:
            if getattr(owner, name, None) is not value:
                raise Tampered(f"{_title(owner)}.{name} was replaced")
        if sys.getprofile() is not None or sys.gettrace() is not None:
            raise Tampered("a profile or trace hook was left in the interpreter")
        functions = _get_current_function_mode_stack()  # type: ignore[no-untyped-call]
        if functions or _get_current_dispatch_mode_stack():
            raise Tampered("a mode that intercepts torch's functions was left on")
        for number in sorted(_caught_signals() - self._signals):
            if number in _CALLED_BACK:
                raise Tampered(f"a handler of {_CALLED_BACK[number]} was installed")


def _watched() -> Iterator[tuple[Any, str]]:
    """What the worker relies on: its own modules and classes, and what they call of others.

    Not all of torch: its compiler replaces functions of it, such as ``torch.manual_seed``.
    """
    room = __name__.rpartition(".")[0]
    for name, module in sorted(sys.modules.items()):
        if name.startswith(f"{room}."):
            yield from ((module, n) for n in vars(module))
            own = [c for c in vars(module).values() if isinstance(c, type)]
            yield from ((c, n) for c in own if c.__module__ == name for n in vars(c))
    yield from ((time, n) for n in ("perf_counter_ns", "perf_counter", "monotonic_ns", "sleep"))
    yield from ((json, n) for n in ("dumps", "loads"))
    yield from ((torch, n) for n in _OF_TORCH)
    yield from ((torch.Tensor, n) for n in _OF_TENSORS)
    yield from ((torch.cuda, n) for n in _OF_CUDA)
    yield from ((torch.cuda.Event, n) for n in _OF_EVENTS)
    yield from ((torch.cuda.CUDAGraph, n) for n in _OF_GRAPHS)


def _title(owner: Any) -> str:
    return owner.__qualname__ if isinstance(owner, type) else str(owner.__name__)


def _caught_signals() -> frozenset[int]:
    """The signals that some handler of this process catches; none where /proc does not tell."""
    try:
        with open("/proc/self/status", encoding="ascii") as status:
            line = next((text for text in status if text.startswith("SigCgt:")), "SigCgt: 0")
    except OSError:
        return frozenset()
    mask = int(line.split()[1], 16)
    return frozenset(number for number in range(1, 65) if mask >> (number - 1) & 1)
