"""Functions of real engines; see ``tests/real_repos.py`` for where they come from."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from evaluator.problem import load_problem
from integrations.errors import Refused
from integrations.extraction.pipeline import extract, extract_source
from tests.real_repos import real_repo

FIRST_PATH = Path(__file__).resolve().parents[3] / "benchmarks" / "first_path"
S, L = "sglang/srt", "lmdeploy/pytorch"
NO_SHARED = {"num_fused_shared_experts": 0}
ONE_RANK = {"self.tp_size": 1, "self.n_groups": 8, "self.use_rms_norm": True}

THREE = [
    ("lmdeploy", f"{L}/backends/default/moe_router.py::DefaultRouterNoauxTCImpl.forward", "router"),
    ("sglang", f"{S}/layers/layernorm.py::RMSNorm.forward_native", "rms_norm"),
    (
        "lmdeploy",
        f"{L}/backends/default/apply_rotary_emb.py::DefaultApplyRotaryEmbImpl.forward",
        "rotary",
    ),
]
EXTRACTABLE = [
    ("sglang", f"{S}/layers/attention/flashattention_backend.py::draft_decode_set_expand_metadata"),
    ("sglang", f"{S}/layers/moe/topk.py::fused_topk_torch_native"),
    ("sglang", f"{S}/layers/moe/topk.py::grouped_topk_gpu"),
    ("sglang", f"{S}/layers/moe/topk.py::biased_grouped_topk_impl"),
    ("sglang", f"{S}/layers/moe/topk.py::biased_topk_impl"),
    ("sglang", f"{S}/layers/moe/topk.py::kimi_k2_biased_topk_impl"),
    ("sglang", f"{S}/layers/rotary_embedding/base.py::RotaryEmbedding.forward_native"),
    (
        "sglang",
        f"{S}/layers/rotary_embedding/rope_variant.py"
        "::DeepseekScalingRotaryEmbedding.forward_native",
    ),
    (
        "sglang",
        f"{S}/layers/attention/mamba/mixer2_rms_norm_gated.py::Mixer2RMSNormGated.forward_native",
    ),
    ("sglang", f"{S}/sampling/penaltylib/repetition_penalty.py::apply_scaling_penalties"),
    ("sglang", f"{S}/speculative/eagle_utils.py::organize_draft_results"),
    ("lmdeploy", f"{L}/backends/default/rotary_embedding.py::_rotary_embedding_fwd"),
    ("lmdeploy", f"{L}/engine/logits_process.py::_process_repetition_penalty_"),
]
REFUSED = [
    ("sglang", f"{S}/layers/sampler.py::top_k_top_p_min_p_sampling_from_probs_torch"),
    ("sglang", f"{S}/layers/layernorm.py::RMSNorm.forward_cuda"),
    ("lmdeploy", f"{L}/nn/eplb.py::topk_ids_logical_to_physical"),
]


@pytest.mark.real
@pytest.mark.sandbox
@pytest.mark.parametrize(("package", "target", "name"), THREE, ids=[t[2] for t in THREE])
def test_the_first_three_targets_become_problems(
    package: str, target: str, name: str, tmp_path: Path
) -> None:
    workloads = FIRST_PATH / f"{package}_{name}.yml"
    output = tmp_path / "problem"
    extract(target, real_repo(package), output, workloads=workloads)
    problem = load_problem(output).problem
    if name == "rotary":
        assert problem.contract.writes == ("query", "key")
    if name == "router":
        assert [o.order_free_dim for o in problem.contract.outputs] == [-1, -1]


@pytest.mark.real
def test_the_references_of_real_targets_import_with_torch_alone(tmp_path: Path) -> None:
    for number, (package, target) in enumerate(EXTRACTABLE):
        known = {**NO_SHARED, **ONE_RANK}
        found = extract_source(target, real_repo(package), known=known)
        (tmp_path / f"reference_{number}.py").write_text(found.source, encoding="utf-8")
    program = (
        "import sys, runpy, glob\n"
        "import torch\n"
        "before = {m.partition('.')[0] for m in sys.modules} | set(sys.stdlib_module_names)\n"
        "for path in sorted(glob.glob(sys.argv[1] + '/*.py')):\n"
        "    runpy.run_path(path)\n"
        "after = {m.partition('.')[0] for m in sys.modules} - before\n"
        "assert not after, after\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", program, str(tmp_path)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.real
@pytest.mark.parametrize(("package", "target"), REFUSED, ids=[t[1].split("::")[1] for t in REFUSED])
def test_what_cannot_be_faithful_is_refused(package: str, target: str) -> None:
    with pytest.raises(Refused):
        extract_source(target, real_repo(package))
