"""The pipeline up to a winner: extraction and search (``landing.py`` has the stages after it).

Each stage reads what the stage before wrote and writes a directory of its own, so that any
stage can be run, inspected, repeated or resumed alone. Nothing here prints or exits; who
starts a stage (the command line, a job, a benchmark) watches through its observer.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

from evaluator.candidate import BackendName
from evaluator.machine import gpus, package_version
from evaluator.problem import LoadedProblem, load_problem
from evaluator.records import complaint
from evaluator.service import Evaluator
from evolver.budget import DEFAULT_STEPS
from evolver.errors import SearchError
from evolver.library.entry import Known
from evolver.modes import SearchMode
from evolver.progress import Observer, ignore
from evolver.proposers.base import Proposer
from evolver.proposers.llm.config import LlmConfig
from evolver.run import ISLANDS, Run, RunConfig, problem_sha256, require_free
from evolver.summary import Summary
from policies.model import EvaluatorPolicy


@dataclass(frozen=True)
class Lineup:
    """The proposers of one search."""

    seeders: Sequence[Proposer]
    """Each gives the same seeds, in the same order, in every session."""
    proposers: Sequence[Proposer]
    """Chosen between by the bandit; each a pure function of its context, models apart."""

    def close(self) -> None:
        """End the processes that proposers hold."""
        for proposer in (*self.seeders, *self.proposers):
            getattr(proposer, "close", lambda: None)()


@dataclass(frozen=True)
class SearchOrder:
    """What a search is asked for. None leaves it to the run that is resumed, or to us."""

    backend: BackendName | None = None
    steps: int | None = None
    minutes: float | None = None
    gpu_seconds: float | None = None
    tokens: int | None = None
    money_usd: float | None = None
    seed: int | None = None
    mode: SearchMode | None = None
    islands: int | None = None
    adaptive: bool | None = None
    llm: LlmConfig | None = None
    """The models to ask; None asks none."""
    library: Path | None = None
    """Of what worked: a new run is told of it, and adds to it at its end; None is neither."""
    benchmark: bool = False
    """Whether the result is a benchmark's: then the library tells nothing of its repository."""

    @property
    def budget(self) -> dict[str, float | None]:
        """The limits that end a search: given together, so that none of an earlier budget stays."""
        return {"steps": self.steps, "minutes": self.minutes, "gpu_seconds": self.gpu_seconds}

    def llm_within_limits(self, models: LlmConfig | None) -> LlmConfig | None:
        """Return ``models`` with the limits of tokens and money that are asked for.

        Raises:
            SearchError: limits are asked for, but no model is.
        """
        asked = {"max_tokens": self.tokens, "max_usd": self.money_usd}
        limits = {name: limit for name, limit in asked.items() if limit is not None}
        if not limits:
            return models
        if models is None:
            raise SearchError(
                "a limit of tokens or money is for models, and none is asked; name one with --model"
            )
        try:
            return LlmConfig.model_validate({**models.model_dump(), **limits})
        except ValidationError as error:
            raise SearchError(f"the limits do not fit the models: {complaint(error)}") from error


def extract_stage(target: str, repository: Path, *, workloads: Path | None = None) -> LoadedProblem:
    """Extract ``target`` (``path::qualname``) into ``runs/problems/<id>``, replacing what is there.

    Raises:
        IntegrationError: the target cannot be found or not faithfully extracted, or nothing
            tells its inputs.
        EvaluatorError: the extracted reference cannot run, or there is no sandbox.
    """
    from integrations.extraction.pipeline import extract, problem_id

    folder = Path("runs") / "problems" / problem_id(target)
    extract(target, repository, folder, workloads=workloads, force=True)
    return load_problem(folder)


def search_stage(
    loaded: LoadedProblem,
    run_path: Path,
    order: SearchOrder,
    *,
    resume: bool = False,
    observer: Observer = ignore,
    policy: EvaluatorPolicy | None = None,
) -> Summary:
    """Search for a faster candidate of ``loaded`` in the run directory ``run_path``.

    Candidates are judged by ``policy``, by default ``policies/default.yml``; a run is resumed
    with the one that it was made with.

    Raises:
        SearchError: the run directory cannot be used, or the machine is unfit throughout.
        EvaluatorError: the sandbox, the backend or the reference fails.
    """
    began = time.monotonic()
    if resume:
        with (
            _resumed(loaded, run_path, order) as run,
            closing(_lineup_for(run.config, run_path)) as lineup,
            make_evaluator(loaded, run.config.backend, policy) as evaluator,
        ):
            return _search(run, evaluator, lineup, order, observer, began)
    # The run comes last: a reference or an endpoint that fails leaves no empty one behind.
    require_free(run_path)
    config = _config(loaded, order)
    with (
        closing(_lineup_for(config, run_path)) as lineup,
        make_evaluator(loaded, config.backend, policy) as evaluator,
        Run.create(run_path, loaded, config) as run,
    ):
        return _search(run, evaluator, lineup, order, observer, began)


def make_evaluator(
    loaded: LoadedProblem, backend: BackendName, policy: EvaluatorPolicy | None = None
) -> AbstractContextManager[Evaluator]:
    """Return the evaluator of this machine."""
    from evaluator.supervisor import LocalEvaluator

    return LocalEvaluator(loaded, backend, policy=policy)


