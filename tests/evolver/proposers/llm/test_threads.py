"""Several threads ask at once: limits, rates, the transcript and the accounts hold."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from evolver.costs import Cost
from evolver.proposers.llm.endpoint import ExchangeFailed
from evolver.proposers.llm.parsing import ReplyFault
from evolver.proposers.llm.transcript import read_transcript, spending_of
from tests.evolver.proposers.llm.server import (
    Clock,
    Scripted,
    Step,
    full,
    make_attempt,
    make_context,
    make_proposer,
    program,
    refuse,
    say,
    scripted_server,
    stall,
)

GOOD = say(full(program(1.9)))
PRICED = {"usd_per_million_prompt_tokens": 1.0, "usd_per_million_reply_tokens": 10.0}


def propose_all(proposer: Any, count: int, **changes: Any) -> list[Any]:
    """Ask from ``count`` threads at once; a failure is its exception."""

    def ask(number: int) -> Any:
        try:
            return proposer.propose(make_context(make_attempt(), seed=number, **changes))
        except ExchangeFailed as error:
            return error

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(ask, range(count)))


def wait_for(condition: Callable[[], bool]) -> None:
    """Look again and again, for as long as a slow machine may need."""
    for _ in range(3000):
        if condition():
            return
        threading.Event().wait(0.01)
    pytest.fail("it never came about")


class Crowd:
    """A step that answers once ``size`` requests stand before it, and counts how many do."""

    def __init__(self, size: int) -> None:
        self._together = threading.Barrier(size)
        self._counting = threading.Lock()
        self._here = 0
        self.most = 0

    def __call__(self, handler: Any) -> None:
        with self._counting:
            self._here += 1
            self.most = max(self.most, self._here)
        self._together.wait(30)
        with self._counting:
            self._here -= 1
        GOOD(handler)


@pytest.mark.parametrize(
    "limits",
    [
        {"max_tokens": 2 * 65_536 + 500},
        {"max_usd": 0.73, "model": PRICED},  # two requests of 0.36 at the most
    ],
    ids=["tokens", "money"],
)
def test_what_is_in_flight_counts_against_the_limits(
    limits: dict[str, Any], tmp_path: Path
) -> None:
    """Six ask, two at a time fit at their worst; the others wait, and all fit as they end."""
    crowd = Crowd(2)
    with scripted_server(crowd) as server:
        proposals = propose_all(make_proposer(server, tmp_path, **limits), 6)
    assert all(proposals)
    assert crowd.most == 2
    assert spending_of(tmp_path / "llm.jsonl").tokens == 6 * 120


def test_whoever_waits_for_room_that_does_not_come_proposes_nothing(tmp_path: Path) -> None:
    with scripted_server(say(full(program(1.9)), usage=(30_000, 10_000))) as server:
        proposals = propose_all(make_proposer(server, tmp_path, max_tokens=80_000), 4)
        assert len(server.requests) == 1
    assert sum(p is not None for p in proposals) == 1


def test_every_record_of_every_thread_is_kept_whole(tmp_path: Path) -> None:
    with scripted_server(GOOD) as server:
        proposer = make_proposer(server, tmp_path)
        propose_all(proposer, 8)
    records = list(read_transcript(tmp_path / "llm.jsonl"))
    assert len(records) == len((tmp_path / "llm.jsonl").read_text().splitlines()) == 16
    assert proposer.spending == spending_of(tmp_path / "llm.jsonl")
    assert proposer.spending.requests == 8


def test_threads_share_the_rate(tmp_path: Path) -> None:
    slept: list[float] = []
    with scripted_server(GOOD) as server:
        clock = Clock()
        clock.sleep = slept.append  # type: ignore[method-assign]  # time stands still
        proposer = make_proposer(server, tmp_path, clock=clock, model={"requests_per_minute": 6})
        propose_all(proposer, 4)
    assert sorted(slept) == [10.0, 20.0, 30.0]


def test_a_pause_that_the_server_asks_one_for_holds_for_all(tmp_path: Path) -> None:
    with scripted_server(refuse(429, Retry_After="3600")) as server:
        proposer = make_proposer(server, tmp_path, proposal_seconds=60)
        proposals = [propose_all(proposer, 1)[0] for _ in range(3)]
        assert len(server.requests) == 1
    assert all(isinstance(p, ExchangeFailed) for p in proposals)
    assert "allows no request for 3600 s" in str(proposals[-1])


def spent(server: Scripted, folder: Path, **changes: Any) -> Cost:
    """What a ticket's meter shows after a proposal that fails."""
    context = make_context(make_attempt())
    with pytest.raises((ReplyFault, ExchangeFailed)):
        make_proposer(server, folder, model=PRICED, **changes).propose(context)
    return context.meter.spent


@pytest.mark.parametrize(
    ("step", "cost"),
    [
        (say("Sorry."), Cost(prompt_tokens=200, completion_tokens=40, money_usd=200e-6 + 400e-6)),
        (refuse(400), Cost()),
    ],
    ids=["useless replies", "refused"],
)
def test_the_meter_is_charged_though_the_proposal_fails(
    step: Step, cost: Cost, tmp_path: Path
) -> None:
    with scripted_server(step) as server:
        found = spent(server, tmp_path)
    assert (found.prompt_tokens, found.completion_tokens) == (
        cost.prompt_tokens,
        cost.completion_tokens,
    )
    assert found.money_usd == pytest.approx(cost.money_usd)


def test_what_is_in_flight_when_the_search_ends_is_charged_once(tmp_path: Path) -> None:
    context = make_context(make_attempt())
    with scripted_server(stall) as server:
        proposer = make_proposer(server, tmp_path, tries=1)

        def ask() -> None:
            with pytest.raises(ExchangeFailed):
                proposer.propose(context)

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        wait_for(lambda: bool(server.requests))
        proposer.close()
        assert context.meter.spent.prompt_tokens > 500
        server.released.set()
        thread.join(30)
        assert not thread.is_alive()
    (exchange,) = (r for r in read_transcript(tmp_path / "llm.jsonl") if r["kind"] == "exchange")
    assert exchange["error"] == "the search ended first"
    assert exchange["prompt_tokens"] == context.meter.spent.prompt_tokens
