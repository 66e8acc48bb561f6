"""The base of every record that crosses a process or a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError


class Record(BaseModel):
    """A typed, frozen value; unknown fields are refused, so that a typo is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")

    def to_yaml(self) -> str:
        """Return the record as YAML, fields in the order of their declaration."""
        dumped: Any = self.model_dump(mode="json", exclude_none=True)
        return yaml.safe_dump(dumped, sort_keys=False, width=100, allow_unicode=True)

    @classmethod
    def from_yaml(cls, path: Path) -> Self:
        """Read the record at ``path``.

        Raises:
            OSError: the file cannot be read.
            yaml.YAMLError: the file is not YAML in UTF-8.
            pydantic.ValidationError: the content does not fit the model.
        """
        try:
            content = yaml.safe_load(path.read_text(encoding="utf-8"))
        except (UnicodeDecodeError, RecursionError) as error:
            raise yaml.YAMLError(f"not YAML in UTF-8, or nested too deeply: {error}") from error
        return cls.model_validate(content)


def complaint(error: yaml.YAMLError | ValidationError) -> str:
    """Return what is wrong with a record's file in one line: the first fault, and where."""
    if isinstance(error, yaml.YAMLError):
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark is not None else ""
        return where + " ".join((getattr(error, "problem", None) or str(error)).split())
    first, *others = error.errors(include_url=False, include_input=False)
    place = ".".join(map(str, first["loc"]))
    more = f" (and {len(others)} more faults)" if others else ""
    return f"{place}: {first['msg']}{more}" if place else f"{first['msg']}{more}"
