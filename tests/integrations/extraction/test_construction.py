"""Classes whose ``self`` holds modules, arguments that are lists: what only running can call."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from evaluator.problem import load_problem
from integrations.errors import Refused, WorkloadsError, WorkloadsNeeded
from integrations.extraction.pipeline import extract
from tests.integrations.extraction.conftest import Extract, WriteRepo

MIXER = {
    "mixer.py": """\
        import torch
        import missing_tokenizers
        from torch import nn

        device = "cuda"
        streams = 2

        class Norm(nn.Module):
            def __init__(self, width):
                super().__init__()
                self.weight = nn.Parameter(torch.rand(width))

            def forward(self, x):
                return x * self.weight

        class Mixer(nn.Module):
            def __init__(self, width: int, taps: int = 2):
                super().__init__()
                self.proj = nn.Linear(width, width, device=device)
                self.norms = nn.ModuleList([Norm(width) for _ in range(taps)])

            def tokens(self, text):
                return missing_tokenizers.split(text)

            def gate(self, x):
                return torch.sigmoid(self.proj(x))

            def forward(self, x):
                return sum(norm(self.gate(x)) for norm in self.norms) / streams
        """
}
WORKLOADS = """\
constructor: {width: 8}
arguments:
  x: {shape: [n, 8]}
workloads:
  - {name: small, symbols: {n: 5}}
"""


def test_a_class_that_holds_modules_is_kept_with_its_constructor(extract_from: Extract) -> None:
    found = extract_from(MIXER, "mixer.py::Mixer", constructed=True)
    kept = next(n for n in ast.walk(ast.parse(found.source)) if getattr(n, "name", "") == "Mixer")
    assert isinstance(kept, ast.ClassDef)
    assert [getattr(s, "name", "") for s in kept.body] == ["__init__", "gate", "forward"]
    assert "streams = 2" in found.source
    assert "device=None" in found.source
    assert [a.kind for a in found.assumptions] == ["device"]


def test_a_call_that_changes_its_module_is_refused(extract_from: Extract) -> None:
    source = MIXER["mixer.py"].replace("return sum(", "self.last = x\n        return sum(")
    with pytest.raises(Refused, match=r"assigns self\.last"):
        extract_from({"mixer.py": source}, "mixer.py::Mixer", constructed=True)


@pytest.mark.parametrize(
    "made",
    ["self.scale = torch.ones(width)", "self.register_buffer('s', None, persistent=False)"],
)
def test_a_tensor_that_is_no_state_is_refused(extract_from: Extract, made: str) -> None:
    source = MIXER["mixer.py"].replace("self.proj = ", f"{made}\n                self.proj = ")
    with pytest.raises(Refused, match=r"no parameter and no buffer|not in the state_dict"):
        extract_from({"mixer.py": source}, "mixer.py::Mixer", constructed=True)


def test_without_a_constructor_the_template_asks_for_one(
    write_repo: WriteRepo, tmp_path: Path
) -> None:
    with pytest.raises(WorkloadsNeeded) as needed:
        extract("mixer.py::Mixer", write_repo(MIXER), tmp_path / "p")
    assert "constructor:" in (text := needed.value.template.read_text())
    assert "  width: FIXME\n  taps: 2\n" in text


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("{width: 8}", "{taps: 3}", "no value for width"),
        ("{width: 8}", "{width: 8, depth: 1}", "constructor names depth"),
    ],
)
def test_a_constructor_that_does_not_fit_is_wrong_use(
    write_repo: WriteRepo, tmp_path: Path, old: str, new: str, message: str
) -> None:
    mine = tmp_path / "mine.yml"
    mine.write_text(WORKLOADS.replace(old, new))
    with pytest.raises(WorkloadsError, match=message):
        extract("mixer.py::Mixer", write_repo(MIXER), tmp_path / "p", workloads=mine)


@pytest.mark.sandbox
def test_parameters_of_a_constructed_class_become_state(
    write_repo: WriteRepo, tmp_path: Path
) -> None:
    mine, output = tmp_path / "mine.yml", tmp_path / "p"
    mine.write_text(WORKLOADS)
    extract("mixer.py::Mixer", write_repo(MIXER), output, workloads=mine)
    problem = load_problem(output).problem
    assert problem.entry.constructor == (8, 2)
    assert problem.state == (
        "proj__weight",
        "proj__bias",
        "norms__0__weight",
        "norms__1__weight",
    )


@pytest.mark.sandbox
def test_lists_of_tensors_come_one_by_one(write_repo: WriteRepo, tmp_path: Path) -> None:
    source = """\
        import torch

        def gather(parts, out):
            out[: parts[0].shape[0]].copy_(torch.cat(parts, dim=1))
            return out
        """
    mine, output = tmp_path / "mine.yml", tmp_path / "p"
    mine.write_text(
        "arguments:\n  parts: [{shape: [n, 2]}, {shape: [n, 3]}]\n  out: {shape: [9, 5]}\n"
        "workloads: [{name: a, symbols: {n: 4}}, {name: b, symbols: {n: 9}}]\n"
    )
    extract("a.py::gather", write_repo({"a.py": source}), output, workloads=mine)
    problem = load_problem(output).problem
    assert problem.arguments == ("parts_0", "parts_1", "out")
    assert problem.entry.function == "gather_of_tensors"
    assert problem.contract.writes == ("out",)
