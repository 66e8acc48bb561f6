"""Problem directories as users leave them."""

from __future__ import annotations

from pathlib import Path

import pytest

from evaluator.errors import ProblemError
from evaluator.problem import load_problem
from tests.builders import make_problem, save_problem

MALFORMED = {
    "empty": b"",
    "not YAML": b"a: [",
    "not UTF-8": b"\xff\xfe\x00",
    "a list": b"[]",
    "code": b"!!python/object/apply:os.system ['true']",
    "holds itself": b"a: &a\n  b: *a\n",
    "nested without end": b"a: " + b"[" * 5000 + b"]" * 5000,
}


@pytest.fixture
def problem(tmp_path: Path) -> Path:
    return save_problem(make_problem(), tmp_path / "problem")


def complaint_about(problem: Path) -> str:
    with pytest.raises(ProblemError) as raised:
        load_problem(problem)
    message = str(raised.value)
    assert len(message.splitlines()) == 1
    assert str(problem) in message
    return message


@pytest.mark.parametrize("kind", MALFORMED)
def test_a_malformed_description_is_one_sentence_with_the_place(problem: Path, kind: str) -> None:
    (problem / "problem.yaml").write_bytes(MALFORMED[kind])
    assert "problem.yaml is malformed" in complaint_about(problem)


def test_an_unknown_key_is_named(problem: Path) -> None:
    with (problem / "problem.yaml").open("a") as file:
        file.write("toelrance: {}\n")
    assert "toelrance" in complaint_about(problem)


@pytest.mark.parametrize("content", [b"\xff\xfe", b"def rms_norm(x): ...\n"])
def test_an_edited_reference_is_told_with_its_remedy(problem: Path, content: bytes) -> None:
    (problem / "reference.py").write_bytes(content)
    assert "extract again" in complaint_about(problem)


@pytest.mark.parametrize("name", ["problem.yaml", "reference.py"])
def test_a_missing_file_is_named(problem: Path, name: str) -> None:
    (problem / name).unlink()
    assert name in complaint_about(problem)
