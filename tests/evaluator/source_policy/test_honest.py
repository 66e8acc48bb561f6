"""Honest candidates raise no violation: our own proposers', and real kernels of others."""

from __future__ import annotations

import ast
import random
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from evaluator.candidate import BackendName
from evaluator.source_policy import Violation
from evolver.proposers.mutate import OPERATORS, mutate
from tests import samples
from tests.evaluator.source_policy.checking import check, check_parts, refusals
from tests.evaluator.source_policy.honest_cpp import KERNELS
from tests.evolver.proposers.compiler import test_cpp_emission as emission
from tests.evolver.proposers.compiler.test_triton_module import make_module
from tests.evolver.proposers.mutate.parents import CPP_PARENTS, TRITON_PARENTS
from tests.real_repos import real_repo

PARENTS = [(n, s, BackendName.CPP) for n, s in CPP_PARENTS.items()]
PARENTS += [(n, s, BackendName.TRITON) for n, s in TRITON_PARENTS.items()]


@pytest.mark.parametrize(
    ("entry", "source", "backend"),
    [
        ("rms_norm", samples.RMS_NORM_CPP, BackendName.CPP),
        ("rms_norm", samples.RMS_NORM_CUDA, BackendName.CUDA),
        ("rotary", samples.ROTARY_CPP, BackendName.CPP),
        ("rms_norm", samples.RMS_NORM_TRITON, BackendName.TRITON),
        ("square_sum", make_module(), BackendName.TRITON),
        *PARENTS,
    ],
)
def test_our_own_candidates_pass(entry: str, source: str, backend: BackendName) -> None:
    assert check(source, entry=entry, backend=backend) == []


@pytest.mark.parametrize(("entry", "source", "backend"), PARENTS)
def test_every_mutation_of_our_own_candidates_passes(
    entry: str, source: str, backend: BackendName
) -> None:
    children = [o.build() for operator in OPERATORS[backend] for o in operator.options(source)]
    edit = mutate(source, backend, random.Random(0))
    assert edit is not None
    assert children
    for child in [*children, edit.source]:
        assert check(child, entry=entry, backend=backend) == [], child


@pytest.mark.parametrize("name", KERNELS)
def test_hand_written_kernels_pass(name: str) -> None:
    assert check_parts(cpp=KERNELS[name]) == []


@pytest.mark.real
@pytest.mark.parametrize("name", KERNELS)
def test_hand_written_kernels_compile(name: str) -> None:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no g++")
    command = [compiler, "-std=c++17", "-fopenmp", "-march=native", "-fsyntax-only", "-xc++", "-"]
    done = subprocess.run(command, input=KERNELS[name], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.real
@pytest.mark.parametrize("function", ["softmax", "layer_norm", "gated", "gelu", "largest"])
def test_what_the_compiler_emits_in_cpp_passes(function: str) -> None:
    values = [emission.normal(4, 64), *([emission.normal(64)] if function == "layer_norm" else [])]
    arguments = ("x", "weight")[: len(values)]
    wanted = emission.request(emission.SMALL, function, [values], arguments=arguments)
    found = emission.variants(wanted)
    assert found
    for variant in found:
        assert refusals(check(variant.source, entry="entry")) == [], variant.source


def test_judging_a_usual_candidate_costs_at_most_two_hundred_compilations() -> None:
    """Some 20 ms; told in the machine's own measure, since a slow one is no fault of ours."""
    source = samples.RMS_NORM_TRITON
    judged = _fastest_of(lambda: check(source, entry="rms_norm", backend=BackendName.TRITON))
    compiled = _fastest_of(lambda: compile(source, "candidate.py", "exec"))
    assert judged < 200 * compiled


def _fastest_of(work: Callable[[], object], times: int = 7) -> float:
    """Return the CPU seconds of the fastest of some runs."""
    durations = []
    for _ in range(times):
        start = time.process_time()
        work()
        durations.append(time.process_time() - start)
    return min(durations)


HEAD = """\
import math
import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

"""
WRAPPER = """

def entry(x):
    out = torch.empty_like(x)
    {name}[(triton.cdiv(x.numel(), 128),)](x, out, x.numel(), x.stride(0))
    return out
"""


def kernels_of(package: Path) -> Iterator[tuple[str, str]]:
    """Each ``@triton.jit`` function below ``package`` as a candidate, with where it is."""
    for path in sorted(package.rglob("*.py")):
        text = path.read_text(encoding="utf-8", errors="replace")
        if "jit" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef) and _is_jit(node):
                node.decorator_list = [d for d in node.decorator_list if _is_jit_decorator(d)]
                wrapper = WRAPPER.format(name=node.name)
                yield f"{path}::{node.name}", HEAD + ast.unparse(node) + wrapper


def _is_jit(function: ast.FunctionDef) -> bool:
    return any(_is_jit_decorator(d) for d in function.decorator_list)


def _is_jit_decorator(decorator: ast.expr) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return ast.unparse(called) == "triton.jit"


def _is_inline_assembly(found: Violation) -> bool:
    return found.rule == "inline-asm"


@pytest.mark.real
@pytest.mark.parametrize(
    ("name", "at_least"), [("lmdeploy", 120), ("sglang", 700), ("liger-kernel", 150)]
)
def test_the_kernels_of_a_real_package_pass(name: str, at_least: int) -> None:
    package = real_repo(name)
    checked = assembly = 0
    for where, source in kernels_of(package):
        found = check(source, backend=BackendName.TRITON)
        checked += 1
        assembly += any(map(_is_inline_assembly, found))
        assert [str(v) for v in found if not _is_inline_assembly(v)] == [], where
    print(f"{name}: {checked} kernels checked, {assembly} refused for inline assembly")
    assert checked >= at_least
    assert assembly <= checked * 0.1
