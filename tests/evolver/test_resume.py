"""A run may be killed at any moment: what ended is never lost and never done twice."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluator.candidate import Candidate
from evaluator.evaluation import Evaluation
from evolver.journal import replay
from evolver.run import Run
from evolver.store import EntryKind, LogEntry
from evolver.summary import Outcome
from evolver.turns import SEEDER_REPEATS
from tests.evolver.toys import (
    ToyEvaluator,
    announced,
    make_run,
    make_search,
    search_in_process,
)

STEPS = 25
KILLS = 25
"""With one lane and with three: 50 in all."""


class InterruptedAfter(ToyEvaluator):
    """Ctrl-C comes in the evaluation after so many."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self._left = count

    def screen(self, candidate: Candidate, *, incumbent_us: float | None = None) -> Evaluation:
        if not self._left:
            raise KeyboardInterrupt
        self._left -= 1
        return super().screen(candidate, incumbent_us=incumbent_us)


def story(entries: Iterable[LogEntry]) -> list[tuple[object, ...]]:
    """What happened, without when and how long it took."""
    return [(e.kind, e.ticket, e.proposer, e.candidate_id, e.parent_id, e.detail) for e in entries]


def kill_until_finished(path: Path, rng: random.Random, lanes: int) -> int:
    """Run, kill at a random moment, resume, until a session ends by itself; return the kills."""
    for kills in range(KILLS + 1):
        begun = len(announced(path))
        process = search_in_process(path, steps=STEPS, lanes=lanes)
        # Mostly a moment after the first evaluation began, else most kills hit the start.
        while process.is_alive() and rng.random() < 0.9 and len(announced(path)) == begun:
            time.sleep(0.001)
        time.sleep(rng.uniform(0.0, 0.01))
        if kills < KILLS:
            process.kill()
        process.join(60)
        if process.exitcode == 0:
            break
    assert process.exitcode == 0
    return kills


def check_nothing_lost_or_repeated(path: Path, kills: int, lanes: int) -> list[LogEntry]:
    with Run.open(path) as run:
        entries = list(run.log())
    ended = Counter(e.candidate_id for e in entries if e.kind is EntryKind.EVALUATED)
    proposed = Counter(e.candidate_id for e in entries if e.kind is EntryKind.PROPOSED)
    assert ended == proposed == dict.fromkeys(ended, 1)
    assert len(ended) == STEPS
    # Every screening but those in flight at a kill ended in the log, once.
    again = (EntryKind.EVALUATED, EntryKind.REMEASURED)
    logged = Counter(str(e.candidate_id) for e in entries if e.kind in again)
    screened = Counter(announced(path))
    assert sum((screened - logged).values()) <= kills * lanes
    assert logged - screened == Counter()
    return entries


def test_sigkill_at_random_moments_loses_and_repeats_nothing(tmp_path: Path) -> None:
    with make_run(tmp_path / "whole", seed=7, steps=STEPS) as run:
        whole = make_search(run, steps=STEPS).search()
        expected = story(run.log())
    kills = kill_until_finished(tmp_path / "killed", random.Random(1), lanes=1)
    entries = check_nothing_lost_or_repeated(tmp_path / "killed", kills, lanes=1)
    assert story(entries) == expected
    with Run.open(tmp_path / "killed") as run:
        assert run.summary().speedups == whole.speedups


def test_sigkill_with_evaluations_in_flight_loses_and_repeats_nothing(tmp_path: Path) -> None:
    kills = kill_until_finished(tmp_path / "killed", random.Random(2), lanes=3)
    check_nothing_lost_or_repeated(tmp_path / "killed", kills, lanes=3)


def test_an_interruption_does_not_wait_for_what_is_in_flight(tmp_path: Path) -> None:
    path = tmp_path / "run"
    process = search_in_process(path, steps=STEPS, pause_seconds=600.0, lanes=3)
    while len(announced(path)) < 3:
        time.sleep(0.001)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGINT)
    process.join(60)  # far less than an evaluation takes
    assert process.exitcode == 1
    assert json.loads((path / "summary.json").read_text())["outcome"] == "unfinished"
    in_flight = set(announced(path))
    search_in_process(path, steps=STEPS, lanes=3).join(60)
    assert in_flight <= set(announced(path)[3:])
    check_nothing_lost_or_repeated(path, kills=1, lanes=3)


