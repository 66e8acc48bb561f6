"""A run may be killed at any moment: what ended is never lost and never done twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from evolver.run import Run
from evolver.journal import replay
from evolver.store import EntryKind, LogEntry
from evolver.summary import Outcome
from tests.evolver.toys import ROOT, ToyEvaluator, make_run, make_search

STEPS = 25


def start(path: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.evolver.toys", str(path), "7", str(STEPS), "0.004"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )


def story(entries: list[LogEntry]) -> list[tuple[object, ...]]:
    """What happened, without when and how long it took."""
    return [(e.kind, e.proposer, e.candidate_id, e.parent_id, e.detail) for e in entries]


def kill_until_finished(path: Path, rng: random.Random) -> tuple[list[str], int]:
    """Run, kill at a random moment, resume, until a session ends by itself."""
    screened: list[str] = []
    for kills in range(100):
        process = start(path)
        assert process.stdout is not None
        # The moment is counted from the first evaluation, else most kills hit the imports.
        screened += [process.stdout.readline().strip()]
        time.sleep(rng.uniform(0.0, 0.08))
        if kills < 12:
            os.kill(process.pid, signal.SIGKILL)
        rest, _ = process.communicate(timeout=60)
        screened += rest.split()
        if process.returncode == 0:
            return [s for s in screened if s], kills
    raise AssertionError("the run never ended")


def test_sigkill_at_random_moments_loses_and_repeats_nothing(tmp_path: Path) -> None:
    with make_run(tmp_path / "whole", seed=7, steps=STEPS) as run:
        whole = make_search(run, steps=STEPS).search()
        expected = story(list(run.log()))
    screened, kills = kill_until_finished(tmp_path / "killed", random.Random(1))
    with Run.open(tmp_path / "killed") as run:
        entries = list(run.log())
        resumed = run.summary()
    assert story(entries) == expected
    assert resumed.speedups == whole.speedups
    # Every screening but those in flight at a kill ended in the log, once.
    logged = [
        e.candidate_id
        for e in entries
        if e.kind in (EntryKind.EVALUATED, EntryKind.REMEASURED) and e.candidate_id
    ]
    repeated = Counter(screened) - Counter(logged)
    assert sum(repeated.values()) <= kills
    assert Counter(logged) - Counter(screened) == Counter()


@pytest.mark.parametrize("cut", [1, 3, 4, 9, 17])
def test_the_same_seed_and_log_give_the_same_proposals(tmp_path: Path, cut: int) -> None:
    with make_run(tmp_path / "whole", seed=3) as run:
        make_search(run, steps=20).search()
        whole = list(run.log())
        candidates = {a.candidate.id: a.candidate for a in run.attempts()}
    with make_run(tmp_path / "cut", seed=3) as run:
        for entry in whole[:cut]:
            run.store.append(entry, candidates.get(entry.candidate_id or ""))
        make_search(run, steps=20).search()
        assert story(list(run.log())) == story(whole)


def test_another_seed_gives_other_proposals(tmp_path: Path) -> None:
    stories = []
    for seed in (0, 1):
        with make_run(tmp_path / str(seed), seed=seed) as run:
            make_search(run, steps=15).search()
            stories.append(story(list(run.log())))
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
