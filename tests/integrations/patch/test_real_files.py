"""Dispatches in files of SGLang and LMDeploy as published: parsed, never imported."""

from __future__ import annotations

import ast
import os
import shutil
from pathlib import Path

import pytest

from evaluator.problem import Contract, Entry, LoadedProblem, Origin, Output
from evaluator.workload import Workload
from integrations.patch import integrate
from tests.builders import make_candidate, make_problem, make_tensor
from tests.integrations.patch.repositories import confirmed, git, make_repository

pytestmark = pytest.mark.real

REPOS = os.environ.get("KSMITH_REAL_REPOS")
CANDIDATE = """\
import torch

SOURCE = ""
SIGNATURES = {}


def fused(*arguments):
    return arguments
"""
_DEFAULT = "lmdeploy/lmdeploy/pytorch/backends/default"
TARGETS = {
    f"{_DEFAULT}/moe_router.py::DefaultRouterNoauxTCImpl.forward": (
        ("logits", "bias"),
        ("scoring_func", "top_k", "renormalize"),
        "from . import moe_router_forward_kernel",
    ),
    f"{_DEFAULT}/apply_rotary_emb.py::DefaultApplyRotaryEmbImpl.forward": (
        ("query", "key", "cos", "sin", "inplace", "complex_mode"),
        (),
        "from . import apply_rotary_emb_forward_kernel",
    ),
    "sglang/sglang/srt/layers/layernorm.py::RMSNorm.forward_native": (
        ("x", "residual", "post_residual_addition", "quant_linear"),
        ("weight", "variance_epsilon"),
        "from sglang.srt.layers import layernorm_forward_native_kernel",
    ),
}


def problem_for(target: str, arguments: tuple[str, ...], state: tuple[str, ...]) -> LoadedProblem:
    names = (*arguments, *state)
    first = {names[0]: make_tensor(4, 8)}
    return make_problem(
        id="real",
        origin=Origin(repository="published", target=target),
        entry=Entry(function="forward", class_name="C", candidate_function="fused"),
        arguments=arguments,
        state=state,
        contract=Contract(outputs=(Output(),), returns_tuple=False),
        workloads=(Workload(name="w", arguments={**dict.fromkeys(names), **first}),),
    )


@pytest.mark.skipif(REPOS is None, reason="KSMITH_REAL_REPOS is not set (`make real` sets it)")
@pytest.mark.parametrize("target", TARGETS)
def test_only_lines_are_added_to_a_published_file(target: str, tmp_path: Path) -> None:
    arguments, state, expected_import = TARGETS[target]
    name, _, inside = target.partition("/")
    path = inside.partition("::")[0]
    source = Path(str(REPOS)) / name / path
    copy = tmp_path / "copy" / path
    copy.parent.mkdir(parents=True)
    shutil.copy(source, copy)
    repository = make_repository(tmp_path / "copy", {})
    loaded = problem_for(inside, arguments, state)
    candidate = make_candidate(CANDIDATE)

    result = integrate(loaded, candidate, confirmed(loaded, candidate), repository)

    added, removed = git(
        repository, "diff", "--numstat", "HEAD", result.branch, "--", path
    ).split()[:2]
    assert removed == "0"
    assert int(added) <= 20
    assert expected_import in result.diff
    for file in result.files:
        ast.parse(git(repository, "show", f"{result.branch}:{file}"))
