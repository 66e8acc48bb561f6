"""One row per problem for other programs: Parquet where pyarrow is there, else JSON lines."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.kernelbench.rows import Row


def write_table(rows: Sequence[Row], folder: Path, stem: str) -> Path:
    """Write ``rows`` to ``STEM.parquet``, or without the extra ``bench`` to ``STEM.jsonl``.

    Returns:
        The file that was written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        path = folder / f"{stem}.jsonl"
        path.write_text("".join(r.model_dump_json() + "\n" for r in rows), encoding="utf-8")
        return path
    path = folder / f"{stem}.parquet"
    parquet.write_table(pyarrow.Table.from_pylist([flat(r) for r in rows]), path)
    return path


def flat(row: Row) -> dict[str, Any]:
    """``row`` with a column per number: ``found`` becomes ``found_value`` and so on."""
    columns: dict[str, Any] = {}
    for name, value in row.model_dump(mode="json").items():
        if name in ("found", "found_vs_compiled", "compiled"):
            parts = value or dict.fromkeys(("value", "low", "high", "faster"))
            columns |= {f"{name}_{part}": number for part, number in parts.items()}
        elif name == "statuses":
            columns[name] = [f"{status}={count}" for status, count in value.items()]
        elif name == "curve":
            columns["curve_evaluations"] = [at for at, _ in value]
            columns["curve_speedups"] = [speedup for _, speedup in value]
        else:
            columns[name] = value
    return columns
