"""A sample of mutants through real compilers, and numbers from those that can run here."""

from __future__ import annotations

import ctypes
import json
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from evaluator.candidate import BackendName
from evolver.proposers.mutate import OPERATORS, mutate
from tests.evolver.proposers.mutate.parents import (
    CPP_PARENTS,
    EMITTED_CPP,
    EMITTED_TRITON,
    TRITON_PARENTS,
)

pytestmark = pytest.mark.real

ARGUMENTS = {
    "rms_norm": [[3, 520], [3, 520], [520], 1e-6],
    "rms_norm, by shape": [[32, 256], [32, 256], [256], 1e-6],
    "softmax": [[64, 1000]],
    "route": [[64, 32], [32], 4],
    "rotary": [[16, 8, 64], [16, 2, 64], [16, 64], [16, 64]],
    "gated": [[7, 300], [7, 300]],
}
"""Of the emitted parents: shapes and numbers, by the parent's name or its entry's."""
STRUCTURAL = (
    "one_pass",
    "fuse",
    "split",
    "fission",
    "reuse",
    "index",
    "division",
    "exponential",
    "accumulate",
)
SHAPES = {"rms_norm": [[6, 96], [96]], "silu": [[500]], "row_max": [[9, 100]], "double": [[4096]]}
FLAGS = ["-std=c++17", "-O3", "-march=native", "-fopenmp", "-fPIC", "-shared"]
FLAGS += ["-fno-math-errno", "-fno-trapping-math", "-Wall", "-Wno-unused-variable", "-Werror"]


def descendants(source: str, backend: BackendName, count: int) -> list[tuple[str, str]]:
    """Return ``count`` mutants of one to four generations, with what was done to each."""
    found: list[tuple[str, str]] = []
    for seed in range(count):
        rng, current, done = random.Random(seed), source, []
        for _ in range(1 + seed % 4):
            edit = mutate(current, backend, rng)
            assert edit is not None
            current = edit.source
            done.append(edit.description)
        found.append((current, "; ".join(done)))
    return found


def job(source: str, parent: str, entry: str, arguments: list[object]) -> dict[str, object]:
    return {"source": source, "parent": parent, "entry": entry, "arguments": arguments}


def structural(
    operators: tuple[str, ...] = STRUCTURAL,
) -> tuple[list[str], list[dict[str, object]]]:
    """Return every structural edit of the emitted parents, as text and as jobs."""
    labels: list[str] = []
    jobs: list[dict[str, object]] = []
    for name, parent in EMITTED_TRITON.items():
        entry = name.split(",")[0]
        for operator in (o for o in OPERATORS[BackendName.TRITON] if o.name in operators):
            for option in operator.options(parent):
                labels.append(f"{operator.name}: {option.description}")
                jobs.append(
                    job(option.build(), parent, entry, ARGUMENTS.get(name, ARGUMENTS[entry]))
                )
    return labels, jobs


