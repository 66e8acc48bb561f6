"""One unit of work: a real search in a run directory, judged by an evaluator that is shared.

All searches of one problem are judged by one evaluator, so that reference and machine are the
same for all; the comparison of the reference with itself, which serves them all, is in no
search's cost (``reading.py``). Seeds are made once and offered to each of them.
``torch.compile`` is not timed: nothing here is told against it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.search.reading import row_of_run
from benchmarks.search.rows import SearchRow, Unit
from bot.pipeline import Lineup, make_lineup
from evaluator.candidate import BackendName, Candidate
from evaluator.problem import LoadedProblem
from evaluator.sandbox import Sandbox
from evaluator.supervisor import CompiledBaseline, LocalEvaluator
from evolver.journal import replay
from evolver.modes import SearchMode
from evolver.progress import Observer
from evolver.proposers.base import ProposalContext, Proposer
from evolver.run import ISLANDS, Run, RunConfig, problem_sha256
from evolver.search import Search
from evolver.store import EntryKind
from policies.model import EvaluatorPolicy


@dataclass(frozen=True)
class Bench:
    """What the units of one problem share."""

    loaded: LoadedProblem
    backend: BackendName
    policy: EvaluatorPolicy
    sandbox: Sandbox
    evaluator: LocalEvaluator
    lineup: Lineup
    observer: Observer


@contextmanager
def open_bench(
    loaded: LoadedProblem, backend: BackendName, policy: EvaluatorPolicy, observer: Observer
) -> Iterator[Bench]:
    """Start the evaluator.

    Raises:
        EvaluatorError: the machine, the sandbox or the reference fails.
    """
    from evaluator.sandbox.select import select_sandbox

    sandbox = select_sandbox()
    never = CompiledBaseline.NEVER
    with (
        closing(_with_stock(make_lineup())) as lineup,
        LocalEvaluator(
            loaded, backend, policy=policy, sandbox=sandbox, compiled=never
        ) as evaluator,
    ):
        yield Bench(loaded, backend, policy, sandbox, evaluator, lineup, observer)


class Stock:
    """A seeder that offers the whole list of another again in every search."""

    def __init__(self, seeder: Proposer) -> None:
        """Nothing is made before it is asked for."""
        self.name = seeder.name
        self._seeder = seeder
        self._made: list[Candidate] = []
        self._at = 0
        self._whole = False

    @property
    def failures(self) -> Sequence[str]:
        """What the seeder could not give, and why."""
        return tuple(getattr(self._seeder, "failures", ()))

    def rewind(self) -> None:
        """Begin with the first again."""
        self._at = 0

    def propose(self, context: ProposalContext) -> Candidate | None:
        """Return the next; None after the last."""
        if self._at == len(self._made) and not self._whole:
            made = self._seeder.propose(context)
            self._whole = made is None
            self._made += [made] if made is not None else []
        found = self._made[self._at : self._at + 1]
        self._at += len(found)
        return found[0] if found else None

    def close(self) -> None:
        """End the processes of the seeder."""
        getattr(self._seeder, "close", lambda: None)()


def _with_stock(lineup: Lineup) -> Lineup:
    """All but the fallback, which looks at what the search has found."""
    seeders = [s if getattr(s, "fallback", False) else Stock(s) for s in lineup.seeders]
    return replace(lineup, seeders=seeders)


def run_unit(
    bench: Bench, unit: Unit, path: Path, *, minutes_left: float | None = None
) -> SearchRow | None:
    """Search in ``path``, from where an earlier session left it, and read the run.

    Returns:
        None where ``minutes_left`` were over before the search was: a later call goes on.

    Raises:
        EvaluatorError: the machine, the sandbox or the reference fails.
        SearchError: the run directory cannot be used, or the machine is unfit throughout.
    """
    for seeder in bench.lineup.seeders:
        if isinstance(seeder, Stock):
            seeder.rewind()
    with _run(bench, unit, path) as run:
        budget = run.config.budget
        if minutes_left is not None:
            elapsed_seconds = replay(run).elapsed_seconds
            budget = replace(budget, minutes=elapsed_seconds / 60 + minutes_left)
        Search(
            run,
            bench.evaluator,
            seeders=bench.lineup.seeders,
            proposers=bench.lineup.proposers,
            budget=budget,
            observer=bench.observer,
        ).search()
        ended = [e.detail for e in run.store.entries(EntryKind.STOPPED)]
        if ended and ended[-1] == budget.out_of_time(math.inf):
            return None
        return row_of_run(run, SearchRow(unit=unit), bench.policy)


def _run(bench: Bench, unit: Unit, path: Path) -> Run:
    if path.exists():
        return Run.resume(path, loaded=bench.loaded, backend=bench.backend, seed=unit.seed)
    mode = SearchMode(unit.mode)
    config = RunConfig(
        problem_id=bench.loaded.problem.id,
        problem_sha256=problem_sha256(bench.loaded),
        backend=bench.backend,
        seed=unit.seed,
        steps=unit.steps,
        mode=mode,
        islands=ISLANDS if mode is SearchMode.EVOLVE else 1,
        adaptive=unit.adaptive,
        versions={},
        created_at=datetime.now(UTC),
    )
    return Run.create(path, bench.loaded, config)
