"""``ksmith capture`` on commands: what it hands to extraction, and what it says where it cannot."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from cli.failures import exit_code_of
from evaluator.candidate import BackendName, Candidate
from evaluator.problem import load_problem
from evaluator.supervisor import CompiledBaseline, LocalEvaluator
from evaluator.workload import ValueKind
from integrations.capture.running import Captured, capture, in_place, in_sandbox
from integrations.capture.seen import CaptureFailed
from integrations.errors import OutputExists, Refused, TargetError
from integrations.extraction.pipeline import extract
from tests.real_repos import VARIABLE

MODEL = """import torch


class Router(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(width))

    def forward(self, x, lengths, hits, eps=1e-6):
        hits.add_(1)
        return x * self.weight / (x.abs().sum(-1, keepdim=True) + eps) + lengths.sum()


def spare(x):
    return x


def generate(x):
    yield x
"""
SERVE = """import multiprocessing, subprocess, sys, threading
import torch
from engine.model import Router as R

router = R(8)
step = torch.compile(router)


def work(rows):
    with torch.no_grad():
        step(torch.randn(rows, 8), torch.tensor([1, 4], dtype=torch.int32), torch.zeros(3))


if __name__ == "__main__":
    for rows in (1, 1, 1, 64):
        work(rows)
    thread = threading.Thread(target=work, args=(1,))
    forked = multiprocessing.get_context("fork").Process(target=work, args=(1,))
    for worker in (thread, forked):
        worker.start()
        worker.join()
    subprocess.run([sys.executable, "-c", "import serve; serve.work(64)"], check=True)
    print("no space left")
    sys.exit(int(sys.argv[1]))
"""
TARGET = "engine/model.py::Router"
SMOLLM2 = Path(os.environ.get(VARIABLE, "")).resolve() / "smollm2"


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    root = tmp_path / "repo"
    (root / "engine").mkdir(parents=True)
    (root / "engine/__init__.py").touch()
    (root / "engine/model.py").write_text(MODEL)
    (root / "serve.py").write_text(SERVE)
    return root


def here(repo: Path, target: str, *command: str) -> Captured:
    run = in_place(repo, [sys.executable, *command])
    return capture(target, repo, run, repo.parent / "captured.yml")


def sandboxed(repo: Path, target: str, command: Sequence[str]) -> Captured:
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.com"]
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"]):
        subprocess.run([*git, *arguments], cwd=repo, check=True)
    run = in_sandbox(repo, command, seconds=120, threads=1, gpu=False)
    return capture(target, repo, run, repo.parent / "captured.yml")


@pytest.mark.sandbox
def test_captured_calls_of_threads_and_processes_become_a_problem(repo: Path) -> None:
    found = sandboxed(repo, TARGET, ["python", "serve.py", "3"])
    assert (found.status, found.calls, found.processes) == (3, 7, 3)
    assert [(w.calls, w.shapes["x"]) for w in found.workloads] == [(5, (1, 8)), (2, (64, 8))]
    assert (found.writes, found.left_out) == (("hits",), ())
    extract(TARGET, repo, repo.parent / "problem", workloads=found.output)
    problem = load_problem(repo.parent / "problem").problem
    assert problem.contract.writes == ("hits",)
    assert [w.weight for w in problem.workloads] == [5, 2]
    lengths = problem.workloads[0].tensors["lengths"].values
    assert (lengths.kind, lengths.data) == (ValueKind.CAPTURED, (1, 4))


@pytest.mark.sandbox
def test_a_command_that_fails_before_any_call_is_told_with_its_last_words(repo: Path) -> None:
    program = "import sys; print('no weights'); sys.exit(7)"
    with pytest.raises(CaptureFailed, match=r"status 7(.|\n)*no weights") as failed:
        sandboxed(repo, TARGET, ["python", "-c", program])
    assert exit_code_of(failed.value) == 1


LIGHT = "def run(x, token):\n    return x\n\n\nif __name__ == '__main__':\n    run(1, '')\n"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("-c", "import light"), "never called"),
        (("-c", "pass"), "no Python process"),
        (("light.py",), "-m"),
        (("-c", "import light; light.run(1, open)"), "token is a builtin_function_or_method"),
    ],
)
def test_a_target_without_a_workload_is_said_why(
    repo: Path, command: tuple[str, ...], said: str
) -> None:
    (repo / "light.py").write_text(LIGHT)
    with pytest.raises(CaptureFailed, match=said):
        here(repo, "light.py::run", *command)
    assert not (repo.parent / "captured.yml").exists()


def test_a_module_that_is_run_is_watched_and_nothing_is_overwritten(repo: Path) -> None:
    (repo / "light.py").write_text(LIGHT)
    found = here(repo, "light.py::run", "-m", "light")
    assert yaml.safe_load(found.output.read_text())["arguments"] == {"x": 1, "token": ""}
    with pytest.raises(OutputExists, match="--force"):
        here(repo, "light.py::run", "-m", "light")


def test_a_file_of_that_name_elsewhere_is_told(repo: Path, tmp_path: Path) -> None:
    (tmp_path / "site/engine").mkdir(parents=True)
    (tmp_path / "site/engine/model.py").touch()
    (repo / "python").mkdir()
    (repo / "engine").rename(repo / "python/engine")
    program = "import sys; sys.path.insert(0, sys.argv[1]); import engine.model"
    with pytest.raises(CaptureFailed, match=r"site/engine/model\.py"):
        here(repo, f"python/{TARGET}", "-c", program, str(tmp_path / "site"))


def test_what_cannot_be_watched_is_refused_before_anything_runs(repo: Path) -> None:
    with pytest.raises(Refused, match="generator"):
        here(repo, "engine/model.py::generate", "no-such-file.py")
    with pytest.raises(TargetError, match="did you mean"):
        here(repo, "engine/model.py::sparse", "no-such-file.py")


LLAMA = """import torch
from transformers import LlamaConfig, LlamaForCausalLM

