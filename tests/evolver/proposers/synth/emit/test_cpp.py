"""Emitted C++, compiled by g++ and compared with the interpreter of row programs."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluator.backends.cpp import CppBackend
from evaluator.candidate import BackendName
from evaluator.worker.native import compile_and_bind
from tests.evolver.proposers.synth.emit.drawn import (
    SEED,
    check,
    drawn_genes,
    drawn_inputs,
    drawn_program,
    source_of,
)

pytestmark = pytest.mark.real


def compiled(text: str) -> Callable[..., Any]:
    """The entry of a candidate, bound as the evaluator binds it, without ``-O3``."""
    module: dict[str, Any] = {}
    exec(compile(text, "candidate.py", "exec"), module)
    build = asdict(CppBackend().build)
    build["command"] = [("-O1" if word == "-O3" else word) for word in build["command"]]
    library, _ = compile_and_bind(
        module["SOURCE"], module["SIGNATURES"], build, timeout_seconds=120
    )
    module["native"] = library
    entry = module["f"]
    assert callable(entry)
    return entry  # type: ignore[no-any-return]


@given(st.integers(0, 2**32), st.sampled_from((2, 6, 24)))
@settings(max_examples=8, deadline=None)
def test_random_programs_give_what_the_interpreter_gives(seed: int, columns: int) -> None:
    rng = random.Random(seed)
    columns = max(columns, 4)
    program = drawn_program(rng, columns=columns)
    text = source_of(program, drawn_genes(program, rng, on_gpu=False), BackendName.CPP)
    entry = compiled(text)
    for rows in (5, 1, 3):
        inputs = drawn_inputs(columns, SEED, rows)
        check(program, inputs, entry(*inputs.values()), text)
