"""Which arguments the code seems to write."""

from __future__ import annotations

import pytest

from integrations.extraction.writes import written_arguments
from tests.integrations.extraction.conftest import Extract


def written(extract_from: Extract, body: str) -> list[str]:
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    helper = "def fill(out, value):\n    out.copy_(value)\n"
    source = f"import torch\n{helper}def f(x, y, z):\n{lines}\n    return z + 0\n"
    return written_arguments(extract_from({"a.py": source}, "a.py::f").closure)


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ("x.add_(1)", ["x"]),
        ("x[1:] = y", ["x"]),
        ("x[:, 0].copy_(y)", ["x"]),
        ("x *= y", ["x"]),
        ("torch.cumsum(x, 0, out=y)", ["y"]),
        ("torch.relu_(x)", ["x"]),
        ("v = x.view(-1)\nv[0] = 1", ["x"]),
        ("a, b = x.chunk(2)\nb.zero_()", ["x"]),
        ("for row in x:\n    row.zero_()", ["x"]),
        ("fill(y, x)", ["y"]),
        ("fill(value=x, out=y[0])", ["y"]),
        ("if z is None:\n    x = x.clone()\nx.zero_()", ["x"]),
        ("x.t().mul_(2).add_(y)", ["x"]),
    ],
)
def test_a_write_is_seen_through_views_and_helpers(
    extract_from: Extract, body: str, names: list[str]
) -> None:
    assert written(extract_from, body) == names


@pytest.mark.parametrize(
    "body",
    ["x = x + 1\nx.add_(1)", "w = torch.zeros_like(x)\nw.copy_(x)", "w = (x // 2)\nw[0] = 1", "x"],
)
def test_a_write_to_something_new_is_none(extract_from: Extract, body: str) -> None:
    assert written(extract_from, body) == []
