"""A trace of our own on a GPU: the ranking names what a person would name."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from integrations.profiling import ProfileSettings, profile_here
from integrations.traces.ranking import rank_traces

DECODE_LOOP = """import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

config = Qwen2Config(
    hidden_size=1024, intermediate_size=2816, num_hidden_layers=4, num_attention_heads=16,
    num_key_value_heads=4, vocab_size=32000,
)
device = "cuda" if torch.cuda.is_available() else "cpu"
model = Qwen2ForCausalLM(config).to(device, torch.bfloat16).eval()
ids = torch.randint(0, 32000, (32, 64), device=device)
with torch.no_grad():
    model.generate(ids, max_new_tokens=16, do_sample=False)
"""


@pytest.mark.gpu
def test_a_decode_loop_of_a_real_model_names_its_norms_and_rotary_embedding(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    (tmp_path / "loop.py").write_text(DECODE_LOOP)
    settings = ProfileSettings(warmup=5, steps=3)
    found = profile_here(tmp_path, [sys.executable, "loop.py"], settings, tmp_path / "out")
    report = rank_traces(list(found.traces), repository=Path(transformers.__file__).parent)
    assert report.on_device
    assert report.unattributed_share < 0.1
    eager = [t.target.rpartition("::")[2] for t in report.targets[:10]]
    assert "Qwen2RMSNorm.forward" in eager
    assert {"apply_rotary_pos_emb", "rotate_half"} & set(eager)
    norm = next(t for t in report.targets if t.target.endswith("Qwen2RMSNorm.forward"))
    assert norm.launches >= 4 * norm.calls
    assert norm.perfect_us is None or norm.perfect_us < norm.device_us
