"""The transcript survives what processes do to files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from evolver.errors import RunDamaged
from evolver.proposers.llm.transcript import Transcript, read_transcript, spending_of


def exchange(transcript: Transcript, **changes: Any) -> None:
    transcript.exchange(**{"prompt_tokens": 10, "reply_tokens": 5, "usd": None, **changes})


def test_a_line_that_a_kill_left_half_written_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "llm.jsonl"
    exchange(Transcript(path), reply="\ud800 half a pair, \u2028 and no line's end")
    with path.open("a") as file:
        file.write('{"schema_version": 1, "kind": "exch')
    resumed = Transcript(path)
    exchange(resumed, usd=0.5)
    assert resumed.spending == spending_of(path)
    assert (resumed.spending.requests, resumed.spending.tokens) == (2, 30)
    assert [r["usd"] for r in read_transcript(path)] == [None, 0.5]


@pytest.mark.parametrize("cost", ["{}", '{"prompt_tokens": null}', '{"prompt_tokens": "many"}'])
def test_an_exchange_that_does_not_say_what_it_cost_is_told_as_damage(
    cost: str, tmp_path: Path
) -> None:
    path = tmp_path / "llm.jsonl"
    record = {"schema_version": 1, "kind": "exchange", **json.loads(cost)}
    path.write_text(f"{'[' * 100_000}\n{json.dumps(record)}\n")
    with pytest.raises(RunDamaged, match=r"llm\.jsonl is damaged: record 1 "):
        Transcript(path)


def test_nothing_is_written_before_something_happens(tmp_path: Path) -> None:
    assert Transcript(tmp_path / "llm.jsonl").spending.requests == 0
    assert list(tmp_path.iterdir()) == []
