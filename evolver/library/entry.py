"""What an entry of the library holds: one change that made one kind of code faster.

An entry is a pair of candidates of one run, parent and child, of which a second measurement
or a confirmation upheld the child. It keeps what was changed, not the program: the mutation
operators or the model's plan, and the diff. Held-out workloads tell nothing here: features
come from what proposers are shown.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field, PlainSerializer, PositiveFloat, model_validator

from evaluator.candidate import BackendName
from evaluator.records import Record

LONGEST_DIFF_CHARACTERS = 3_000
LONGEST_PLAN_CHARACTERS = 600

Share = Annotated[float, Field(ge=0.0, le=1.0)]
Names = Annotated[frozenset[str], PlainSerializer(sorted, return_type=list[str], when_used="json")]


class Features(Record):
    """What kind of code a problem is: facts of its reference and of the shown workloads."""

    families: Names
    """Of the reference's operations, by its AST (``features.py``)."""
    dtypes: Names
    """Of the tensor arguments."""
    size_log2: float
    """Octaves of bytes that one call's arguments have, the workloads' mean."""
    row_log2: float
    """Octaves of the largest argument's last extent, the workloads' mean."""
    backend: BackendName
    device: str
    """A GPU's name, or ``cpu``."""


class Identity(Record):
    """Which problem it was: whoever shares any of these is the same, or nearly."""

    problem_id: str
    repository: str
    target: str
    """``path::qualname`` within the repository."""
    skeleton: str
    """Hash of the reference without names, numbers and text (``features.py``)."""


class Change(Record):
    """What was done to the parent."""

    proposer: str
    operators: tuple[str, ...] = ()
    """Of ``mutate``, in the order in which they were applied."""
    plan: Annotated[str, Field(max_length=LONGEST_PLAN_CHARACTERS)] = ""
    """A model's."""
    description: str = ""
    strategy: str = ""
    """The child's, in a few words."""
    diff: Annotated[str, Field(max_length=LONGEST_DIFF_CHARACTERS)]
    """From parent to child, unified, without context; cut where it is long."""


class Gain(Record):
    """The child's speed over the parent's, with its 95 % interval."""

    value: PositiveFloat
    low: PositiveFloat
    high: PositiveFloat
    upheld_by: Literal["confirmed", "remeasured"]

    @model_validator(mode="after")
    def _value_lies_in_its_interval(self) -> Gain:
        if not self.low <= self.value <= self.high:
            raise ValueError(f"gain {self.value} outside [{self.low}, {self.high}]")
        return self


class LibraryEntry(Record):
    """One verified strategy."""

    schema_version: Literal[1] = 1
    id: str
    """Hash of problem, device and both candidates: a run that is read twice is kept once."""
    change: Change
    features: Features
    gain: Gain
    origin: Identity
    versions: dict[str, str]
    at: datetime
    """When the child was measured."""


class Known(Record):
    """An entry as it is offered to a search, with how much its problem resembles the one there."""

    entry: LibraryEntry
    similarity: Share
