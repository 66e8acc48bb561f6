"""What the watched processes tell (``integrations/probe/startup/capturing.py``), checked."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from pydantic import (
    AfterValidator,
    Field,
    JsonValue,
    NonNegativeInt,
    PositiveInt,
    ValidationError,
)

from evaluator.records import Record, complaint
from integrations.errors import IntegrationError
from integrations.kernelbench.values import TensorFacts

_MOST_BYTES = 64 << 20
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
Told = Annotated[str, AfterValidator(lambda text: _CONTROL.sub(" ", text)[:500])]
"""Text that untrusted code chose, on one line: it is printed, and stands in comments."""


class CaptureFailed(IntegrationError):
    """No workload came of it; the message says why."""


class SeenTensor(TensorFacts):
    """A tensor's form, and for the first call of that form its moments."""

    dtype: Told
    device: Told = "cpu"
    parameter: bool = False
    data: tuple[int, ...] = Field(default=(), max_length=1024)

    @property
    def numel(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


class SeenValue(Record):
    """A scalar where nothing else is given; ``other`` names the type of what is not told."""

    scalar: bool | int | float | str | None = None
    tensor: SeenTensor | None = None
    list: tuple[SeenTensor, ...] | None = None
    other: Told | None = None


class SeenArgument(Record):
    """An argument of a constructor: plain data, or the type of what is not told."""

    value: JsonValue = None
    other: Told | None = None


class Form(Record):
    """Calls that differ in nothing but the elements of their tensors."""

    key: str
    calls: PositiveInt
    raised: dict[Told, int]
    values: dict[Told, SeenValue]
    """Arguments, then the state as ``self.name``."""
    constructor: dict[Told, SeenArgument] | None
    overlaps: dict[Told, tuple[Told, Told]]
    writes: tuple[Told, ...]
    unread: tuple[Told, ...]
    returns: tuple[Told | None, ...]
    grad: bool

    @property
    def tensors(self) -> dict[str, SeenTensor]:
        """Every tensor by name, members of lists as ``name_0``, ``name_1``, …"""
        found = {}
        for name, value in self.values.items():
            if value.tensor is not None:
                found[name] = value.tensor
            found |= {f"{name}_{i}": member for i, member in enumerate(value.list or ())}
        return found

    @property
    def elements(self) -> int:
        """How large the call is."""
        return sum(t.numel for t in self.tensors.values())


class Process(Record):
    """What one process saw."""

    pid: int
    argv: tuple[Told, ...]
    calls: NonNegativeInt
    nested: NonNegativeInt
    beyond: NonNegativeInt
    script: bool
    elsewhere: Told | None
    error: Told | None
    forms: tuple[Form, ...]


def read_processes(folder: Path) -> list[Process]:
    """Return what every process of the command left in ``folder``.

    Raises:
        CaptureFailed: a file there makes no sense.
    """
    found = []
    for path in sorted(folder.glob("*.json")):
        try:
            if path.stat().st_size > _MOST_BYTES:
                raise CaptureFailed(f"a process told more of itself than is read: {path.name}")
            found.append(Process.model_validate_json(path.read_bytes()))
        except ValidationError as error:
            raise CaptureFailed(f"what a process told is no answer: {complaint(error)}") from error
    return found


def merged(processes: Iterable[Process]) -> list[Form]:
    """Return the forms of all processes, each once, the most called first."""
    found: dict[str, Form] = {}
    for form in (form for process in processes for form in process.forms):
        other = found.get(form.key)
        found[form.key] = form if other is None else _joined(other, form)
    return sorted(found.values(), key=lambda f: (-f.calls, f.key))


def _joined(one: Form, other: Form) -> Form:
    names = {*one.raised, *other.raised}
    raised = {n: one.raised.get(n, 0) + other.raised.get(n, 0) for n in sorted(names)}
    update = {
        "calls": one.calls + other.calls,
        "raised": raised,
        "writes": tuple(sorted({*one.writes, *other.writes})),
        "unread": tuple(sorted({*one.unread, *other.unread})),
    }
    return one.model_copy(update=update)