config = LlamaConfig(
    hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, vocab_size=256,
)
with torch.no_grad():
    model = LlamaForCausalLM(config).eval()
    model.generate(torch.randint(0, 256, (2, 7)), max_new_tokens=5, do_sample=False)
"""
LLAMA_NORM = '''import torch

SOURCE = r"""
#include <cmath>
#include <cstdint>

extern "C" void norm(const float* x, const float* w, float* out, int64_t rows, int64_t cols,
                     float eps) {
    for (int64_t i = 0; i < rows; ++i) {
        float sum = 0;
        for (int64_t j = 0; j < cols; ++j) sum += x[i * cols + j] * x[i * cols + j];
        const float scale = 1.0f / std::sqrt(sum / cols + eps);
        for (int64_t j = 0; j < cols; ++j) out[i * cols + j] = x[i * cols + j] * scale * w[j];
    }
}
"""
SIGNATURES = {
    "norm": ("const float*", "const float*", "float*", "int64_t", "int64_t", "float"),
}


def llama_rms_norm_forward(hidden_states, weight, variance_epsilon):
    out = torch.empty_like(hidden_states)
    x, cols = hidden_states.contiguous(), hidden_states.shape[-1]
    native.norm(x, weight, out, x.numel() // cols, cols, variance_epsilon)
    return out
'''


@pytest.mark.real
@pytest.mark.sandbox
def test_a_norm_of_transformers_is_captured_extracted_and_evaluated(tmp_path: Path) -> None:
    python = str(SMOLLM2 / "venv/bin/python")
    if not Path(python).exists():
        pytest.skip("no transformers here; scripts/real_model.sh fetches them")
    asked = [python, "-c", "import transformers; print(transformers.__path__[0])"]
    site = Path(subprocess.check_output(asked, text=True).strip()).parent
    (tmp_path / "generate.py").write_text(LLAMA)
    target = "transformers/models/llama/modeling_llama.py::LlamaRMSNorm"
    run = in_place(site, [python, str(tmp_path / "generate.py")])
    found = capture(target, site, run, tmp_path / "norm.yml")
    assert [w.shapes["hidden_states"] for w in found.workloads] == [(2, 1, 64), (2, 7, 64)]
    assert [w.calls for w in found.workloads] == [20, 5]
    extract(target, site, tmp_path / "problem", workloads=found.output)
    loaded = load_problem(tmp_path / "problem")
    candidate = Candidate.create(LLAMA_NORM, backend=BackendName.CPP, proposer="test")
    with LocalEvaluator(loaded, BackendName.CPP, compiled=CompiledBaseline.NEVER) as evaluator:
        evaluation = evaluator.screen(candidate)
    assert evaluation.correctness, evaluation.model_dump_json()
    assert all(c.passed for c in evaluation.correctness), evaluation.log_tail
