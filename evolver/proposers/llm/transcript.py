"""Everything that was sent to models and received from them, and what it cost.

``llm.jsonl`` lies in the run directory, one JSON object a line, only ever appended to: an
``exchange`` for each request with its reply or error, and an ``outcome`` for each proposal,
where the plan is kept apart from the code (that is in ``run.db``, under the candidate's id).
A line that a kill left half written is passed over.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from evolver.errors import RunDamaged

TRANSCRIPT_FILE = "llm.jsonl"
SCHEMA_VERSION = 1


@dataclass
class Spending:
    """What requests have cost."""

    requests: int = 0
    prompt_tokens: int = 0
    reply_tokens: int = 0
    usd: float = 0.0
    """Of the models whose prices are known."""

    @property
    def tokens(self) -> int:
        """In and out."""
        return self.prompt_tokens + self.reply_tokens

    def add(self, exchange: dict[str, Any]) -> None:
        """Take in an exchange."""
        self.requests += 1
        self.prompt_tokens += int(exchange["prompt_tokens"])
        self.reply_tokens += int(exchange["reply_tokens"])
        self.usd += float(exchange["usd"] or 0.0)


class Transcript:
    """The file and the sum over it; one writing process, the run's, of any number of threads."""

    def __init__(self, path: Path) -> None:
        """Go on with the file at ``path``, or begin it with the first record."""
        self._path = path
        self._writing = threading.Lock()
        self.spending = spending_of(path)

    def exchange(self, **fields: Any) -> None:
        """Append a request with its reply or error, and account for it."""
        with self._writing:
            self._append("exchange", fields)
            self.spending.add(fields)

    def outcome(self, **fields: Any) -> None:
        """Append what became of a proposal."""
        with self._writing:
            self._append("outcome", fields)

    def _append(self, kind: str, fields: dict[str, Any]) -> None:
        record = {
            "schema_version": SCHEMA_VERSION,
            "kind": kind,
            "at": datetime.now(UTC).isoformat(),
            **fields,
        }
        # ASCII: a reply may hold half a surrogate pair, which is no UTF-8.
        line = json.dumps(record, ensure_ascii=True) + "\n"
        with self._path.open("ab") as file:
            torn = file.tell() > 0 and not _ends_a_line(self._path)
            file.write((b"\n" if torn else b"") + line.encode("ascii"))


def read_transcript(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the records at ``path`` in order; none where there is no file."""
    if not path.is_file():
        return
    with path.open(encoding="utf-8", errors="replace", newline="\n") as file:
        for line in file:
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(record, dict) and record.get("schema_version") == SCHEMA_VERSION:
                yield record


def spending_of(path: Path) -> Spending:
    """Return what the exchanges at ``path`` have cost.

    Raises:
        RunDamaged: one does not say so.
    """
    spending = Spending()
    for number, record in enumerate(read_transcript(path), start=1):
        if record.get("kind") != "exchange":
            continue
        try:
            spending.add(record)
        except (KeyError, TypeError, ValueError) as error:
            raise RunDamaged(
                f"{path} is damaged: record {number} does not say what it cost ({error!r}); mend "
                "it, or move the file away and count by hand what was spent"
            ) from error
    return spending


def _ends_a_line(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, 2)
        return file.read(1) == b"\n"
