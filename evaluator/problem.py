"""Problems: a directory with ``problem.yaml`` and a self-contained ``reference.py``.

``reference.py`` imports torch and the standard library alone. Its entry is a function,
or a method of a class whose instance is rebuilt from the state attributes that the
method reads (``object.__new__`` and one ``setattr`` each, outside the timed region). It may
hold C++ or CUDA itself, as a candidate does (``SOURCE``, ``SIGNATURES``), where the backend
compiles such; then it runs in its own types alone, and its speed is the baseline.

A candidate for the problem defines one function, ``Entry.candidate_function``, that takes
the call arguments followed by the state attributes, all positionally, in the order of
``Problem.parameters``, and returns what the reference returns.
"""

from __future__ import annotations

import hashlib
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import (
    Field,
    JsonValue,
    NonNegativeFloat,
    PositiveFloat,
    ValidationError,
    model_validator,
)

from evaluator.errors import ProblemError
from evaluator.records import Record, complaint
from evaluator.workload import Workload

PROBLEM_FILE = "problem.yaml"
REFERENCE_FILE = "reference.py"

Identifier = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class Origin(Record):
    """Where the reference came from."""

    repository: str
    commit: str | None = None
    target: str
    """``path::qualname`` within the repository."""
    licence: str | None = None


class Entry(Record):
    """What to call in ``reference.py`` and in a candidate."""

    function: Identifier
    """The function, or the method of ``class_name``."""
    class_name: Identifier | None = None
    candidate_function: Identifier
    """The function; where ``constructor`` is given, the class that has ``function`` as well."""
    constructor: tuple[JsonValue, ...] | None = None
    """What reference and candidate class are constructed with, as KernelBench's ``Model`` and
    ``ModelNew`` are. State arguments then go into parameters and buffers, by name (with ``__``
    for a dot) or, where the names are others, by position. None rebuilds the instance from the
    state alone."""


class OutputKind(StrEnum):
    """How an output is compared."""

    VALUES = "values"
    """Rounded numbers, within the error budget."""
    EXACT = "exact"
    """Integers and booleans that must be equal."""
    INDICES = "indices"
    """Positions of selected values: right when what they select is within the budget."""


class Output(Record):
    """The contract of one returned tensor (outputs are numbered in the order returned)."""

    kind: OutputKind = OutputKind.VALUES
    selects: int | None = None
    """For ``indices``: the number of the output that holds the selected values."""
    order_free_dim: int | None = None
    """The dimension along which the order of elements means nothing (unsorted top-k)."""
    alias_of: str | None = None
    """The argument that is returned itself, as in-place functions do."""

    @model_validator(mode="after")
    def _indices_name_their_values(self) -> Output:
        if (self.kind is OutputKind.INDICES) != (self.selects is not None):
            raise ValueError("an output has 'selects' exactly when its kind is 'indices'")
        return self


class Contract(Record):
    """What the function may and must do beside returning values."""

    outputs: tuple[Output, ...]
    returns_tuple: bool
    """False when a single tensor is returned bare."""
    returns_none: bool = False
    """Whether None is returned; the outputs are then the written arguments, in their order."""
    writes: tuple[str, ...] = ()
    """Arguments that are modified in place; all others must stay unchanged."""

    @model_validator(mode="after")
    def _none_leaves_something_to_judge(self) -> Contract:
        if not self.returns_none:
            return self
        if not self.writes:
            raise ValueError("a function that returns None must write an argument")
        if self.returns_tuple or tuple(o.alias_of for o in self.outputs) != self.writes:
            raise ValueError("where None is returned, the outputs are the written arguments")
        return self


class Tolerance(Record):
    """How far from float64 a candidate may be.

    The budget of an element is ``factor`` times the reference's own error against float64
    plus ``floor_ulps`` units in the last place of the output dtype at the output's scale,
    or ``relative`` times that scale where this is more.
    """

    factor: PositiveFloat = 4.0
    floor_ulps: PositiveFloat = 4.0
    relative: NonNegativeFloat = 0.0
    """As in benchmarks that allow 1e-2; a lower precision is named all the same."""


class Regime(StrEnum):
    """What a call costs: the device's work alone, or the stream with its launches."""

    DEVICE = "device"
    STREAM = "stream"


class Assumption(Record):
    """One thing that extraction dropped, folded or assumed, for the reviewer."""

    kind: str
    detail: str
    line: int | None = None


class Problem(Record):
    """Everything about a problem but the reference's source."""

    schema_version: Literal[1] = 1
    id: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,120}$")]
    origin: Origin
    entry: Entry
    arguments: tuple[Identifier, ...]
    """Call arguments in order."""
    state: tuple[Identifier, ...] = ()
    """Attributes of ``self`` that the method reads, in order."""
    contract: Contract
    workloads: tuple[Workload, ...] = Field(min_length=1)
    tolerance: Tolerance = Tolerance()
    regime: Regime = Regime.DEVICE
    assumptions: tuple[Assumption, ...] = ()
    upstream_compiled: bool = False
    """Whether upstream wraps the target in ``torch.compile``."""
    reference_sha256: str

    @property
    def parameters(self) -> tuple[str, ...]:
        """Parameters of a candidate's entry function: call arguments, then state."""
        return self.arguments + self.state

    @model_validator(mode="after")
    def _names_agree(self) -> Problem:
        expected = set(self.parameters)
        if len(expected) != len(self.parameters):
            raise ValueError("an argument and a state attribute share a name")
        for workload in self.workloads:
            if set(workload.arguments) != expected:
                odd = sorted(set(workload.arguments) ^ expected)
                raise ValueError(f"workload {workload.name!r} and the parameters differ in {odd}")
        names = [w.name for w in self.workloads]
        if len(set(names)) != len(names):
            raise ValueError("two workloads share a name")
        aliases = [o.alias_of for o in self.contract.outputs if o.alias_of is not None]
        unknown = {*self.contract.writes, *aliases} - expected
        if unknown:
            raise ValueError(f"the contract names unknown arguments: {sorted(unknown)}")
        return self


class LoadedProblem(Record):
    """A problem with its reference's source."""

    problem: Problem
    reference_source: str


def sha256_text(text: str) -> str:
    """Return the hex sha256 of ``text`` in UTF-8."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def load_problem(directory: Path) -> LoadedProblem:
    """Read and check the problem in ``directory``.

    Raises:
        ProblemError: a file is missing or malformed, or the reference was edited after
            extraction (its hash differs from ``problem.yaml``).
    """
    try:
        problem = Problem.from_yaml(directory / PROBLEM_FILE)
        source = (directory / REFERENCE_FILE).read_text(encoding="utf-8")
    except OSError as error:
        raise ProblemError(
            f"{directory} is not a problem: {error.strerror}: {error.filename}; "
            "make one with `ksmith extract path::function --repo DIR -o PROBLEM`"
        ) from error
    except (yaml.YAMLError, ValidationError) as error:
        raise ProblemError(
            f"{directory / PROBLEM_FILE} is malformed: {complaint(error)}; mend it there, or "
            "extract again"
        ) from error
    except UnicodeDecodeError as error:
        raise ProblemError(
            f"{directory / REFERENCE_FILE} is not text in UTF-8: {error}; extract again"
        ) from error
    if sha256_text(source) != problem.reference_sha256:
        raise ProblemError(
            f"{directory / REFERENCE_FILE} differs from the hash in {PROBLEM_FILE}; "
            "extract again, or set reference_sha256 to the file's new hash if you meant to edit it"
        )
    return LoadedProblem(problem=problem, reference_source=source)
