"""What was measured, a line each, in a file that a later run continues."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path

from pydantic import Field

from benchmarks.appended import append_records, read_records
from evaluator.evaluation import Status, Verdict
from evaluator.records import Record


class Study(StrEnum):
    """What a row belongs to."""

    SELF = "self"
    """A screen of a kernel against itself: the comparison, and its time in a fresh process."""
    YARDSTICK = "yardstick"
    """The same kernel timed by what others use, in a fresh process."""
    CALIBRATION = "calibration"
    """How much one more iteration of the spinning kernel costs."""
    PLANTED = "planted"
    """A screen of a kernel against itself with 2 % more work."""
    FULL = "full"
    """A confirmation of a kernel against itself: the verdict that is published."""
    NULL_SEARCH = "null_search"
    """A search among copies of one kernel: published or not."""


class Row(Record):
    """One kernel measured once; which fields are there follows from the study."""

    study: Study
    kernel: str
    status: Status
    seconds: float
    """Wall time of the evaluation that the row came from."""
    us: float | None = None
    low: float | None = None
    ratio: float | None = None
    high: float | None = None
    verdict: Verdict | None = None
    truth: float | None = None
    """Planted: the ratio that should be found."""
    yardsticks_us: dict[str, float] = Field(default_factory=dict)
    published: bool | None = None
    """Null search: whether a copy was called faster at the end, which is wrong."""
    message: str = ""


class RowFile:
    """The rows of one benchmark, appended as they come."""

    def __init__(self, path: Path) -> None:
        """Read what is there."""
        self._path = path
        self.rows = read_records(path, Row)

    def add(self, rows: Iterable[Row]) -> None:
        """Append ``rows`` and write them through."""
        fresh = list(rows)
        append_records(self._path, fresh)
        self.rows += fresh

    def of(self, study: Study, kernel: str | None = None) -> list[Row]:
        """The rows of one study, of one kernel or of all."""
        return [r for r in self.rows if r.study is study and kernel in (None, r.kernel)]
