"""Whether the loaded module left this process as it found it.

Before the module is imported the guard notes what stands behind the names that the worker,
and the torch that it measures with, rely on; before every reply it looks whether the same
still does, and whether a hook was left behind. Code in the same process can undo such a
check, so it proves nothing for a hostile candidate: it names the plain ways of tampering,
and what is claimed in spite of it still has to pass the supervisor's clock and floors.
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter, is_, itemgetter
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
_NEVER_CALLED = ("collections.abc", "typing")
"""Where names come from that only annotations use."""
_WRITTEN_BY_DATACLASSES = ("__repr__", "__eq__", "__hash__", "__setattr__", "__delattr__")
"""And that nothing here calls."""
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
_SIGACTION = ctypes.c_size_t * 32
"""As large as any libc's ``struct sigaction``, which begins with the handler's address."""
_CALLED_BACK = {7: "SIGBUS", 11: "SIGSEGV", 14: "SIGALRM", 26: "SIGVTALRM", 27: "SIGPROF"}


_LIBC = ctypes.CDLL(None)


class Tampered(Exception):
    """The module changed what it is measured with."""


class Guard:
    """What stood behind the watched names when it was made."""

    def __init__(self) -> None:
        """Note everything; the worker's own modules must be imported by now."""
        self._kept = [_Kept.of(owner, names) for owner, names in _by_owner()]
        self._handlers = _signal_handlers()

    def check(self) -> None:
        """Look again; it takes some twenty microseconds, for it is done before every reply.

        Raises:
            Tampered: something is not as it was; the message names it.
        """
        for kept in self._kept:
            try:
                if all(map(is_, kept.read(kept.place), kept.values)):
                    continue
            except (AttributeError, KeyError):  # a name is gone
                pass
            raise Tampered(f"{_title(kept.owner)}.{kept.first_replaced()} was replaced")
        if sys.getprofile() is not None or sys.gettrace() is not None:
            raise Tampered("a profile or trace hook was left in the interpreter")
        functions = _get_current_function_mode_stack()  # type: ignore[no-untyped-call]
        if functions or _get_current_dispatch_mode_stack():
            raise Tampered("a mode that intercepts torch's functions was left on")
        for number, handler in _signal_handlers().items():
            if handler not in (0, 1, self._handlers[number]):  # neither default nor ignored
                raise Tampered(f"a handler of {_CALLED_BACK[number]} was installed")


@dataclass(frozen=True)
class _Kept:
    """Names of one owner, what stood behind them, and how to read them all at once."""

    owner: Any
    names: tuple[str, ...]
    place: Any
    read: Callable[[Any], tuple[Any, ...]]
    values: tuple[Any, ...]

    @classmethod
    def of(cls, owner: Any, names: tuple[str, ...]) -> _Kept:
        """Read ``names``; those that a class inherits are not in its own dictionary."""
        is_its_own = all(name in vars(owner) for name in names)
        place = vars(owner) if is_its_own else owner
        one_more = (*names, names[0])  # of a single name no tuple would come
        read = itemgetter(*one_more) if is_its_own else attrgetter(*one_more)
        return cls(owner, names, place, read, read(place))

    def first_replaced(self) -> str:
        """The first name behind which something else stands."""
        pairs = zip(self.names, self.values, strict=False)
        return next(n for n, value in pairs if getattr(self.owner, n, None) is not value)


def _by_owner() -> Iterator[tuple[Any, tuple[str, ...]]]:
    """The watched names that can be called, or lead to what can."""
    for _, group in groupby(_watched(), key=lambda pair: id(pair[0])):
        found = [(owner, name, getattr(owner, name, None)) for owner, name in group]
        names = tuple(name for _, name, value in found if _is_used(name, value))
        if names:
            yield found[0][0], names


def _is_used(name: str, value: Any) -> bool:
    if name in _WRITTEN_BY_DATACLASSES or not isinstance(value, _KINDS):
        return False
    return getattr(value, "__module__", "") not in _NEVER_CALLED


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


def _signal_handlers() -> Mapping[int, int]:
    """The address that handles each watched signal; 0 is the default, 1 ignores it."""
    action = _SIGACTION()
    handlers = {}
    for number in _CALLED_BACK:
        _LIBC.sigaction(number, None, action)
        handlers[number] = action[0]
    return handlers
