"""Running a reference in float64 although it names narrower types.

Inputs are lifted by the caller; this mode turns the casts and creations that the code
itself writes (``dtype=`` arguments, ``.to``, ``.float()``, ``softmax(dtype=...)``) into
float64, so that the result is what the formula means, not what its rounding makes of it.
Bit reinterpretation (``view(dtype)``) has no meaning in float64 and raises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Self

import torch
from torch.overrides import TorchFunctionMode

_NARROW = (torch.float32, torch.float16, torch.bfloat16)
_NARROWING_METHODS = (torch.Tensor.float, torch.Tensor.half, torch.Tensor.bfloat16)
_LEGACY_TYPES = {
    "torch.FloatTensor": torch.float64,
    "torch.HalfTensor": torch.float64,
    "torch.BFloat16Tensor": torch.float64,
}


class CannotLift(Exception):
    """The code does something that has no counterpart in float64."""


class Float64Mode(TorchFunctionMode):
    """Replaces narrower floating types by float64 in every call, and as the default type."""

    def __enter__(self) -> Self:
        """Make float64 the default type as well."""
        self._default = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Restore the default type."""
        torch.set_default_dtype(self._default)
        super().__exit__(exc_type, exc_value, traceback)  # type: ignore[no-untyped-call]

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call ``func`` with every narrow type replaced."""
        named = dict(kwargs or {})
        if func is torch.Tensor.view and _names_a_dtype((*args[1:], *named.values())):
            raise CannotLift("view(dtype) reinterprets bits")
        if func in _NARROWING_METHODS:
            return args[0].to(torch.float64)
        return func(*_lifted(args), **{k: _lifted(v) for k, v in named.items()})


def _names_a_dtype(values: Iterable[Any]) -> bool:
    return any(isinstance(v, torch.dtype) for v in values)


def _lifted(value: Any) -> Any:
    """``value`` with narrow types replaced, in tuples and lists too."""
    if isinstance(value, torch.dtype):
        return torch.float64 if value in _NARROW else value
    if isinstance(value, str):
        return _LEGACY_TYPES.get(value, value)
    if type(value) in (tuple, list):
        return type(value)(_lifted(v) for v in value)
    return value
