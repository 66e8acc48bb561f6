"""What each preset refuses, warns of and allows."""

from __future__ import annotations

import pytest
import yaml

from evaluator.candidate import BackendName, Candidate
from evaluator.evaluation import Severity
from evaluator.source_policy import RULES, as_flags, check_source
from policies.model import DEFAULT_FILE, EvaluatorPolicy
from tests import samples
from tests.evaluator.source_policy.checking import check, check_parts, refusals, rules

MODEL_NEW = """\
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def double_kernel(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, at < n) * 2, at < n)


class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.linear = nn.Linear(size, size)
        self.scale = nn.Parameter(torch.ones(size))

    def forward(self, x):
        out = torch.empty_like(x)
        {launch}
        return out{more}
"""
LAUNCH = "double_kernel[(triton.cdiv(x.numel(), 128),)](x, out, x.numel(), BLOCK=128)"


def model(*, launch: str = LAUNCH, more: str = "") -> str:
    return MODEL_NEW.format(launch=launch, more=more)


def check_model(source: str, preset: str) -> set[str]:
    found = check(source, backend=BackendName.TRITON, entry="ModelNew", preset=preset)
    return rules(refusals(found))


@pytest.mark.parametrize("preset", ["kernelbench", "keck-triton", "keck-cuda"])
def test_a_model_with_a_kernel_that_it_launches_passes(preset: str) -> None:
    assert check_model(model(), preset) == set()


def test_strict_asks_for_a_function_and_knows_no_torch_nn() -> None:
    assert check_model(model(), "strict") == {"entry", "import"}


@pytest.mark.parametrize(
    "compute",
    [
        " + torch.matmul(x, x)",
        " @ x",
        " + x.sum()",
        " + self.linear(x)",
        " + nn.functional.relu(x)",
        " + (f := torch.relu)(x)",
    ],
)
def test_library_compute_is_a_warning_or_refused(compute: str) -> None:
    assert check_model(model(more=compute), "kernelbench") == set()
    assert check_model(model(more=compute), "keck-triton") == {"library-compute"}
    assert check_model(model(more=compute), "keck-cuda") == {"library-compute"}


def test_layers_may_hold_parameters_where_they_may_not_compute() -> None:
    more = " + self.linear.weight.t().contiguous()"
    assert check_model(model(more=more), "keck-triton") == set()


def test_keck_triton_asks_for_a_kernel_that_can_be_reached() -> None:
    assert check_model(model(launch="pass"), "keck-triton") == {"decoy", "no-kernel"}
    assert check_model(model(launch="pass"), "kernelbench") == set()


def test_a_kernel_is_reached_through_helpers_renamings_and_methods() -> None:
    source = model(launch="self.run(x, out)").replace(
        "    def forward",
        f"    def run(self, x, out):\n        k = double_kernel\n"
        f"        {LAUNCH.replace('double_kernel', 'k')}\n\n    def forward",
    )
    assert check_model(source, "keck-triton") == set()


def test_a_decoy_is_told_under_strict() -> None:
    source = samples.RMS_NORM_TRITON + ("\n\n@triton.jit\ndef never(x):\n    tl.store(x, 1)\n")
    found = check(source, backend=BackendName.TRITON, entry="rms_norm")
    assert [(v.rule, v.refuses) for v in found] == [("decoy", False)]


def test_lower_precision_and_autotuning_are_told() -> None:
    source = samples.RMS_NORM_TRITON.replace(
        "@triton.jit", "@triton.autotune(configs=[], key=[])\n@triton.jit"
    ).replace("wide * wide", "tl.dot(wide, wide, allow_tf32=True)")
    found = check(source, backend=BackendName.TRITON, entry="rms_norm")
    assert {(v.rule, v.refuses) for v in found} == {("autotune", False), ("precision", False)}


def test_warnings_become_one_flag_for_each_rule() -> None:
    found = check_parts(body="x = torch.relu(x)\n    x = torch.exp(x)\n    x = x.sum()")
    (flag,) = as_flags(found)
    assert flag.severity is Severity.WARNING
    assert flag.rule == "source-library-compute"
    assert flag.evidence.startswith("line 12: torch.relu")
    assert flag.evidence.endswith("(also on line 13, 14)")


def test_presets_name_rules_that_exist() -> None:
    for name, preset in EvaluatorPolicy.default().source.presets.items():
        assert set(preset.handling) <= set(RULES), name
        assert preset.description


def test_an_unknown_preset_names_those_that_there_are() -> None:
    with pytest.raises(ValueError, match="strict, kernelbench, keck-cuda, keck-triton"):
        EvaluatorPolicy.default().with_source_preset("lax")


def test_the_shipped_default_is_strict() -> None:
    document = yaml.safe_load(DEFAULT_FILE.read_text(encoding="utf-8"))
    assert document["evaluator"]["source"]["preset"] == "strict"


def test_a_policy_that_is_off_refuses_nothing() -> None:
    from evaluator.source_policy import check_source
    from tests.builders import make_candidate

    policy = EvaluatorPolicy.default().source.model_copy(update={"enforced": False})
    candidate = make_candidate("import os\neval('1')\n")
    assert check_source(candidate, entry_function="entry", policy=policy) == []


@pytest.mark.parametrize("preset", ["keck-cuda", "keck-triton"])
def test_the_papers_presets_bring_the_papers_tolerance(preset: str) -> None:
    policy = EvaluatorPolicy.default().with_source_preset(preset)
    assert policy.correctness.relative_tolerance == 0.01
    assert EvaluatorPolicy.default().correctness.relative_tolerance == 0


def test_a_problem_that_constructs_a_module_takes_a_class_under_every_preset() -> None:
    source = "import torch\n\n\nclass ModelNew:\n    def forward(self, x):\n        return x\n"
    candidate = Candidate.create(source, backend=BackendName.CPP, proposer="test")
    policy = EvaluatorPolicy.default().source

    def refused(**kind: bool) -> set[str]:
        found = check_source(candidate, entry_function="ModelNew", policy=policy, **kind)
        return {v.rule for v in found if v.refuses}

    assert refused() == {"entry"}
    assert refused(constructed=True) == set()
