"""The ranking as a trace that Perfetto and chrome://tracing open: a row a target, by rank."""

from __future__ import annotations

import gzip
import json
import os
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from integrations.traces.attribution import Attributed
from integrations.traces.report import HotReport

_UNATTRIBUTED = "unattributed"


class Timeline:
    """Collects when each target had the device."""

    def __init__(self) -> None:
        self._slices: dict[str, list[tuple[int, float, float, str]]] = defaultdict(list)
        self._labels: list[str] = []

    def add(self, found: Attributed) -> None:
        """Take one trace."""
        number = len(self._labels)
        trace, rows = found.trace, found.rows
        self._labels.append(f"rank {trace.rank}" if trace.rank else trace.path.name)
        columns = zip(
            found.places,
            trace.start_us[rows].tolist(),
            trace.duration_us[rows].tolist(),
            trace.name[rows].tolist(),
            strict=True,
        )
        for place, start, duration, name in columns:
            key = place.functions[0] if place.functions else _UNATTRIBUTED
            self._slices[key].append((number, start, duration, trace.names[name]))

    def write(self, report: HotReport, path: Path) -> None:
        """Write the targets of ``report``, packed where the name ends in ``.gz``.

        Raises:
            OSError: it cannot be written; nothing is left behind.
        """
        partial = path.with_name(path.name + ".partial")
        packed = path.suffix == ".gz"
        try:
            with gzip.open(partial, "wt") if packed else partial.open("w") as file:
                file.write('{"displayTimeUnit": "ms", "traceEvents": [\n')
                for number, event in enumerate(self._events(report)):
                    file.write((",\n" if number else "") + json.dumps(event))
                file.write("\n]}\n")
            os.replace(partial, path)
        finally:
            partial.unlink(missing_ok=True)

    def _events(self, report: HotReport) -> Iterator[dict[str, Any]]:
        rows = [(t.rank, t.target, t.score.value) for t in report.targets]
        rows.append((len(rows) + 1, _UNATTRIBUTED, 0.0))
        for pid, label in enumerate(self._labels):
            yield _named("process_name", pid, 0, f"ksmith hot: {label}")
            for rank, target, score in rows:
                title = f"{rank}. {target} (score {score:.1f})" if score else target
                yield _named("thread_name", pid, rank, title)
                order = {"sort_index": rank}
                yield {
                    "ph": "M", "name": "thread_sort_index", "pid": pid, "tid": rank, "args": order
                }  # fmt: skip
        for rank, target, _ in rows:
            for pid, start, duration, name in self._slices.get(target, ()):
                yield {
                    "ph": "X", "cat": "target", "name": name, "pid": pid, "tid": rank,
                    "ts": start, "dur": duration, "args": {"target": target},
                }  # fmt: skip


def _named(what: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}}
