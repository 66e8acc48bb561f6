from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from integrations.errors import WorkloadsError
from integrations.workloads import (
    UserWorkloads,
    common_scalars,
    expand,
    read_workloads,
    without_lists,
)

GOOD = """\
arguments:
  x: {shape: [n, 2 * n + 1], dtype: bfloat16}
  ids: {shape: [n], dtype: int32, values: {kind: integers, low: 0, high: n}}
  eps: 1e-6
  text: "1e-6"
workloads:
  - {name: small, symbols: {n: 3}}
  - {name: odd, symbols: {n: 7}, weight: 2, held_out: true, arguments: {eps: 1.5e3}}
"""


def read(tmp_path: Path, text: str) -> UserWorkloads:
    path = tmp_path / "w.yml"
    path.write_text(text, encoding="utf-8")
    return read_workloads(path)


def test_symbols_are_replaced_per_workload(tmp_path: Path) -> None:
    small, odd = expand(read(tmp_path, GOOD), ("x", "ids", "eps", "text"), {})
    assert small.tensors["x"].shape == (3, 7)
    assert odd.tensors["x"].shape == (7, 15)
    assert odd.tensors["ids"].values.high == 7
    assert (odd.held_out, odd.weight) == (True, 2)


def test_a_number_in_scientific_notation_is_a_number_and_a_quoted_one_is_text(
    tmp_path: Path,
) -> None:
    small, odd = expand(read(tmp_path, GOOD), ("x", "ids", "eps", "text"), {})
    assert small.scalars == {"eps": 1e-6, "text": "1e-6"}
    assert odd.scalars["eps"] == 1500.0


def test_a_default_fills_in_what_the_file_leaves_out(tmp_path: Path) -> None:
    (one, _) = expand(read(tmp_path, GOOD), ("x", "ids", "eps", "text", "k"), {"k": None})
    assert one.arguments["k"] is None


def test_only_scalars_that_agree_everywhere_are_common(tmp_path: Path) -> None:
    common = common_scalars(read(tmp_path, GOOD), {"k": 2})
    assert common == {"text": "1e-6", "k": 2}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("weight: 2", "wieght: 2"), "w.yml:8: unknown key workloads.1.wieght"),
        (("dtype: bfloat16", "dtype: bf16"), r"w.yml:2: arguments.x.dtype: input should be"),
        (("eps: 1e-6", "eps: 1\n  eps: 2"), "w.yml:5: eps is given twice"),
        (("workloads:", "workload:"), r"unknown key workload|field required"),
        (("- {name: small", "- {name: [small"), "is not YAML"),
    ],
)
def test_a_mistake_is_reported_with_its_line(
    tmp_path: Path, change: tuple[str, str], message: str
) -> None:
    with pytest.raises(WorkloadsError, match=message):
        read(tmp_path, GOOD.replace(*change, 1))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (("x", "ids", "eps", "text", "k"), "no value for k"),
        (("x", "ids", "eps"), "name text, which the target does not take"),
    ],
)
def test_workloads_that_do_not_fit_the_target_are_refused(
    tmp_path: Path, parameters: tuple[str, ...], message: str
) -> None:
    with pytest.raises(WorkloadsError, match=message):
        expand(read(tmp_path, GOOD), parameters, {})


@pytest.mark.parametrize("extent", ["m", "n ** 2", "n.real", "__import__('os')", "n // 0", "1 +"])
def test_an_extent_is_arithmetic_on_known_symbols_and_nothing_else(
    tmp_path: Path, extent: str
) -> None:
    text = GOOD.replace("2 * n + 1", f'"{extent}"')
    with pytest.raises(WorkloadsError, match=r"symbol m has no value|is not an extent"):
        expand(read(tmp_path, text), ("x", "ids", "eps", "text"), {})


@given(st.integers(0, 10**6), st.integers(0, 1000), st.integers(1, 1000))
def test_extents_compute_as_python_does(n: int, plus: int, by: int) -> None:
    user = UserWorkloads.model_validate(
        {
            "arguments": {"x": {"shape": [f"(n + {plus}) // {by}"]}},
            "workloads": [{"name": "w", "symbols": {"n": n}}],
        }
    )
    assert expand(user, ("x",), {})[0].tensors["x"].shape == ((n + plus) // by,)


@pytest.mark.parametrize("text", ["a: &a [*a]", "a: " + "[" * 5000, "a: [", "\x01", "", "[]"])
def test_what_is_no_workloads_file_is_one_sentence(tmp_path: Path, text: str) -> None:
    with pytest.raises(WorkloadsError) as raised:
        read(tmp_path, text)
    assert len(str(raised.value).splitlines()) == 1
    assert str(tmp_path / "w.yml") in str(raised.value)


def test_members_of_a_list_get_names_of_their_own(tmp_path: Path) -> None:
    text = (
        "arguments: {parts: [{shape: [n]}, {shape: [2]}]}\nworkloads: [{name: a, symbols: {n: 3}}]"
    )
    flat, lists = without_lists(read(tmp_path, text))
    (workload,) = expand(flat, ("parts_0", "parts_1"), {})
    assert [t.shape for t in workload.tensors.values()] == [(3,), (2,)]
    assert lists == {"parts": 2}


@pytest.mark.parametrize("other", ["[{shape: [2]}]", "null", "{shape: [2]}"])
def test_a_list_has_one_length_in_every_workload(tmp_path: Path, other: str) -> None:
    text = "arguments: {parts: [{shape: [1]}, {shape: [2]}]}\n"
    text += f"workloads: [{{name: a}}, {{name: b, arguments: {{parts: {other}}}}}]"
    with pytest.raises(WorkloadsError, match="parts must be a list of one length"):
        without_lists(read(tmp_path, text))
