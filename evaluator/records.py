"""The base of every record that crosses a process or a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import yaml
from pydantic import BaseModel, ConfigDict


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
            yaml.YAMLError: the file is not YAML.
            pydantic.ValidationError: the content does not fit the model.
        """
        return cls.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
