from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.failures import ExitCode
from cli.main import app
from tests.builders import make_problem, save_problem

pytestmark = [pytest.mark.real, pytest.mark.sandbox]


def explained(folder: Path, *options: str) -> tuple[int, str]:
    result = CliRunner().invoke(
        app, ["synth", "explain", str(folder), "--backend", "cpp", *options]
    )
    return result.exit_code, result.stdout


def test_what_is_fused_is_told_with_its_lines(tmp_path: Path) -> None:
    folder = save_problem(make_problem("router"), tmp_path / "router")
    code, text = explained(folder, "--program")
    assert code == ExitCode.DONE
    assert "1 launch" in text
    assert "lines 6, 7, 8" in text
    assert "topk by packed" in text
    assert "return %" in text


def test_what_cannot_be_lowered_is_told_with_operator_and_line(tmp_path: Path) -> None:
    head = "import torch\n\n\ndef rms_norm(x, residual, weight, eps):\n"
    source = f"{head}    return x @ torch.inverse(x)\n"
    folder = save_problem(make_problem("rms_norm", source=source), tmp_path / "inverse")
    code, text = explained(folder, "--json")
    assert code == ExitCode.NO
    found = json.loads(text)
    told = json.dumps(found)
    assert "line 5" in told or '"line": 5' in told
