"""The figures of ``ksmith bench trace``: counted over what is there, never guessed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.trace import run_trace
from benchmarks.trace.synthetic import EVENTS_PER_CALL, write_synthetic
from integrations.traces.errors import TraceError
from tests.integrations.traces.makers import kernel, one_call, write


def run(folder: Path) -> dict[str, float]:
    result = run_trace(
        folder,
        folder / "repos",
        hta=None,
        repeats=1,
        synthetic_events=0,
        work=folder,
        say=lambda _: None,
    )
    return {figure.name: figure.value for figure in result.figures}


def test_figures_count_kernels_and_time_over_all_traces(tmp_path: Path) -> None:
    write(tmp_path / "a.json", [*one_call(), kernel("lost", 300, 10, None)])
    write(tmp_path / "b.json.gz", one_call()[2:])  # without Python frames
    write(tmp_path / "c.json", "no trace")
    figures = run(tmp_path)
    assert (figures["traces_total"], figures["traces_parsed"]) == (3, 2)
    assert figures["launch_attributed_percent"] == pytest.approx(200 / 3)
    assert figures["resolved_device_time_percent"] == 0  # there is no checkout
    assert "vs_hta_ratio" not in figures


def test_a_folder_without_traces_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="--traces"):
        run(tmp_path)


def test_a_synthetic_trace_has_the_events_that_it_says(tmp_path: Path) -> None:
    written = write_synthetic(tmp_path / "t.json", 95)
    assert written == 5 * EVENTS_PER_CALL
    assert len(json.loads((tmp_path / "t.json").read_text())["traceEvents"]) == written
