"""How any command fails: one message, one exit code, one JSON object, no traceback."""

from __future__ import annotations

import errno
import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from cli.failures import Interrupted, tell_failure
from cli.main import main
from evaluator.errors import ProblemError, SandboxUnavailable
from integrations.patch.errors import BranchExists, BranchNameInvalid

COMMANDS = {
    "doctor": ["surplus"],
    "demo": ["--minutes", "0"],
    "extract": ["ops.py::f"],
    "optimize": ["nowhere"],
    "evaluate": ["nowhere", "nothing.py"],
    "integrate": ["nowhere", "--repo", "."],
    "verify": ["nowhere", "--repo", "."],
    "report": ["nowhere"],
    "bench": ["first-path", "--repos", "nowhere"],
    "frobnicate": [],
}


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["ksmith", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0)


@pytest.mark.parametrize("command", COMMANDS)
def test_wrong_use_of_any_command_is_told_to_people_and_to_machines(
    command: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(monkeypatch, command, *COMMANDS[command], "--json") == 2
    printed = capsys.readouterr()
    failure = json.loads(printed.out)
    assert failure["exit_code"] == 2
    assert failure["error"] in printed.err
    assert "Traceback" not in printed.err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("backend", ["fortran", "", "CPP"])
@pytest.mark.parametrize(
    "words",
    [["optimize", "p"], ["evaluate", "p", "c.py"], ["bench", "first-path", "--repos", "."]],
    ids=lambda words: words[0],
)
def test_an_unknown_backend_is_wrong_use_everywhere(
    words: list[str],
    backend: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("c.py").write_text("x = 1\n")
    (tmp_path / "p").mkdir()
    assert run(monkeypatch, *words, "--backend", backend) == 2
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "/full/x"), 3, ("/full/x", "free some")),
        (OSError(errno.EACCES, "Permission denied", "/root/x"), 3, ("/root/x", "permissions")),
        (OSError(errno.ENAMETOOLONG, "File name too long", "x"), 2, ("shorter",)),
        (shutil.Error([("a", "b", "[Errno 28] No space: 'b'")]), 3, ("No space", "'b'")),
        (OSError("odd"), 3, ("odd",)),
        (SandboxUnavailable("no bubblewrap"), 3, ("no bubblewrap",)),
        (ProblemError("not a problem"), 2, ("not a problem",)),
        (BranchExists("main is there"), 2, ("main",)),
        (BranchNameInvalid("x..y"), 2, ("x..y",)),
        (Interrupted("continue with: x"), 130, ("continue with: x",)),
    ],
)
def test_an_expected_failure_is_one_sentence(
    error: Exception, code: int, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert tell_failure(error, as_json=True) == code
    printed = capsys.readouterr()
    assert len(printed.err.splitlines()) == 1
    assert all(word in printed.err for word in words)
    assert json.loads(printed.out)["exit_code"] == code


def test_a_bug_shows_its_traceback_and_never_answers_no(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(KeyError) as raised:
        {}["what"]
    assert tell_failure(raised.value, as_json=True) == 3
    printed = capsys.readouterr()
    assert "Traceback" in printed.err
    assert "please report it" in json.loads(printed.out)["error"]


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"x = 1\0", b"x = " + b"1+" * 9000 + b"1"])
def test_a_candidate_that_cannot_be_read_is_wrong_use(
    content: bytes,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    from tests.builders import make_problem, save_problem

    problem = save_problem(make_problem(), tmp_path / "p")
    candidate = tmp_path / os.fsdecode("sp é\n.py".encode())
    candidate.write_bytes(content)
    assert run(monkeypatch, "evaluate", str(problem), str(candidate)) == 2
    assert "Traceback" not in capsys.readouterr().err
