"""The targets of ``targets.yml``: where each lies, its inputs, how the original is called."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from pydantic import Field, JsonValue

from evaluator.records import Record

_FILE = Path(__file__).with_name("targets.yml")


class Folder(Record):
    """A repository at one version."""

    folder: str
    """Below the folder of real repositories."""
    origin: str = Field(alias="from")


class OriginalCall(Record):
    """What the repository's own function needs beside its arguments and state."""

    set: dict[str, str] = Field(default_factory=dict)
    """Attribute of the instance → global of the module that ``__init__`` binds it to."""
    attributes: dict[str, JsonValue] = Field(default_factory=dict)
    """What extraction folded, and a bare instance must have."""
    globals: dict[str, JsonValue] = Field(default_factory=dict)
    """Globals of the module to replace, such as the device it was written for."""


class BenchTarget(Record):
    """One function of an engine."""

    name: str
    repository: str
    target: str
    machine: str = "cuda"
    inputs: dict[str, Any]
    """The text of a workloads file."""
    original: OriginalCall = OriginalCall()
    written: str | None = None
    """Function of ``written.py`` that says the same by hand."""
    refused: str | None = None
    """What a reason must say where refusing is right."""


def read_targets() -> tuple[dict[str, Folder], list[BenchTarget]]:
    """Return the repositories and the targets, in order."""
    data = yaml.safe_load(_FILE.read_text(encoding="utf-8"))
    folders = {n: Folder.model_validate(f) for n, f in data["repositories"].items()}
    return folders, [BenchTarget.model_validate(t) for t in data["targets"]]
