"""SIGKILL at random moments: nothing that ended may be lost, or be done again.

A session says on stdout which candidate it begins to evaluate. After each kill the log tells
what had ended. The log at the end must begin with what it held at every kill, each session
must have evaluated what the log gained plus at most what was in flight, and the whole must be
what a search that nobody kills comes to.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from benchmarks.search.rows import KillRow
from evolver.run import Run
from evolver.store import LogEntry

STEPS = 30
_MOST_SESSIONS = 200
_LATEST_KILL_SECONDS = 0.3
"""After a session's first evaluation: about as long as the rest of a search takes."""
_SESSION_SECONDS = 120.0
_ROOT = Path(__file__).resolve().parents[2]

Start = Callable[[Path], "subprocess.Popen[str]"]


@dataclass(frozen=True)
class Session:
    """One process, killed or not."""

    announced: Sequence[str]
    """Candidates whose evaluation it began."""
    log: Sequence[LogEntry]
    """As it lay on disk when the process was gone."""


def start_subject(seed: int, steps: int = STEPS) -> Start:
    """Return what starts, or resumes, the search of ``subject.py``."""

    def start(path: Path) -> subprocess.Popen[str]:
        words = [sys.executable, "-P", "-m", "benchmarks.search.subject"]
        return subprocess.Popen(
            [*words, str(path), str(seed), str(steps)],
            env={**os.environ, "PYTHONPATH": str(_ROOT)},
            stdout=subprocess.PIPE,
            text=True,
        )

    return start


def kill_until_it_ends(
    start: Start, path: Path, rng: random.Random, *, kills: int, latest_seconds: float
) -> list[Session]:
    """Start a search, kill it at a random moment, resume it; let it end after ``kills``.

    Raises:
        RuntimeError: a session neither ends nor begins an evaluation.
    """
    sessions: list[Session] = []
    while len(sessions) < _MOST_SESSIONS:
        process = start(path)
        assert process.stdout is not None
        # The moment is counted from the first evaluation, else most kills hit the imports.
        first = process.stdout.readline()
        if len(sessions) < kills:
            time.sleep(rng.uniform(0, latest_seconds))
            process.send_signal(signal.SIGKILL)
        rest, _ = process.communicate(timeout=_SESSION_SECONDS)
        with Run.open(path) as run:
            sessions.append(Session((first + rest).split(), list(run.log())))
        if process.returncode == 0:
            return sessions
        if process.returncode != -signal.SIGKILL:
            raise RuntimeError(f"the search in {path} ended with {process.returncode}")
    raise RuntimeError(f"the search in {path} did not end in {_MOST_SESSIONS} sessions")


def judge(sessions: Sequence[Session], whole: Sequence[LogEntry], *, lanes: int = 1) -> KillRow:
    """Compare what sessions left on disk with each other, and with an undisturbed search.

    Args:
        sessions: of one run, in order.
        whole: the log of a run with the same seed that nobody killed.
        lanes: how many evaluations may be in flight.
    """
    final = story(sessions[-1].log)
    lost = repeated = had = 0
    for session in sessions:
        kept = story(session.log)
        lost += sum(a != b for a, b in zip_longest(kept, final[: len(kept)]))
        gained = Counter(str(e.candidate_id) for e in session.log[had:] if e.evaluation)
        extra = sum((Counter(session.announced) - gained).values())
        repeated += max(0, extra - lanes)
        had = len(session.log)
    return KillRow(
        trial=0,
        kills=len(sessions) - 1,
        lost=lost,
        repeated=repeated,
        same_result=final == story(whole),
    )


def story(entries: Sequence[LogEntry]) -> list[tuple[object, ...]]:
    """What happened, without when and how long it took."""
    return [(e.kind, e.ticket, e.proposer, e.candidate_id, e.parent_id, e.detail) for e in entries]


def kill_trial(folder: Path, trial: int, *, kills: int) -> KillRow:
    """Take one seed's search through ``kills`` kills, beside an undisturbed one."""
    began = time.monotonic()
    start = start_subject(trial)
    undisturbed = random.Random(0)  # noqa: S311 - moments, not secrets
    [whole] = kill_until_it_ends(
        start, folder / f"{trial}-whole", undisturbed, kills=0, latest_seconds=0
    )
    sessions = kill_until_it_ends(
        start,
        folder / f"{trial}-killed",
        random.Random(trial),  # noqa: S311
        kills=kills,
        latest_seconds=_LATEST_KILL_SECONDS / max(1, kills),
    )
    row = judge(sessions, whole.log)
    seconds = round(time.monotonic() - began, 1)
    return row.model_copy(update={"trial": trial, "seconds": seconds})
