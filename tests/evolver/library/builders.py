"""Builders of the library's nouns."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from evaluator.candidate import BackendName
from evolver.library.entry import Change, Features, Gain, Identity, Known, LibraryEntry


def make_features(**changes: Any) -> Features:
    fields: dict[str, Any] = {
        "families": frozenset({"norm", "reduction"}),
        "dtypes": frozenset({"float32"}),
        "size_log2": 16.0,
        "row_log2": 8.0,
        "backend": BackendName.CPP,
        "device": "cpu",
    }
    return Features(**{**fields, **changes})


def make_origin(number: int = 0, **changes: Any) -> Identity:
    fields: dict[str, Any] = {
        "problem_id": f"problem-{number}",
        "repository": "somewhere/else",
        "target": f"ops.py::f{number}",
        "skeleton": f"skeleton-{number}",
    }
    return Identity(**{**fields, **changes})


def make_entry(
    number: int = 0,
    *,
    low: float = 1.4,
    operators: tuple[str, ...] = ("tile",),
    plan: str = "",
    origin: Identity | None = None,
    features: Features | None = None,
) -> LibraryEntry:
    """An entry of its own problem; the interval's other end lies as far above 1.5."""
    value = max(low * 1.01, 1.5)
    return LibraryEntry(
        id=f"entry-{number:04}",
        change=Change(
            proposer="llm" if plan else "mutate",
            operators=() if plan else operators,
            plan=plan,
            description="tile: BLOCK 64 to 128",
            diff="@@ -1 +1 @@\n-BLOCK = 64\n+BLOCK = 128",
        ),
        features=features or make_features(),
        gain=Gain(value=value, low=low, high=value * value / low, upheld_by="remeasured"),
        origin=origin or make_origin(number),
        versions={"ksmith-bot": "0"},
        at=datetime(2026, 1, 2, tzinfo=UTC) + timedelta(minutes=number),
    )


def make_known(number: int = 0, *, similarity: float = 1.0, **changes: Any) -> Known:
    return Known(entry=make_entry(number, **changes), similarity=similarity)
