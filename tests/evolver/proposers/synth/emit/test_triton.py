"""Emitted Triton, run in the interpreter and compared with the interpreter of row programs."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from evaluator.candidate import BackendName
from evolver.proposers.synth.emit import EmitError
from tests.evolver.proposers.synth.emit import interpret
from tests.evolver.proposers.synth.emit.drawn import (
    SEED,
    check,
    drawn_genes,
    drawn_inputs,
    drawn_program,
    source_of,
)

pytestmark = pytest.mark.real

PROGRAMS = 24
COLUMNS = (4, 6, 16, 24)


def test_random_programs_give_what_the_interpreter_gives(tmp_path: Path) -> None:
    written = []
    for seed in range(PROGRAMS):
        rng = random.Random(seed)
        columns = COLUMNS[seed % len(COLUMNS)]
        program = drawn_program(rng, columns=columns)
        try:
            text = source_of(program, drawn_genes(program, rng, on_gpu=True), BackendName.TRITON)
        except EmitError:
            continue
        path = tmp_path / f"case_{seed:02}.py"
        path.write_text(text, encoding="utf-8")
        torch.save(drawn_inputs(columns, SEED), path.with_suffix(".in"))
        written.append((path, program, text))
    assert len(written) > PROGRAMS // 2
    done = subprocess.run(
        [sys.executable, "-P", "-m", interpret.__name__, str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[5],
        env={"PYTHONPATH": str(Path(__file__).parents[5]), "PATH": "/usr/bin:/bin"},
    )
    assert done.returncode == 0, done.stderr
    for path, program, text in written:
        returned, inputs = torch.load(path.with_suffix(".out"))
        check(program, inputs, returned, text)
