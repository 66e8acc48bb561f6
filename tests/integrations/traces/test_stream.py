"""Traces in any state: what can be read is read, what cannot is counted or said."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from integrations.traces import stream
from integrations.traces.columns import Kind, Trace, read_trace
from integrations.traces.errors import TraceError
from tests.integrations.traces.makers import document, frame, kernel, launch, one_call, op, write

CALLS = [event for n in range(300) for event in one_call(1000.0 * n, n + 1)]


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few kilobytes stand for megabytes, so that every trace here is cut."""
    monkeypatch.setattr(stream, "_PIECE_BYTES", 4096)
    monkeypatch.setattr(stream, "_READ_BYTES", 1000)


def counts(trace: Trace) -> list[int]:
    return np.bincount(trace.kind, minlength=len(Kind)).tolist()


@pytest.mark.parametrize("name", ["t.json", "t.json.gz"])
@pytest.mark.parametrize("indent", [None, 2])
def test_every_event_is_read_however_it_is_laid_out(
    tmp_path: Path, name: str, indent: int | None
) -> None:
    text = json.dumps(document(CALLS, distributedInfo={"rank": 3}), indent=indent)
    trace = read_trace(write(tmp_path / name, text))
    assert counts(trace) == [300, 0, 300, 300, 300, 0]
    assert (trace.end, trace.damaged_events, trace.rank) == (None, 0, "3")


def test_metadata_behind_the_events_is_read(tmp_path: Path) -> None:
    devices = [{"id": 0, "name": "NVIDIA H200"}]
    text = json.dumps({"traceEvents": CALLS, "deviceProperties": devices, "INFO": ["a", "b"]})
    trace = read_trace(write(tmp_path / "t.json", text))
    assert (trace.devices, trace.end) == (["NVIDIA H200"], None)


def test_a_bare_list_of_events_is_a_trace(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path / "t.json", json.dumps(CALLS)))
    assert (counts(trace)[0], trace.end) == (300, None)


def test_several_gzip_files_in_one_are_read_as_one(tmp_path: Path) -> None:
    text = json.dumps(document(CALLS)).encode()
    path = tmp_path / "t.json.gz"
    path.write_bytes(gzip.compress(text[:9000]) + gzip.compress(text[9000:]))
    assert counts(read_trace(path))[0] == 300


@given(cut=st.integers(min_value=60))
def test_a_file_cut_anywhere_gives_the_events_before_the_cut(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    text = json.dumps(document(CALLS[:40]))
    cut = min(cut, len(text) - 3)
    trace = read_trace(write(tmp_path_factory.mktemp("cut") / "t.json", text[:cut]))
    whole = text[:cut].count("}}, {") + text[:cut].endswith("}}")
    assert abs(len(trace.kind) - whole) <= 1
    assert trace.end == "the list of events is not closed"


def test_a_truncated_gzip_gives_what_it_holds_and_says_so(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json.gz", CALLS)
    path.write_bytes(path.read_bytes()[:-400])
    trace = read_trace(path)
    assert 0 < counts(trace)[0] < 300
    assert trace.end == "the gzip data breaks off"


def test_damaged_gzip_data_gives_what_came_before_and_says_so(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json.gz", CALLS)
    packed = bytearray(path.read_bytes())
    packed[len(packed) // 2 :] = b"\x55" * (len(packed) - len(packed) // 2)
    path.write_bytes(packed)
    trace = read_trace(path)
    assert counts(trace)[0] < 300
    assert "gzip" in (trace.end or "")


def test_not_a_number_costs_no_event(tmp_path: Path) -> None:
    odd = [kernel("k", 1, 2, 3, **{"est. achieved occupancy %": float("nan")}) for _ in range(200)]
    infinite = [op("aten::x", 1, 2, value=[float("inf"), -float("inf")])]
    trace = read_trace(write(tmp_path / "t.json", [*odd, *infinite, *CALLS]))
    assert (counts(trace)[0], trace.damaged_events, trace.end) == (500, 0, None)


def test_an_event_without_a_time_is_damaged_and_the_rest_is_read(tmp_path: Path) -> None:
    bad = [kernel("k", float("nan"), 2, 3), kernel("k", 1, 2, 3) | {"ts": "soon"}]
    trace = read_trace(write(tmp_path / "t.json", [*bad, *CALLS]))
    assert (counts(trace)[0], trace.damaged_events) == (300, 2)


def test_an_unescaped_quote_costs_only_its_own_event(tmp_path: Path) -> None:
    text = json.dumps(document([*CALLS, op("NAME", 1, 2), *CALLS]))
    trace = read_trace(write(tmp_path / "t.json", text.replace("NAME", 'a "quoted" name')))
    assert (counts(trace)[0], trace.damaged_events) == (600, 1)


def test_lists_of_objects_inside_an_event_are_not_taken_for_events(tmp_path: Path) -> None:
    nested = [{"name": "inner", "ph": "X"}, {"ph": "X", "cat": "kernel"}]
    events = [op("aten::x", n, 1, groups=nested) for n in range(200)]
    trace = read_trace(write(tmp_path / "t.json", [*events, *CALLS]))
    assert (counts(trace)[0], trace.total_events, trace.end) == (300, 1400, None)


def test_an_event_longer_than_a_piece_is_read(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path / "t.json", [op("x" * 30_000, 1, 2), *CALLS]))
    assert (counts(trace)[Kind.OPERATOR], max(map(len, trace.names))) == (301, 30_000)


@pytest.mark.parametrize(
    ("text", "cause"),
    [("", "empty"), ("hello", 'no "traceEvents"'), ('{"a": 1}', 'no "traceEvents"')],
)
def test_what_is_no_trace_is_refused_with_the_remedy(tmp_path: Path, text: str, cause: str) -> None:
    with pytest.raises(TraceError, match=f"{cause}.*export_chrome_trace"):
        read_trace(write(tmp_path / "t.json", text))


def test_the_schema_of_2020_has_the_same_kinds(tmp_path: Path) -> None:
    old = {"kernel": "Kernel", "cuda_runtime": "Runtime", "cpu_op": "Operator"}
    events = [e | {"cat": old.get(e["cat"], e["cat"])} for e in CALLS]
    assert counts(read_trace(write(tmp_path / "t.json", events))) == [300, 0, 300, 300, 300, 0]


def test_names_that_differ_by_an_address_are_one(tmp_path: Path) -> None:
    events = [frame(f"<built-in method add of Tensor object at 0x{n:x}>", n, 1) for n in range(50)]
    assert len(read_trace(write(tmp_path / "t.json", events)).names) == 1


def test_numbers_of_any_type_are_taken_or_left(tmp_path: Path) -> None:
    odd = [launch(n, c) for n, c in enumerate(["7", 7.0, None, 1 << 70, [1], -3])]  # type: ignore[arg-type]
    links = read_trace(write(tmp_path / "t.json", odd)).link.tolist()
    assert links == [7, 7, -1, -1, -1, -3]
