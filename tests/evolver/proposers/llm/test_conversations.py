"""Whole proposals against a scripted server, through the real client."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evaluator.candidate import Candidate
from evolver.errors import LlmUnavailable
from evolver.proposers.llm import LlmProposer
from evolver.proposers.llm.endpoint import ExchangeFailed
from evolver.proposers.llm.parsing import ReplyFault
from evolver.proposers.llm.tokens import estimate_tokens
from evolver.proposers.llm.transcript import read_transcript
from tests.evolver.proposers.llm.server import (
    Clock,
    Step,
    cut,
    full,
    make_attempt,
    make_config,
    make_context,
    make_proposer,
    program,
    raw,
    refuse,
    say,
    scripted_server,
    stall,
)

GOOD = full(program(1.9))


def propose(*steps: Step, folder: Path, **changes: Any) -> tuple[Candidate | None, list[Any]]:
    """Return the proposal and the requests that it took."""
    with scripted_server(*steps) as server:
        candidate = make_proposer(server, folder, **changes).propose(make_context(make_attempt()))
        return candidate, server.requests


def records(folder: Path, kind: str) -> list[dict[str, Any]]:
    return [r for r in read_transcript(folder / "llm.jsonl") if r["kind"] == kind]


def test_a_reply_becomes_a_candidate_with_its_plan_apart(tmp_path: Path) -> None:
    candidate, (request,) = propose(say(GOOD), folder=tmp_path)
    assert candidate is not None
    assert candidate.source == program(1.9)
    assert (candidate.proposer, candidate.description) == ("llm", "Fuse both passes.")
    assert candidate.parents == (make_attempt().candidate.id,)
    assert (request["temperature"], request["top_p"]) == (0.6, 0.95)
    assert (request["max_tokens"], request["stream"]) == (32_768, True)
    assert "n" not in request  # many servers ignore it
    (outcome,) = records(tmp_path, "outcome")
    assert (outcome["plan"], outcome["candidate_id"]) == ("Fuse both passes.", candidate.id)


def test_edits_are_applied_to_the_parent(tmp_path: Path) -> None:
    parent = make_attempt(program(1.1))
    edit = "Faster.\n<<<<<<< SEARCH\nSPEED = 1.1\n=======\nSPEED = 1.4\n>>>>>>> REPLACE\n"
    with scripted_server(say(edit)) as server:
        proposer = make_proposer(server, tmp_path, diff_share=1.0)
        candidate = proposer.propose(make_context(parent))
        assert "SEARCH" in server.prompt()
    assert candidate is not None
    assert candidate.source == program(1.4)


def test_without_a_parent_the_latest_failure_is_repaired(tmp_path: Path) -> None:
    from evaluator.evaluation import Status

    failed = make_attempt(program(-1.0), status=Status.INCORRECT)
    with scripted_server(say(GOOD)) as server:
        make_proposer(server, tmp_path).propose(make_context(failures=[failed]))
        assert "# The program to repair" in server.prompt()
        assert server.prompt().count("SPEED = -1.0") == 1


MALFORMED = {
    "nothing": say(""),
    "reasoning that never ends": say("<think>Let me see. ```python\nx\n```"),
    "cut at the limit": say(GOOD, finish="length"),
    "no program": say("I cannot help with that."),
    "an open block": say("```python\nSPEED = 1\n"),
    "NUL bytes": say(full("SPEED = 1\0\n" + program())),
    "half a surrogate": say(full(f"S = '\ud800'\n{program()}")),
    "no Python": say(full("def rms_norm(x:\n")),
    "another function": say(full("def softmax(x):\n    return x\n")),
    "nested too deeply": say(full(f"x = {'(' * 5000}1{')' * 5000}\n{program()}")),
    "one megabyte": say("word " * 200_000),
    "the parent again": say(full(make_attempt().candidate.source)),
}


@pytest.mark.parametrize("first", MALFORMED.values(), ids=MALFORMED.keys())
def test_a_reply_that_cannot_be_used_is_answered_with_what_is_wrong(
    first: Step, tmp_path: Path
) -> None:
    candidate, requests = propose(first, say(GOOD), folder=tmp_path)
    assert candidate is not None
    assert candidate.source == program(1.9)
    repair = requests[1]["messages"]
    assert [m["role"] for m in repair] == ["system", "user", "assistant", "user"]
    assert "cannot be used" in repair[-1]["content"]
    assert len(repair[2]["content"]) <= 8000


def test_a_repair_turn_keeps_to_the_budget(tmp_path: Path) -> None:
    loud = say("word " * 50_000)
    _, requests = propose(loud, say(GOOD), folder=tmp_path, prompt_tokens=2600)
    for request in requests:
        assert sum(estimate_tokens(m["content"]) for m in request["messages"]) < 2600


def test_after_the_repair_turn_the_attempt_fails_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(ReplyFault, match="no complete block"):
        propose(say("Sorry."), folder=tmp_path)
    (outcome,) = records(tmp_path, "outcome")
    assert (outcome["turns"], outcome["candidate_id"]) == (2, None)
    assert len(records(tmp_path, "exchange")) == 2


def as_json(handler: Any) -> None:
    """Ignore ``stream`` and send two choices, as some servers do."""
    import json

    choices = [
        {"index": i, "message": {"content": full(program(s))}, "finish_reason": "stop"}
        for i, s in enumerate((1.9, 1.5))
    ]
    handler.answer(json.dumps({"choices": choices, "usage": {"prompt_tokens": -4}}).encode())


PASSING = {
    "busy": refuse(429, Retry_After="7"),
    "broken": refuse(500),
    "a gateway's page": raw(b"<html>Bad gateway</html>", status=502),
    "half a stream": cut("<plan>"),
    "an error on the way": raw(b'data: {"error": {"message": "out of memory"}}\n\n'),
    "a stream without an end": raw(b'data: {"choices": []}\n\n', kind="text/event-stream"),
    "half an object": raw(b'{"choices": [', kind="application/json"),
}


@pytest.mark.parametrize("first", PASSING.values(), ids=PASSING.keys())
def test_what_may_pass_is_tried_again(first: Step, tmp_path: Path) -> None:
    candidate, requests = propose(first, say(GOOD), folder=tmp_path)
    assert candidate is not None
    assert requests[0] == requests[1]
    tries = records(tmp_path, "exchange")
    assert [t["error"] is None for t in tries] == [False, True]


def test_retry_after_is_heeded(tmp_path: Path) -> None:
    clock = Clock()
    propose(refuse(429, Retry_After="7"), say(GOOD), folder=tmp_path, clock=clock)
    assert clock.slept == [7.0]


def test_a_pause_beyond_the_deadline_is_not_waited_for(tmp_path: Path) -> None:
    clock = Clock()
    with pytest.raises(ExchangeFailed, match="HTTP 429"):
        propose(refuse(429, Retry_After="86400"), folder=tmp_path, clock=clock)
    assert clock.slept == []


LASTING = {
    "refused": (refuse(400), "HTTP 400: .*no: 400"),
    "unknown": (raw(b"<html>Not found</html>", status=404), "HTTP 404"),
    "a web page": (raw(b"<html><body>Log in</body></html>"), "no completion but <html>"),
    "another format": (raw(b'{"generated_text": "x"}', kind="application/json"), "generated_text"),
    "nothing at all": (raw(b""), "nothing at all"),
}


@pytest.mark.parametrize(("step", "message"), LASTING.values(), ids=LASTING.keys())
def test_what_will_not_pass_fails_at_once(step: Step, message: str, tmp_path: Path) -> None:
    with scripted_server(step) as server:
        with pytest.raises(ExchangeFailed, match=message):
            make_proposer(server, tmp_path).propose(make_context(make_attempt()))
        assert len(server.requests) == 1
    assert records(tmp_path, "outcome")[0]["failure"] is not None


def test_a_lasting_outage_ends_after_the_tries(tmp_path: Path) -> None:
    with scripted_server(refuse(500)) as server:
        with pytest.raises(ExchangeFailed, match="failed 3 times, the last time: HTTP 500"):
            make_proposer(server, tmp_path, tries=3).propose(make_context())
        assert len(server.requests) == 3


def test_a_stalled_reply_is_ended_in_time(tmp_path: Path) -> None:
    with scripted_server(stall) as server:
        proposer = LlmProposer(
            make_config(server.url, stall_seconds=0.15, tries=1), tmp_path / "t", hardware="h"
        )
        began = time.monotonic()
        with pytest.raises(ExchangeFailed, match="broke within the reply"):
            proposer.propose(make_context())
    assert time.monotonic() - began < 8  # the server itself lets go after 10 s


def test_a_reply_that_trickles_is_ended_at_the_deadline(tmp_path: Path) -> None:
    def trickle(handler: Any) -> None:
        handler.answer(b": ping\n\n", kind="text/event-stream", promised=100_000)
        while not handler.scripted.released.wait(0.02):
            handler.wfile.write(b": ping\n\n")

    with scripted_server(trickle) as server:
        config = make_config(server.url, request_seconds=0.2, tries=1)
        proposer = LlmProposer(config, tmp_path / "t", hardware="h")
        with pytest.raises(ExchangeFailed, match="not complete in time"):
            proposer.propose(make_context())


def test_an_endless_reply_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evolver.proposers.llm.endpoint.LONGEST_BODY_BYTES", 1 << 20)
    with pytest.raises(ExchangeFailed, match="more than 1 MiB"):
        propose(raw(b"x" * (2 << 20)), folder=tmp_path)


def test_a_server_that_ignores_stream_is_understood(tmp_path: Path) -> None:
    candidate, _ = propose(as_json, folder=tmp_path)
    assert candidate is not None
    assert candidate.source == program(1.9)
    assert records(tmp_path, "exchange")[0]["tokens_by"] == "estimate"


def test_reasoning_and_sketches_before_the_program_are_passed_over(tmp_path: Path) -> None:
    text = f"<think>\n```python\nno(\n```\n</think>\nA sketch:\n{full(program(1.1))}Better:\n{GOOD}"
    candidate, _ = propose(say(text, reasoning="Hm."), folder=tmp_path)
    assert candidate is not None
    assert candidate.source == program(1.9)
    assert records(tmp_path, "exchange")[0]["reply"]["reasoning"] == "Hm."


def test_tokens_and_money_are_counted_over_sessions(tmp_path: Path) -> None:
    prices = {"usd_per_million_prompt_tokens": 10.0, "usd_per_million_reply_tokens": 50.0}
    with scripted_server(refuse(500), say("Sorry."), say(GOOD)) as server:
        make_proposer(server, tmp_path, model=prices).propose(make_context())
        spending = make_proposer(server, tmp_path, model=prices).spending
    assert (spending.requests, spending.prompt_tokens, spending.reply_tokens) == (3, 200, 40)
    assert spending.usd == pytest.approx(200 * 10e-6 + 40 * 50e-6)


def test_a_reply_that_was_cut_is_paid_for_by_estimate(tmp_path: Path) -> None:
    propose(cut("word " * 300), say(GOOD), folder=tmp_path)
    lost, _ = records(tmp_path, "exchange")
    assert lost["tokens_by"] == "estimate"
    assert lost["prompt_tokens"] > 500
    assert lost["reply_tokens"] == pytest.approx(500, abs=5)


@pytest.mark.parametrize(
    "limits",
    [
        {"max_tokens": 66_000},
        {
            "max_usd": 0.07,
            "model": {"usd_per_million_prompt_tokens": 1, "usd_per_million_reply_tokens": 1},
        },
    ],
)
def test_a_budget_is_never_exceeded(limits: dict[str, Any], tmp_path: Path) -> None:
    with scripted_server(say(GOOD, usage=(30_000, 10_000))) as server:
        proposer = make_proposer(server, tmp_path, **limits)
        assert proposer.propose(make_context()) is not None
        assert proposer.propose(make_context()) is None
        assert make_proposer(server, tmp_path, **limits).propose(make_context()) is None
        assert len(server.requests) == 1


def test_requests_keep_to_the_rate(tmp_path: Path) -> None:
    clock = Clock()
    propose(say("?"), say(GOOD), folder=tmp_path, clock=clock, model={"requests_per_minute": 6})
    assert clock.slept == [10.0]


def test_the_same_context_asks_the_same(tmp_path: Path) -> None:
    first, second = (propose(say(GOOD), folder=tmp_path)[1] for _ in range(2))
    assert first == second


def test_models_are_asked_by_their_weights_and_hints_change(tmp_path: Path) -> None:
    with scripted_server(say(GOOD)) as server:
        config = make_config(server.url, server.url)
        heavy, light = config.models
        models = (heavy, light.model_copy(update={"weight": 0.25}))
        clock = Clock()
        proposer = LlmProposer(
            config.model_copy(update={"models": models}), tmp_path / "t", hardware="h", clock=clock
        )
        for seed in range(24):
            proposer.propose(make_context(make_attempt(), seed=seed))
        asked = [r["model"] for r in server.requests]
        prompts = [server.prompt(n) for n in range(24)]
    assert 1 <= asked.count("model-1") <= 11
    for hint in ("Tiling:", "Fusion:", "Pipeline:", "Reordering:"):
        assert any(hint in prompt for prompt in prompts)


def test_prompt_and_reply_fit_the_context_that_the_server_tells(tmp_path: Path) -> None:
    listing = {"object": "list", "data": [{"id": "model-0", "max_model_len": 8192}]}
    with scripted_server(say(GOOD), listing=listing) as server:
        make_proposer(server, tmp_path).checked().propose(make_context())
        assert server.requests[0]["max_tokens"] == 4096


def test_an_endpoint_that_is_down_is_told_before_the_search(tmp_path: Path) -> None:
    with scripted_server(say(GOOD)) as server:
        proposer = make_proposer(server, tmp_path)
        proposer.checked()  # a server without a list of models is no fault
    with pytest.raises(LlmUnavailable, match=r"nothing answers at .*serve-model model-0"):
        proposer.checked()


@pytest.mark.parametrize("package", ["openai", "tenacity"])
def test_without_the_extra_the_message_names_it(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, package, None)
    with pytest.raises(LlmUnavailable, match=rf"{package}: pip install 'ksmith-bot\[llm\]'"):
        LlmProposer(make_config("http://127.0.0.1:9/v1"), tmp_path / "t", hardware="h")


def test_the_key_is_sent_and_never_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    seen: list[str] = []

    def look(then: Step) -> Callable[[Any], None]:
        return lambda handler: (seen.append(handler.headers["Authorization"]), then(handler))[1]

    propose(look(refuse(500)), look(say(GOOD)), folder=tmp_path)
    assert seen == ["Bearer sk-secret"] * 2
    assert "sk-secret" not in (tmp_path / "llm.jsonl").read_text()
