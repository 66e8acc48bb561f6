"""Records of a work folder, one line of JSON each: with them a stopped benchmark goes on."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from evaluator.records import Record

R = TypeVar("R", bound=Record)


def read_records(path: Path, kind: type[R]) -> list[R]:
    """Return what is there, in its order; a line that a stop tore is passed over."""
    found: list[R] = []
    for line in path.read_bytes().splitlines() if path.is_file() else []:
        try:
            found.append(kind.model_validate_json(line))
        except ValidationError:
            continue
    return found


def append_records(path: Path, records: Iterable[Record]) -> None:
    """Write ``records`` through to the end of the file, never onto a torn line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:
        if file.tell() > 0:
            file.seek(-1, 2)
            if file.read(1) != b"\n":
                file.write(b"\n")
        file.writelines(r.model_dump_json(exclude_defaults=True).encode() + b"\n" for r in records)
