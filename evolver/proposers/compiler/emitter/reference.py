"""Loading the reference and calling it as one flat function of the problem's parameters."""

from __future__ import annotations

import linecache
import types
from collections.abc import Callable
from typing import Any

from .workloads import EmissionFailed, Request

FlatFunction = Callable[..., Any]


def load_reference(source: str) -> types.ModuleType:
    """Execute ``source`` as a module. Only ever called inside a sandbox.

    Raises:
        EmissionFailed: the source does not run.
    """
    name = "ksmith_reference"
    module = types.ModuleType(name)
    filename = f"<{name}>"
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
    return _method(entry, request.function, len(request.arguments), request.state)


def _method(cls: type, name: str, argument_count: int, state: tuple[str, ...]) -> FlatFunction:
    def call(*values: Any) -> Any:
        instance: Any = object.__new__(cls)
        for attribute, value in zip(state, values[argument_count:], strict=True):
            setattr(instance, attribute, value)
        return getattr(instance, name)(*values[:argument_count])

    return call
