"""What kind of code a problem is, and which problems are nearly the same."""

from __future__ import annotations

import pytest

from evaluator.candidate import BackendName
from evolver.library.features import families_of, features_of, similarity, skeleton_of
from tests.builders import make_problem
from tests.evolver.library.builders import make_features

SOFTMAX = """\
import torch

ROWS = 128


def scores(x: torch.Tensor, scale: float = 0.125) -> torch.Tensor:
    '''Scaled.'''
    y = x * scale
    return torch.softmax(y, dim=-1)
"""


def test_families_are_read_from_calls_and_operators() -> None:
    assert families_of(SOFTMAX) == {"softmax", "elementwise"}
    assert families_of("def f(a, b):\n    return F.gelu(a @ b)\n") == {"product", "activation"}
    assert families_of("def f(a):\n    return a\n") == {"elementwise"}


@pytest.mark.parametrize(
    "twin",
    [
        SOFTMAX.replace("scores", "attend").replace("y", "logits").replace("'''Scaled.'''", ""),
        SOFTMAX.replace("128", "4096").replace("0.125", "0.5").replace("dim=-1", "dim=1"),
        SOFTMAX.replace(": torch.Tensor", "")
        .replace(" -> torch.Tensor", "")
        .replace(": float", ""),
        "import math\n" + SOFTMAX.replace("ROWS = 128", "ROWS: int = 128"),
    ],
    ids=["names", "numbers", "annotations", "imports"],
)
def test_a_near_duplicate_has_the_same_skeleton(twin: str) -> None:
    assert twin != SOFTMAX
    assert skeleton_of(twin) == skeleton_of(SOFTMAX)


def test_another_computation_has_another_skeleton() -> None:
    assert skeleton_of(SOFTMAX.replace("softmax", "log_softmax")) != skeleton_of(SOFTMAX)
    assert skeleton_of(SOFTMAX.replace("x * scale", "x + scale")) != skeleton_of(SOFTMAX)


def test_held_out_workloads_tell_nothing() -> None:
    loaded = make_problem()
    shown = tuple(w for w in loaded.problem.workloads if not w.held_out)
    assert len(shown) < len(loaded.problem.workloads)
    alone = make_problem(workloads=shown)
    assert features_of(loaded, BackendName.CPP, "cpu") == features_of(alone, BackendName.CPP, "cpu")


def test_similarity_falls_with_every_difference() -> None:
    here = make_features()
    assert similarity(here, here) == 1.0
    for other in (
        make_features(families=frozenset({"norm", "softmax"})),
        make_features(size_log2=26.0),
        make_features(row_log2=12.0),
        make_features(dtypes=frozenset({"bfloat16"})),
        make_features(device="NVIDIA H200"),
    ):
        assert 0.0 < similarity(here, other) < 1.0
        assert similarity(here, other) == similarity(other, here)


def test_nothing_is_similar_without_a_family_in_common_or_in_another_language() -> None:
    here = make_features()
    assert similarity(here, make_features(families=frozenset({"sort"}))) == 0.0
    assert similarity(here, make_features(backend=BackendName.TRITON)) == 0.0
