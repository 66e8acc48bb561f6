"""Traces that others recorded: all are read, and replays name functions of SGLang and vLLM."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.trace.synthetic import write_synthetic
from integrations.traces.frames import Found
from integrations.traces.ranking import rank_traces
from integrations.traces.report import HotReport
from tests.real_repos import real_repo

FOLDER = Path(__file__).resolve().parents[4] / "shared/data/traces"
NAMES = (
    "backward_thread.json", "cpu_only.json.gz", "cuda_graph_replay.json.gz", "ddp_nccl.json.gz",
    "h100_qwen_0.5b.json.gz", "inference_rank_1.json.gz", "large_216k.json.gz",
    "missing_launches.json.gz", "ns_resolution.json.gz", "rocm_mi250.json.gz",
    "sglang_qwen3_decode.json.gz", "sglang_qwen3_decode_capture_bs32.json.gz",
    "torch_compile_triton.json.gz", "triton_example.json.gz", "vllm_decode_capture.json.gz",
    "vllm_decode_graph.json.gz",
)  # fmt: skip


def sample(name: str) -> Path:
    path = FOLDER / name
    if not path.is_file():
        pytest.skip(f"{path} is absent")
    return path


def targets(report: HotReport) -> set[str]:
    return {t.target for t in report.targets}


@pytest.mark.real
@pytest.mark.parametrize("name", NAMES)
def test_a_real_trace_is_read_whole(name: str) -> None:
    report = rank_traces([sample(name)])
    (trace,) = report.traces
    assert (trace.damaged_events, trace.ended_early) == (0, None)
    assert trace.kernels > 0
    total = report.attributed_us + sum(p.device_us for p in report.unattributed)
    assert total == pytest.approx(report.device_us)


@pytest.mark.real
def test_sglangs_replay_names_its_functions_and_says_how_far_the_source_has_moved() -> None:
    report = rank_traces(
        [sample("sglang_qwen3_decode.json.gz")],
        repository=real_repo("sglang"),
        captures=[sample("sglang_qwen3_decode_capture_bs32.json.gz")],
    )
    assert report.traces[0].replay_agreement == 1.0
    assert report.unattributed_share < 0.001
    assert report.resolved_us / report.device_us > 0.9
    assert targets(report) >= {
        "sglang/srt/layers/layernorm.py::RMSNorm.forward_aiter",
        "sglang/srt/models/utils.py::_reshape_for_qk_norm",
        "sglang/srt/layers/activation.py::SiluAndMul.forward_cuda",
    }
    assert report.disagreement is not None
    assert report.disagreement.moved > report.disagreement.gone
    assert report.disagreement.median_moved_lines > 0


@pytest.mark.real
def test_vllms_replay_names_its_functions_without_a_checkout() -> None:
    report = rank_traces(
        [sample("vllm_decode_graph.json.gz")], captures=[sample("vllm_decode_capture.json.gz")]
    )
    assert report.traces[0].replay_agreement == 1.0
    assert "vllm/model_executor/layers/utils.py::rocm_unquantized_gemm_impl" in targets(report)


@pytest.mark.real
def test_a_person_would_name_the_same_functions_of_qwen() -> None:
    report = rank_traces([sample("h100_qwen_0.5b.json.gz")])
    first, second, *_ = (t.target.rpartition("/")[2] for t in report.targets)
    assert first == "modeling_qwen2.py::Qwen2RMSNorm.forward"
    assert second == "modeling_qwen2.py::apply_rotary_pos_emb"
    assert all(t.found is Found.NO_SOURCE for t in report.targets)


@pytest.mark.real
def test_a_synthetic_trace_is_read_whole(tmp_path: Path) -> None:
    events = write_synthetic(tmp_path / "t.json", 60_000)
    report = rank_traces([tmp_path / "t.json"])
    (trace,) = report.traces
    assert (trace.events, trace.kernels, trace.launched) == (events, 6000, 6000)
    assert (trace.ended_early, report.unattributed_share) == (None, 0)
