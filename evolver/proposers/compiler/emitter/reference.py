"""Loading the reference and calling it as one flat function of the problem's parameters."""

from __future__ import annotations

import linecache
import types
from collections.abc import Callable
from typing import Any

import torch

from .workloads import EmissionFailed, Request

FlatFunction = Callable[..., Any]

REFERENCE_FILE = "<ksmith_reference>"
"""What the reference's code objects call their file."""


def load_reference(source: str) -> types.ModuleType:
    """Execute ``source`` as a module. Only ever called inside a sandbox.

    Raises:
        EmissionFailed: the source does not run.
    """
    module = types.ModuleType("ksmith_reference")
    filename = REFERENCE_FILE
    # inspect.getsource (torch.library, torch.jit) must find the text.
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    try:
        exec(compile(source, filename, "exec"), module.__dict__)  # noqa: S102
    except Exception as error:
        raise EmissionFailed(f"reference.py does not import: {error!r}") from error
    return module


def flat_function(request: Request) -> FlatFunction:
    """A function of ``request.parameters``, positionally, that calls the reference.

    For a class the instance is rebuilt inside the call from its state attributes, so that
    these are inputs of the trace as well.

    Raises:
        EmissionFailed: the reference does not run or lacks the entry.
    """
    module = load_reference(request.reference_source)
    owner = request.class_name or request.function
    entry = getattr(module, owner, None)
    if entry is None:
        raise EmissionFailed(f"reference.py does not define {owner!r}")
    if request.class_name is None:
        return entry  # type: ignore[no-any-return]
    if request.constructor is not None:
        return _constructed(entry, request)
    return _method(entry, request.function, len(request.arguments), request.state)


def _constructed(cls: type, request: Request) -> FlatFunction:
    """A module constructed once, called with its parameters and buffers replaced.

    The problem's state names them with ``__`` for a dot.
    """
    try:
        instance = cls(*(request.constructor or ()))
    except Exception as error:
        raise EmissionFailed(f"{cls.__name__} cannot be constructed: {error!r}") from error
    names = [name.replace("__", ".") for name in request.state]
    count = len(request.arguments)
    if request.function != "forward" or set(names) != set(instance.state_dict()):
        raise EmissionFailed(
            f"{cls.__name__} is no module whose forward and state are the problem's"
        )

    def call(*values: Any) -> Any:
        state = dict(zip(names, values[count:], strict=True))
        return torch.func.functional_call(instance, state, values[:count])

    return call


def _method(cls: type, name: str, argument_count: int, state: tuple[str, ...]) -> FlatFunction:
    def call(*values: Any) -> Any:
        instance: Any = object.__new__(cls)
        for attribute, value in zip(state, values[argument_count:], strict=True):
            setattr(instance, attribute, value)
        return getattr(instance, name)(*values[:argument_count])

    return call
