"""The rows of a work folder: read once, appended as they come, the latest of a unit counts."""

from __future__ import annotations

import shutil
from pathlib import Path

from benchmarks.appended import append_records, read_records
from benchmarks.search.rows import KillRow, RankingRow, ScaleRow, SearchRow, Unit
from evaluator.records import Record

_FILES: dict[type[Record], str] = {
    SearchRow: "searches.jsonl",
    RankingRow: "rankings.jsonl",
    KillRow: "kills.jsonl",
    ScaleRow: "scale.jsonl",
}


class Work:
    """A folder with rows and run directories."""

    def __init__(self, path: Path) -> None:
        """Read what is there."""
        self.path = path
        self._searches = {r.unit: r for r in read_records(path / _FILES[SearchRow], SearchRow)}
        self._rankings = {r.unit: r for r in read_records(path / _FILES[RankingRow], RankingRow)}
        self.kills = read_records(path / _FILES[KillRow], KillRow)
        self.scale = read_records(path / _FILES[ScaleRow], ScaleRow)

    @property
    def searches(self) -> list[SearchRow]:
        """Those that were measured."""
        return [r for r in self._searches.values() if not r.failure]

    @property
    def rankings(self) -> list[RankingRow]:
        """Those that were measured."""
        return [r for r in self._rankings.values() if not r.failure]

    @property
    def failures(self) -> dict[str, str]:
        """Why units could not be measured so far."""
        rows: list[SearchRow | RankingRow] = [*self._searches.values(), *self._rankings.values()]
        return {r.unit.name: r.failure for r in rows if r.failure}

    def add(self, row: SearchRow | RankingRow | KillRow | ScaleRow) -> None:
        """Write ``row`` through."""
        append_records(self.path / _FILES[type(row)], [row])
        match row:
            case SearchRow():
                self._searches[row.unit] = row
            case RankingRow():
                self._rankings[row.unit] = row
            case KillRow():
                self.kills.append(row)
            case ScaleRow():
                self.scale.append(row)

    def run_path(self, unit: Unit) -> Path:
        """Where the run of ``unit`` lies."""
        return self.path / "runs" / unit.name

    @property
    def cases_path(self) -> Path:
        """Where production cases are extracted to."""
        return self.path / "cases"

    @property
    def scratch_path(self) -> Path:
        """For what is thrown away; empty."""
        path = self.path / "scratch"
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        return path


def forget(path: Path) -> None:
    """Remove the rows and runs of a work folder; what else lies there stays."""
    for name in _FILES.values():
        (path / name).unlink(missing_ok=True)
    shutil.rmtree(path / "runs", ignore_errors=True)
