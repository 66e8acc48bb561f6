"""Checks small modules: a candidate around one body, one C++ text, or a whole module."""

from __future__ import annotations

from evaluator.candidate import BackendName
from evaluator.source_policy import Violation, check_source
from policies.model import EvaluatorPolicy
from tests.builders import make_candidate

MODULE = """\
import torch
import math
{top}

SOURCE = r'''
{cpp}
'''
SIGNATURES = {{}}


def entry(x):
    {body}
    return x
"""
BODY_LINE = 12


def check(
    source: str,
    *,
    backend: BackendName = BackendName.CPP,
    entry: str = "entry",
    preset: str = "strict",
) -> list[Violation]:
    policy = EvaluatorPolicy.default().with_source_preset(preset).source
    return check_source(
        make_candidate(source, backend=backend), entry_function=entry, policy=policy
    )


def check_parts(
    *,
    top: str = "",
    body: str = "pass",
    cpp: str = "",
    backend: BackendName = BackendName.CPP,
    preset: str = "strict",
) -> list[Violation]:
    source = MODULE.format(top=top, body=body, cpp=cpp)
    return check(source, backend=backend, preset=preset)


def rules(found: list[Violation]) -> set[str]:
    return {v.rule for v in found}


def refusals(found: list[Violation]) -> list[Violation]:
    return [v for v in found if v.refuses]
