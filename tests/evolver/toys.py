"""A search in miniature: candidates that state their own speed, and who proposes and judges them.

A toy candidate is ``SPEED = 1.25``; the evaluator reads the number, so that a whole search
runs in milliseconds and is deterministic. ``search_in_process`` runs one in a process of its
own, to be killed.
"""

from __future__ import annotations

import multiprocessing
import re
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from evaluator.candidate import BackendName, Candidate
from evaluator.evaluation import Evaluation, Status
from evaluator.problem import LoadedProblem
from evolver.budget import Budget
from evolver.proposers.base import ProposalContext, Proposer
from evolver.run import Run, RunConfig, problem_sha256
from evolver.search import Search
from tests.builders import make_evaluation, make_problem

ROOT = Path(__file__).resolve().parents[2]


def toy_source(speed: float, size: int = 0) -> str:
    loops = "\n".join(
        f"for (int i{n} = 0; i{n} < n; ++i{n}) out[i{n}] = x[i{n}];" for n in range(size)
    )
    return f'SPEED = {speed!r}\nSOURCE = r"""\n{loops}\n"""\n'


def toy_candidate(
    speed: float, *, proposer: str = "toy", size: int = 0, **changes: Any
) -> Candidate:
    return Candidate.create(
        toy_source(speed, size), backend=BackendName.CPP, proposer=proposer, **changes
    )


def speed_of(candidate: Candidate) -> float:
    found = re.match(r"SPEED = (\S+)", candidate.source)
    assert found is not None
    return float(found[1])


class ToyEvaluator:
    """Believes a candidate's own number; negative is incorrect. Keeps what it was asked."""

    def __init__(
        self,
        pause_seconds: float = 0.0,
        on_screen: Callable[[Candidate], Any] = id,
        lanes: int = 1,
    ) -> None:
        self.lanes = lanes
        self.screened: list[str] = []
        self.confirmed: list[str] = []
        self.refuses: set[str] = set()
        """Candidates whose confirmation fails: they were only lucky."""
        self._pause_seconds = pause_seconds
        self._on_screen = on_screen

    def screen(self, candidate: Candidate, *, incumbent_us: float | None = None) -> Evaluation:
        self.screened.append(candidate.id)
        self._on_screen(candidate)
        time.sleep(self._pause_seconds)
        speed = speed_of(candidate)
        if speed < 0:
            return make_evaluation(candidate, status=Status.INCORRECT)
        return make_evaluation(candidate, speedup=speed)

    def confirm(self, candidate: Candidate) -> Evaluation:
        self.confirmed.append(candidate.id)
        speed = 1.0 if candidate.id in self.refuses else speed_of(candidate)
        return make_evaluation(candidate, speedup=speed, confirmed=True)


class Seeds:
    """Offers fixed speeds, one after the other, and starts over in each session."""

    name = "seeds"

    def __init__(self, *speeds: float) -> None:
        self._left = list(speeds)

    def propose(self, context: ProposalContext) -> Candidate | None:
        return toy_candidate(self._left.pop(0), proposer=self.name) if self._left else None


class Nudge:
    """Makes the parent a little faster or slower, larger or smaller."""

    name = "nudge"

    def propose(self, context: ProposalContext) -> Candidate | None:
        if context.parent is None:
            return None
        parent = context.parent.candidate
        speed = round(abs(speed_of(parent)) * context.rng.uniform(0.9, 1.15), 3)
        if context.rng.random() < 0.2:
            speed = -speed
        size = context.rng.randrange(6)
        return toy_candidate(speed, proposer=self.name, size=size, parents=(parent.id,))


class Ticks:
    """A clock on which every look takes a second."""

    def __init__(self) -> None:
        self._now = 0.0

    def __call__(self) -> float:
        self._now += 1.0
        return self._now


def make_config(loaded: LoadedProblem, **changes: Any) -> RunConfig:
    fields: dict[str, Any] = {
        "problem_id": loaded.problem.id,
        "problem_sha256": problem_sha256(loaded),
        "backend": BackendName.CPP,
        "versions": {"ksmith-bot": "0"},
        "created_at": datetime(2026, 1, 2, tzinfo=UTC),
    }
    return RunConfig(**{**fields, **changes})


def make_run(path: Path, **changes: Any) -> Run:
    loaded = make_problem()
    return Run.create(path, loaded, make_config(loaded, **changes))


def make_search(
    run: Run,
    evaluator: ToyEvaluator | None = None,
    *,
    seeds: Sequence[float] = (0.8, 1.1, 0.9),
    proposers: Sequence[Proposer] | None = None,
    steps: int | None = 12,
    **options: Any,
) -> Search:
    options.setdefault("clock", Ticks())
    return Search(
        run,
        evaluator if evaluator is not None else ToyEvaluator(),
        seeders=[Seeds(*seeds)],
        proposers=[Nudge()] if proposers is None else proposers,
        budget=options.pop("budget", Budget(steps=steps)),
        **options,
    )


def search_in_process(
    path: Path, *, steps: int, seed: int = 7, pause_seconds: float = 0.004, lanes: int = 1
) -> ForkServerProcess:
    """Start or resume a search in a process of its own; candidates are announced in a file."""
    options = {"steps": steps, "seed": seed, "pause_seconds": pause_seconds, "lanes": lanes}
    process = _SERVER.Process(target=_search_here, args=(path,), kwargs=options)
    process.start()
    return process


def announced(path: Path) -> list[str]:
    """Return the candidates whose screening has begun in the processes of the run at ``path``."""
    file = path.with_suffix(".announced")
    return file.read_text().split() if file.exists() else []


def _search_here(path: Path, *, steps: int, seed: int, pause_seconds: float, lanes: int) -> None:
    def announce(candidate: Candidate) -> None:
        with path.with_suffix(".announced").open("a") as file:
            file.write(f"{candidate.id}\n")

    evaluator = ToyEvaluator(pause_seconds, announce, lanes)
    resumes = path.exists()
    with Run.resume(path) if resumes else make_run(path, seed=seed, steps=steps) as run:
        make_search(run, evaluator, steps=steps, clock=time.monotonic).search()


_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload([__name__])
