"""A real small model behind a real server, which writes no good kernels.

What it says is garbage of the kind that models produce, and a run must come through it. The
``slow`` test talks to any server that runs already: KSMITH_LLM_ENDPOINT, KSMITH_LLM_MODEL. By
hand, 2026-12-01: vLLM 0.32.0 for the CPU, started by ``ksmith serve-model --without-gpu``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from evaluator.evaluation import Status
from evolver.proposers.llm import LlmConfig, LlmProposer, ModelConfig
from evolver.proposers.llm.serving import Server, ServerOrder
from evolver.proposers.llm.transcript import read_transcript
from evolver.store import EntryKind
from evolver.summary import Outcome
from tests.evolver.proposers.llm.test_serving import free_port
from tests.evolver.toys import make_run, make_search

SMOLLM2 = Path(os.environ.get("KSMITH_REAL_REPOS", "")).resolve() / "smollm2"


@pytest.fixture(scope="module")
def order() -> Iterator[ServerOrder]:
    """``transformers serve`` with SmolLM2-135M, ready for requests."""
    if not (SMOLLM2 / "model" / "config.json").exists():
        pytest.skip("no small model here; scripts/real_model.sh fetches one")
    order = ServerOrder(str(SMOLLM2 / "model"), port=free_port())
    offline = [f"HF_HUB_CACHE={SMOLLM2 / 'hub'}", "HF_HUB_OFFLINE=1"]
    program = [
        str(SMOLLM2 / "venv" / "bin" / "python"),
        "-P",
        "-m",
        "transformers.cli.transformers",
    ]
    options = ["--host", order.host, "--port", str(order.port), "--device", "cpu"]
    with Server(["env", *offline, *program, "serve", order.model, *options]) as server:
        server.wait_until_healthy(order, seconds=120)
        yield order


@pytest.mark.real
def test_a_search_comes_through_what_a_small_model_says(order: ServerOrder, tmp_path: Path) -> None:
    converse(order.model, order.endpoint, tmp_path)


@pytest.mark.slow
@pytest.mark.skipif("KSMITH_LLM_ENDPOINT" not in os.environ, reason="KSMITH_LLM_ENDPOINT is unset")
def test_a_search_comes_through_what_any_server_says(tmp_path: Path) -> None:
    converse(os.environ["KSMITH_LLM_MODEL"], os.environ["KSMITH_LLM_ENDPOINT"], tmp_path)


def converse(name: str, endpoint: str, tmp_path: Path) -> None:
    """Search with two turns that are cut short; everything must be kept and counted."""
    model = ModelConfig(
        name=name,
        endpoint=endpoint,
        usd_per_million_prompt_tokens=1.0,
        usd_per_million_reply_tokens=2.0,
    )
    # What may be spent ends the search: two turns of one proposal, then nothing.
    config = LlmConfig(models=(model,), prompt_tokens=1500, reply_tokens=24, max_tokens=2500)
    with make_run(tmp_path / "run") as run:
        proposer = LlmProposer(config, run.path / "llm.jsonl", hardware="CPU: 2 cores").checked()
        proposer.slow = False  # one proposal has the whole budget
        summary = make_search(run, seeds=(1.2,), proposers=[proposer], steps=9).search()
        kinds = [entry.kind for entry in run.log() if entry.proposer == "llm"]
        records = list(read_transcript(run.path / "llm.jsonl"))
    assert (summary.outcome, summary.counts) == (Outcome.FASTER, {Status.OK: 1})
    assert kinds[0] is EntryKind.BROKEN
    exchanges = [r for r in records if r["kind"] == "exchange"]
    assert [e["reply"]["finish_reason"] for e in exchanges] == ["length", "length"]
    assert all(e["reply"]["text"] and e["tokens_by"] == "server" for e in exchanges)
    assert proposer.spending.reply_tokens == 48
    assert 0 < proposer.spending.usd < 0.01
    estimated = records[-1]["prompt_tokens"]
    assert exchanges[0]["prompt_tokens"] <= estimated <= 1.5 * exchanges[0]["prompt_tokens"]
