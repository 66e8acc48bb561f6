"""``ksmith hot``: what people and machines are shown."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from cli.main import app
from tests.integrations.traces.makers import kernel, one_call, write


def hot(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["hot", *map(str, arguments)])


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    lost = kernel("ncclDevKernel_AllReduce", 300, 30, None)
    return write(tmp_path / "trace.json.gz", [*one_call(), lost])


def test_the_ranking_shows_the_function_and_always_what_is_not_attributed(trace: Path) -> None:
    shown = hot(trace)
    assert shown.exit_code == 0
    assert "pkg/mod.py::work" in shown.stdout
    assert "unattributed: 75.0% of the time" in shown.stdout
    assert "no launch event" in shown.stdout


def test_json_is_one_object_with_the_parts_of_the_score(trace: Path) -> None:
    report = json.loads(hot(trace, "--json").stdout)
    (target,) = report["targets"]
    assert (target["launches"], target["state"]) == (1, "eager")
    assert set(target["score"]) == {
        "value", "saving_share", "openness", "grounded", "located"
    }  # fmt: skip


def test_nothing_to_rank_is_the_answer_no(tmp_path: Path) -> None:
    shown = hot(write(tmp_path / "empty.json", []))
    assert shown.exit_code == 1
    assert "neither kernels nor operators" in shown.stdout


def test_the_export_is_a_trace_with_a_row_for_each_target(trace: Path, tmp_path: Path) -> None:
    hot(trace, "--export", tmp_path / "out.json.gz", "--html", tmp_path / "out.html")
    events = json.loads(gzip.decompress((tmp_path / "out.json.gz").read_bytes()))["traceEvents"]
    rows = [e["args"]["name"] for e in events if e["name"] == "thread_name"]
    slices = [(e["name"], e["args"]["target"]) for e in events if e["ph"] == "X"]
    assert rows[0].startswith("1. pkg/mod.py::work")
    assert slices == [
        ("void at::native::add_kernel()", "pkg/mod.py::work"),
        ("ncclDevKernel_AllReduce", "unattributed"),
    ]
    page = (tmp_path / "out.html").read_text()
    assert "pkg/mod.py::work" in page
    assert "float[8, 4]" in page


def test_names_from_a_trace_cannot_write_html(tmp_path: Path) -> None:
    evil = [*one_call()[:3], kernel("<script>alert(1)</script>", 100, 10, 1)]
    hot(write(tmp_path / "t.json", evil), "--html", tmp_path / "out.html")
    assert "<script" not in (tmp_path / "out.html").read_text()


def test_a_comparison_takes_the_trace_before_and_after(trace: Path) -> None:
    shown = hot("--compare", trace, trace)
    assert shown.exit_code == 0
    assert "1.000x pkg/mod.py::work" in shown.stdout


@pytest.mark.parametrize("arguments", [(), ("a.json", "--compare", "a.json", "b.json")])
def test_traces_and_a_comparison_exclude_each_other(arguments: tuple[str, ...]) -> None:
    assert hot(*arguments).exit_code == 2
