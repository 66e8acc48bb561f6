"""Which calls become workloads, and how they are spelled in the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from evaluator.workload import ValueKind
from integrations.capture.choosing import choose, of_one_kind
from integrations.capture.describing import arguments_of, reasons_against
from integrations.capture.seen import Form, SeenTensor, SeenValue
from integrations.capture.writing import workloads_text
from integrations.workloads import TensorTemplate, read_workloads


def seen(*shape: int, dtype: str = "float32", **facts: Any) -> SeenValue:
    return SeenValue(tensor=SeenTensor(shape=shape, dtype=dtype, **facts))


def form(calls: int = 1, key: str = "", **changes: Any) -> Form:
    values = changes.pop("values", {"x": seen(calls)})
    defaults: dict[str, Any] = {
        "key": key or str(calls), "calls": calls, "raised": {}, "values": values,
        "constructor": None, "overlaps": {}, "writes": (), "unread": (), "returns": (),
        "grad": False,
    }  # fmt: skip
    return Form(**{**defaults, **changes})


@given(
    calls=st.lists(st.tuples(st.integers(1, 1000), st.integers(0, 10**6)), min_size=1, max_size=30),
    most=st.integers(1, 8),
)
def test_the_chosen_stand_for_every_call(calls: list[tuple[int, int]], most: int) -> None:
    forms = [form(n, str(i), values={"x": seen(s)}) for i, (n, s) in enumerate(calls)]
    chosen = choose(forms, most)
    assert sum(c.calls for c in chosen) == sum(n for n, _ in calls)
    assert len(chosen) == min(most, len(calls))


def test_a_rare_large_call_is_kept_beside_many_small_ones() -> None:
    forms = [form(100 - n, str(n), values={"x": seen(n)}) for n in range(10, 20)]
    prefill = form(30, "prefill", values={"x": seen(4096)})
    kept = choose([*forms, prefill], 2)
    assert [c.form.key for c in kept] == ["10", "prefill"]


def test_calls_with_lists_of_another_length_are_not_of_one_kind() -> None:
    lists = [SeenValue(list=(SeenTensor(shape=(2,), dtype="int64"),) * n) for n in (2, 3)]
    forms = [form(n, str(n), values={"x": x}) for n, x in zip((5, 4), lists, strict=True)]
    kept, others = of_one_kind(forms)
    assert ([f.key for f in kept], [f.key for f in others]) == (["5"], ["4"])


def test_what_cannot_be_a_workload_has_its_reason() -> None:
    given = {
        "token": SeenValue(other="str"),
        "config": SeenValue(other="LlamaConfig"),
        "scale": seen(4, dtype="float8_e4m3fn"),
        "rows": seen(4, 4, strides=(2, 1)),
        "expanded": seen(4, 4, strides=(0, 1)),
    }
    reasons = " | ".join(reasons_against(form(2, values=given, raised={"KeyError": 2}), 1 << 30))
    for told in ("token is a string", "LlamaConfig", "float8_e4m3fn", "rows of rows", "KeyError"):
        assert told in reasons
    assert "expanded" not in reasons
    (large,) = reasons_against(form(values={"x": seen(1 << 20)}), 1 << 20)
    assert "4 MB" in large


def test_a_name_that_untrusted_code_chose_stays_on_one_line() -> None:
    found = form(values={"x\nworkloads: []": SeenValue(other="A\x1b[2J")})
    assert list(found.values) == ["x workloads: []"]
    assert reasons_against(found, 1) == ["x workloads: [] is a A [2J, which is not stored"]


def test_the_file_reads_back_as_what_was_seen(tmp_path: Path) -> None:
    lengths = seen(3, dtype="int32", sample=(0, 5, 7), low=0, high=7, data=(0, 5, 7), ascends=True)
    values = {
        "x": seen(2, 8, strides=(16, 1), sample=(0.1, -3e-7, 2.0), low=-3e-7, high=2.0),
        "y": seen(2, 8, strides=(16, 1)),
        "row": seen(1, 8),
        "lengths": lengths,
        "names": SeenValue(list=(SeenTensor(shape=(2,), dtype="bool"),)),
        "eps": SeenValue(scalar=1e-06),
        "mode": SeenValue(scalar="no: #"),
        "self.norm.weight": seen(2, sample=(1, 1), low=1, high=1, parameter=True),
    }
    one = form(
        3, values=values, overlaps={"y": ("x", "whole"), "row": ("x", "whole")}, writes=("y",)
    )
    notes: list[str] = []
    arguments = [arguments_of(one, {}, notes)]
    path = tmp_path / "w.yml"
    path.write_text(workloads_text(["of it"], choose([one], 1), arguments, ["y"], notes))
    found = read_workloads(path)
    (workload,) = found.workloads
    assert (workload.weight, found.contract.seen_writes) == (3, ("y",))
    assert found.arguments["eps"] == 1e-06
    assert found.arguments["mode"] == "no: #"
    tensors = {n: t for n, t in found.arguments.items() if isinstance(t, TensorTemplate)}
    assert tensors["y"].alias_of == "x"
    assert (tensors["x"].strides, tensors["row"].strides) == ((16, 1), (8, 1))
    assert tensors["lengths"].values is not None
    assert tensors["lengths"].values.data == (0, 5, 7)
    assert tensors["norm__weight"].values is not None
    assert tensors["norm__weight"].values.kind is ValueKind.UNIFORM
    assert notes == ["names_0: its elements were not read"]