def make_lineup() -> Lineup:
    """Return the proposers that need nothing but this machine."""
    from evolver.proposers.compiler import CompilerProposer
    from evolver.proposers.library import LibraryProposer
    from evolver.proposers.mutate import MutateProposer
    from evolver.proposers.synth import Lowerings, SynthProposer, SynthSeeder

    lowerings = Lowerings()
    return Lineup(
        seeders=[CompilerProposer(), SynthSeeder(lowerings), LibraryProposer()],
        proposers=[MutateProposer(), SynthProposer(lowerings)],
    )


def _lineup_for(config: RunConfig, run_path: Path) -> Lineup:
    """Return the proposers that a run asks for; its models are asked whether they are there.

    Raises:
        LlmUnavailable: a model is asked for and cannot be.
    """
    from evolver.proposers.mutate import OPERATORS

    backend, llm = config.backend, config.llm
    lineup = make_lineup() if backend in OPERATORS else Lineup(seeders=[], proposers=[])
    if llm is None:
        return lineup
    from evolver.proposers.llm import TRANSCRIPT_FILE, LlmProposer, hardware_for

    asked = LlmProposer(llm, run_path / TRANSCRIPT_FILE, hardware=hardware_for(backend)).checked()
    return Lineup(seeders=lineup.seeders, proposers=[*lineup.proposers, asked])


def default_backend() -> BackendName:
    """Return ``triton`` where there is a GPU to time it on, else ``cpp``."""
    return BackendName.TRITON if gpus() else BackendName.CPP


def default_run_path(problem_id: str, now: datetime) -> Path:
    """Return ``runs/<problem>-<date>``, under the current directory."""
    return Path("runs") / f"{problem_id}-{now:%Y-%m-%d}"


def latest_run_path(problem_id: str) -> Path | None:
    """Return the latest of the problem's default run directories, or None."""
    found = sorted(Path("runs").glob(f"{problem_id}-????-??-??"))
    return found[-1] if found else None


def _search(
    run: Run,
    evaluator: Evaluator,
    lineup: Lineup,
    order: SearchOrder,
    observer: Observer,
    began: float,
) -> Summary:
    from evolver.library.harvest import keep_what_worked
    from evolver.library.store import Library
    from evolver.search import Search

    search = Search(
        run,
        evaluator,
        seeders=lineup.seeders,
        proposers=lineup.proposers,
        budget=run.config.budget,
        known=run.config.known,
        observer=observer,
        startup_seconds=time.monotonic() - began,
    )
    summary = search.search()
    if order.library is not None:
        keep_what_worked(run, Library(order.library))
    return summary


def _resumed(loaded: LoadedProblem, run_path: Path, order: SearchOrder) -> Run:
    run = Run.resume(
        run_path,
        loaded=loaded,
        backend=order.backend,
        seed=order.seed,
        mode=order.mode,
        islands=order.islands,
    )
    try:
        run.reconfigure(**_changes(run, order))
    except BaseException:
        run.close()
        raise
    return run


def _changes(run: Run, order: SearchOrder) -> dict[str, object]:
    """Return what a resumption asks to be different from now on."""
    changes: dict[str, object] = {"llm": order.llm_within_limits(order.llm or run.config.llm)}
    if any(limit is not None for limit in order.budget.values()):
        changes |= order.budget
    if order.adaptive is not None:
        changes["adaptive"] = order.adaptive
    return changes


def _config(loaded: LoadedProblem, order: SearchOrder) -> RunConfig:
    from evolver.proposers.mutate import OPERATORS

    unlimited = all(limit is None for limit in order.budget.values())
    mode = order.mode or SearchMode.EVOLVE
    backend = order.backend or default_backend()
    if backend not in OPERATORS and order.llm is None:
        raise SearchError(
            f"nothing but a model proposes {backend} candidates yet; name one with --model, "
            f"search with --backend {' or '.join(OPERATORS)}, or judge one of your own with "
            "`ksmith evaluate`"
        )
    return RunConfig(
        problem_id=loaded.problem.id,
        problem_sha256=problem_sha256(loaded),
        backend=backend,
        seed=order.seed or 0,
        steps=DEFAULT_STEPS if unlimited else order.steps,
        minutes=order.minutes,
        gpu_seconds=order.gpu_seconds,
        mode=mode,
        islands=order.islands or (ISLANDS if mode is SearchMode.EVOLVE else 1),
        adaptive=order.adaptive or False,
        llm=order.llm_within_limits(order.llm),
        known=_known(loaded, backend, order),
        versions=_versions(),
        created_at=datetime.now(UTC),
    )


def _known(loaded: LoadedProblem, backend: BackendName, order: SearchOrder) -> tuple[Known, ...]:
    """Return what the library tells a new run; never anything of the same problem."""
    from evolver.library.offer import Exclusion, known_for
    from evolver.library.store import Library

    if order.library is None:
        return ()
    here = gpus()
    device = here[0].name if here and backend is not BackendName.CPP else "cpu"
    exclude = Exclusion.for_benchmark if order.benchmark else Exclusion.of
    library = Library(order.library)
    return known_for(library, loaded, backend, device, excluding=exclude(loaded))


def _versions() -> dict[str, str]:
    found = {name: package_version(name) for name in ("ksmith-bot", "torch", "triton")}
    installed = {name: version for name, version in found.items() if version is not None}
    return {"python": platform.python_version(), **installed}