def interrupt_within_step(run: Run, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Ctrl-C come when the step with this number is on disk and nobody knows yet."""
    append = run.store.append

    def append_and_interrupt(entry: LogEntry, candidate: Candidate | None = None) -> None:
        append(entry, candidate)
        if entry.sequence == number:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(run.store, "append", append_and_interrupt)


@pytest.mark.parametrize("lanes", [1, 3])
def test_an_interruption_cuts_no_step_in_two(
    lanes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(1, 25, 3):
        evaluator = ToyEvaluator(lanes=lanes)
        with make_run(tmp_path / str(number)) as run:
            interrupt_within_step(run, number, monkeypatch)
            search = make_search(run, evaluator)
            with pytest.raises(KeyboardInterrupt):
                search.search()
            assert search.state.sequence == run.store.length() >= number
            assert search.state.owed == replay(run).owed


@settings(max_examples=8)
@given(seed=st.integers(0, 50), lanes=st.integers(1, 3), cut=st.integers(0, 40))
def test_the_same_seed_and_log_give_the_same_proposal(seed: int, lanes: int, cut: int) -> None:
    """Whatever was in flight: the proposal that follows a log is a function of that log."""
    proposals = {k for k in EntryKind if k.value in ("proposed", "duplicate", "nothing", "broken")}
    with TemporaryDirectory() as folder:
        with make_run(Path(folder) / "whole", seed=seed) as run:
            make_search(run, ToyEvaluator(lanes=lanes), steps=20).search()
            whole = list(run.log())
            candidates = {a.candidate.id: a.candidate for a in run.attempts()}
        following = next(e for e in whole[cut % 20 :] if e.kind in proposals)
        with make_run(Path(folder) / "cut", seed=seed) as run:
            for entry in whole[: following.sequence - 1]:
                run.store.append(entry, candidates.get(entry.candidate_id or ""))
            make_search(run, ToyEvaluator(lanes=lanes), steps=20).search()
            again = list(run.log())[following.sequence - 1 :]
    assert story([e for e in again if e.kind in proposals][:1]) == story([following])


@pytest.mark.parametrize("cut", [3, 17])
def test_the_same_seed_and_log_give_the_same_proposals(tmp_path: Path, cut: int) -> None:
    with make_run(tmp_path / "whole", seed=3) as run:
        make_search(run, steps=20).search()
        whole = list(run.log())
        candidates = {a.candidate.id: a.candidate for a in run.attempts()}
    with make_run(tmp_path / "cut", seed=3) as run:
        for entry in whole[:cut]:
            run.store.append(entry, candidates.get(entry.candidate_id or ""))
        make_search(run, steps=20).search()
        assert story(run.log()) == story(whole)


def test_seeds_of_an_earlier_session_do_not_hide_those_that_are_left(tmp_path: Path) -> None:
    speeds = [round(0.5 + n / 100, 2) for n in range(SEEDER_REPEATS + 20)]
    with make_run(tmp_path / "whole") as run:
        make_search(run, seeds=speeds, steps=70).search()
        whole = story(run.log())
    with make_run(tmp_path / "cut") as run:
        with pytest.raises(KeyboardInterrupt):
            make_search(run, InterruptedAfter(SEEDER_REPEATS + 5), seeds=speeds, steps=70).search()
        make_search(run, seeds=speeds, steps=70).search()
        assert story(run.log()) == whole


def test_another_seed_gives_other_proposals(tmp_path: Path) -> None:
    stories = []
    for seed in (0, 1):
        with make_run(tmp_path / str(seed), seed=seed) as run:
            make_search(run, steps=15).search()
            stories.append(story(run.log()))
    assert stories[0] != stories[1]


def test_the_state_of_a_resumed_run_is_the_state_that_was(tmp_path: Path) -> None:
    with make_run(tmp_path / "run", seed=5) as run:
        search = make_search(run, steps=30)
        search.search()
        lived, rebuilt = search.state, replay(run)
    assert rebuilt.islands.island(0).cells == lived.islands.island(0).cells
    assert rebuilt.islands.island(0).top == lived.islands.island(0).top
    assert rebuilt.islands.island(0).failures == lived.islands.island(0).failures
    assert rebuilt.confirmed == lived.confirmed
    assert rebuilt.counts == lived.counts


def test_a_resumed_run_that_was_complete_only_reports(tmp_path: Path) -> None:
    with make_run(tmp_path / "run") as run:
        first = make_search(run).search()
    evaluator = ToyEvaluator()
    with Run.resume(tmp_path / "run") as run:
        again = make_search(run, evaluator).search()
    assert evaluator.screened == []
    assert again.outcome is Outcome.FASTER
    assert again.best_candidate_id == first.best_candidate_id
