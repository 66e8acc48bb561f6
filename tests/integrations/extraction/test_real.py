"""Functions of real engines; see ``tests/real_repos.py`` for where they come from."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from evaluator.candidate import BackendName
from evaluator.evaluation import Status
from evaluator.problem import load_problem
from evaluator.supervisor import CompiledBaseline, LocalEvaluator
from integrations.errors import Refused
from integrations.extraction.pipeline import extract, extract_source
from tests.builders import make_candidate
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

DRAFT_WORKLOADS = """\
arguments:
  cache_seqlens_int32: {shape: [4 * b], dtype: int32}
  page_table: {shape: [4 * b, 6], dtype: int32}
  last_page_lens: {shape: [b], dtype: int32, values: {kind: integers, low: 1, high: 16}}
  decode_length: 5
  cache_loc: {shape: [4 * b, 5], dtype: int64, values: {kind: integers, high: 64}}
  topk: 4
  page_size: 16
workloads: [{name: one, symbols: {b: 1}}, {name: many, symbols: {b: 64}}]
"""
DRAFT_CPP = '''\
SOURCE = r"""
#include <cstdint>

extern "C" void expand(int32_t* lengths, int32_t* table, const int32_t* last, const int64_t* slots,
                       int64_t rows, int64_t taken, int64_t wide, int64_t topk, int64_t length,
                       int64_t size) {
  for (int64_t i = 0; i < rows; ++i) {
    lengths[i] = static_cast<int32_t>(length + last[i / topk]);
    int64_t at = -1;
    int32_t before = 0;
    for (int64_t j = 0; j < taken; ++j) {
      const int32_t page = static_cast<int32_t>(slots[i * taken + j] / size);
      if (at < 0 || page != before) ++at;
      table[i * wide + at] = page;
      before = page;
    }
  }
}
"""
SIGNATURES = {
    "expand": (*["int32_t*"] * 2, "const int32_t*", "const int64_t*", *["int64_t"] * 6)
}


def draft_decode_set_expand_metadata(lengths, table, last, length, slots, topk, size):
    rows, taken = slots.shape
    last, slots = last.contiguous(), slots.contiguous()
    native.expand(lengths, table, last, slots, rows, taken, table.shape[1], topk, length, size)
'''


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
@pytest.mark.sandbox
def test_a_real_function_that_returns_none_is_judged_by_what_it_writes(tmp_path: Path) -> None:
    workloads = tmp_path / "workloads.yml"
    workloads.write_text(DRAFT_WORKLOADS)
    target = f"{S}/layers/attention/flashattention_backend.py::draft_decode_set_expand_metadata"
    extract(target, real_repo("sglang"), tmp_path / "problem", workloads=workloads)
    loaded = load_problem(tmp_path / "problem")
    assert loaded.problem.contract.returns_none
    assert loaded.problem.contract.writes == ("cache_seqlens_int32", "page_table")
    with LocalEvaluator(loaded, BackendName.CPP, compiled=CompiledBaseline.NEVER) as evaluator:
        right = evaluator.screen(make_candidate(DRAFT_CPP))
        wrong = evaluator.screen(make_candidate(DRAFT_CPP.replace("= page;", "= page + 1;")))
    assert not right.status.is_candidates_fault, right.message
    assert all(c.passed for c in right.correctness)
    assert wrong.status is Status.INCORRECT
    assert "argument page_table differs in" in wrong.message


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