def run_triton(mode: str, jobs: list[dict[str, object]]) -> list[object]:
    runner = Path(__file__).with_name("triton_runner.py")
    done = subprocess.run(
        [sys.executable, str(runner), mode], input=json.dumps(jobs), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", ["rms_norm", "silu"])
def test_triton_mutants_compile_for_sm_90(name) -> None:
    mutants = descendants(TRITON_PARENTS[name], BackendName.TRITON, 8)
    jobs = [job(s, TRITON_PARENTS[name], name, SHAPES[name]) for s, _ in mutants]
    for (_, description), sizes in zip(mutants, run_triton("compile", jobs), strict=True):
        assert sizes, description


def test_every_cache_hint_and_loop_hint_compiles_for_sm_90() -> None:
    source = TRITON_PARENTS["rms_norm"]
    hints = [
        option
        for operator in OPERATORS[BackendName.TRITON]
        if operator.name in ("cache_hint", "loop_hint")
        for option in operator.options(source)
        if "weight_ptr" in option.description or "load" not in option.description
    ]
    jobs = [job(o.build(), source, "rms_norm", SHAPES["rms_norm"]) for o in hints]
    assert all(run_triton("compile", jobs))


def test_triton_mutants_compute_what_their_parent_computes() -> None:
    # The interpreter has no libdevice: the parent takes Triton's own rsqrt instead.
    parents = {n: s.replace("libdevice.rsqrt", "tl.rsqrt") for n, s in TRITON_PARENTS.items()}
    mutants = [
        (name, *mutant)
        for name, source in parents.items()
        for mutant in descendants(source, BackendName.TRITON, 8)
    ]
    jobs = [job(s, parents[n], n, SHAPES[n]) for n, s, _ in mutants]
    for (name, _, done), error in zip(mutants, run_triton("interpret", jobs), strict=True):
        assert error <= 1e-5, f"{name}: {done}"


def test_every_structural_edit_computes_what_its_parent_computes() -> None:
    labels, jobs = structural()
    # No emitted block loads the same twice; `reuse` works inside `one_pass` and `fuse`.
    assert {label.split(":")[0] for label in labels} == {*STRUCTURAL} - {"reuse"}
    for label, error in zip(labels, run_triton("interpret", jobs), strict=True):
        assert error <= 1e-5, label


def test_every_structural_edit_compiles_for_sm_90() -> None:
    labels, jobs = structural(("one_pass", "fuse", "split", "fission", "accumulate"))
    for label, sizes in zip(labels, run_triton("compile", jobs), strict=True):
        assert sizes, label


def test_generations_of_emitted_parents_compute_what_their_parent_computes() -> None:
    labels: list[str] = []
    jobs: list[dict[str, object]] = []
    for name, parent in EMITTED_TRITON.items():
        entry = name.split(",")[0]
        for source, done in descendants(parent, BackendName.TRITON, 4):
            labels.append(f"{name}: {done}")
            jobs.append(job(source, parent, entry, ARGUMENTS.get(name, ARGUMENTS[entry])))
    for label, error in zip(labels, run_triton("interpret", jobs), strict=True):
        assert error <= 1e-5, label


def compiled(source: str, folder: Path) -> ctypes.CDLL:
    names: dict[str, str] = {}
    exec(source.split("SIGNATURES")[0].replace("import torch", ""), names)
    (folder / "candidate.cpp").write_text(names["SOURCE"])
    done = subprocess.run(
        ["g++", *FLAGS, "candidate.cpp", "-o", "candidate.so"],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr + names["SOURCE"]
    return ctypes.CDLL(str(folder / "candidate.so"))


def pointer(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def aligned(rows: int, columns: int) -> np.ndarray:
    """An array on a 64-byte boundary, where torch's allocator would put it."""
    memory = np.zeros(rows * columns + 16, np.float32)
    start = (-memory.ctypes.data % 64) // 4
    return memory[start : start + rows * columns].reshape(rows, columns)


@pytest.mark.parametrize("seed", range(12))
def test_cpp_mutants_compile_and_compute_the_rms_norm(seed, tmp_path) -> None:
    source, description = descendants(CPP_PARENTS["rms_norm"], BackendName.CPP, 12)[seed]
    rng = np.random.default_rng(seed)
    x, weight = (rng.standard_normal(s).astype(np.float32) for s in ((37, 130), (130,)))
    out = aligned(37, 130)
    kernel = compiled(source, tmp_path).rms_norm_kernel
    kernel(*map(pointer, (x, weight, out)), ctypes.c_int64(37), ctypes.c_int64(130))
    exact = x / np.sqrt((x.astype(np.float64) ** 2).mean(-1, keepdims=True) + 1e-6) * weight
    np.testing.assert_allclose(out, exact, rtol=2e-5, atol=1e-6, err_msg=description)


@pytest.mark.parametrize("seed", range(12))
def test_cpp_mutants_compile_and_double_exactly(seed, tmp_path) -> None:
    source, description = descendants(CPP_PARENTS["scale"], BackendName.CPP, 12)[seed]
    x = np.random.default_rng(seed).standard_normal((5, 1025)).astype(np.float32)
    out = aligned(5, 1025)
    kernel = compiled(source, tmp_path).scale_kernel
    kernel(pointer(x), pointer(out), ctypes.c_int64(5), ctypes.c_int64(1025))
    np.testing.assert_array_equal(out, 2 * x, err_msg=description)


@pytest.mark.parametrize("seed", range(6))
def test_fused_cpp_loops_and_their_descendants_compute_the_softmax(seed, tmp_path) -> None:
    parent = EMITTED_CPP["softmax, a loop per operator"]
    fuse = next(o for o in OPERATORS[BackendName.CPP] if o.name == "fuse")
    rng, source, done = random.Random(seed), parent, []
    for _ in range(1 + seed % 3):
        edit = fuse.apply(source, rng)
        assert edit is not None
        source, done = edit.source, [*done, edit.description]
    edit = mutate(source, BackendName.CPP, rng)
    assert edit is not None
    x = np.random.default_rng(seed).standard_normal((64, 1000)).astype(np.float32)
    buffers = [aligned(64, 1), aligned(64, 1000), aligned(64, 1), aligned(64, 1000)]
    compiled(edit.source, tmp_path).softmax_kernel(*map(pointer, (x, *buffers)))
    exact = np.exp(x.astype(np.float64))
    exact /= exact.sum(-1, keepdims=True)
    what = "; ".join([*done, edit.description])
    np.testing.assert_allclose(buffers[-1], exact, rtol=2e-5, atol=1e-7, err_msg=what)
