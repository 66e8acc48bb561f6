"""The whole path, from a profile of the demo's engine to a verified branch.

Nothing is prepared: the target is the function that the profile shows, the kernel is what
the search finds on this machine, and where nothing is faster the result says so. Whoever
starts it shows the progress.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from bot.demo.repository import write_engine
from bot.landing import integrate_stage, verify_stage
from bot.pipeline import SearchOrder, search_stage
from evaluator.errors import EvaluatorError
from evaluator.problem import load_problem
from evaluator.records import Record
from evolver.progress import Observer
from evolver.report import write_report
from evolver.run import Run
from evolver.summary import Outcome, Summary
from integrations.checkouts import Checkouts
from integrations.extraction.pipeline import extract
from integrations.patch import IntegrationResult
from integrations.patch.repository import TargetRepository
from integrations.patch.result import DIFF_FILE
from integrations.verify import Verification

LATENCY_COMMAND = ("python", "bench_latency.py", "--json")
_PROFILE_COMMAND = ("python", "bench_latency.py", "--profile")
_PROFILE_SECONDS = 120.0
_LATENCY_ROUNDS = 10
_LATENCY_SECONDS = 75.0
_FIRST_TARGET_SHARE = 0.6
"""Of the time to search; the rest is for the next target, should the first give nothing."""
_LEAST_MINUTES = 0.2


class Tried(Record):
    """One target that was searched."""

    target: str
    share: float
    """Of a decoding step's time, measured."""
    run: str
    summary: Summary


class DemoResult(Record):
    """What the demo did."""

    directory: str
    repository: str
    shares: dict[str, float]
    tried: tuple[Tried, ...]
    integration: IntegrationResult | None = None
    verification: Verification | None = None
    report: str
    seconds: float


@dataclass(frozen=True)
class Audience:
    """Who is told what."""

    tell: Callable[[str], None]
    """A line about what has just been found or begins now."""
    watch: Callable[[], AbstractContextManager[Observer]]
    """The view of one search."""


class ProfileFailed(EvaluatorError):
    """The engine's own profile did not run in the sandbox."""


def run_demo(directory: Path, *, minutes: float, audience: Audience) -> DemoResult:
    """Run the path in ``directory``, which is made. ``minutes`` is the time to search.

    Raises:
        OSError: the directory exists or cannot be written.
        EvaluatorError: this machine cannot evaluate (no sandbox, no compiler).
    """
    begin = time.monotonic()
    directory.mkdir(parents=True)
    try:
        repository = write_engine(directory / "engine")
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise
    audience.tell(f"wrote a small inference engine to {repository}")
    shares = profile(repository)
    for target, share in shares.items():
        audience.tell(f"  {share:6.1%} of a decoding step in {target}")
    tried = _search_until_one_wins(directory, repository, shares, minutes, audience)
    last = tried[-1]
    integration, verification = None, None
    if last.summary.outcome is Outcome.FASTER:
        integration, verification = _land(Path(last.run), repository, audience)
    with Run.open(Path(last.run)) as run:
        diff = Path(last.run) / DIFF_FILE
        report = write_report(run, diff=diff.read_text("utf-8") if diff.exists() else None)
    result = DemoResult(
        directory=str(directory),
        repository=str(repository),
        shares=shares,
        tried=tuple(tried),
        integration=integration,
        verification=verification,
        report=str(report),
        seconds=time.monotonic() - begin,
    )
    (directory / "demo.json").write_text(result.model_dump_json(indent=2) + "\n", encoding="utf-8")
    return result


def profile(repository: Path) -> dict[str, float]:
    """Shares of a decoding step by target, the largest first, measured in the sandbox.

    Raises:
        ProfileFailed: the profile did not run.
    """
    side = TargetRepository(repository)
    with Checkouts(side, {"base": side.base}, threads=1) as checkouts:
        done = checkouts.run("base", _PROFILE_COMMAND, seconds=_PROFILE_SECONDS)
    try:
        shares: dict[str, float] = json.loads(done.output.strip().splitlines()[-1])["shares"]
    except (ValueError, KeyError, IndexError) as error:
        raise ProfileFailed(
            f"`{' '.join(_PROFILE_COMMAND)}` failed in the sandbox: {done.output[-500:]}; "
            "`ksmith doctor` says what this machine lacks"
        ) from error
    return dict(sorted(shares.items(), key=lambda item: -item[1]))


def _search_until_one_wins(
    directory: Path,
    repository: Path,
    shares: dict[str, float],
    minutes: float,
    audience: Audience,
) -> list[Tried]:
    tried: list[Tried] = []
    left = minutes
    for target, share in shares.items():
        begin = time.monotonic()
        allowed = left if tried else left * _FIRST_TARGET_SHARE
        audience.tell(f"searching for a faster {target}, {allowed:.1f} minutes")
        tried.append(_search(directory, repository, target, share, allowed, audience))
        audience.tell(f"  {tried[-1].summary.message}")
        left -= (time.monotonic() - begin) / 60
        if tried[-1].summary.outcome is Outcome.FASTER or left < _LEAST_MINUTES:
            break
    return tried


def _search(
    directory: Path,
    repository: Path,
    target: str,
    share: float,
    minutes: float,
    audience: Audience,
) -> Tried:
    name = target.rpartition("::")[2]
    problem = directory / "problems" / name
    extract(target, repository, problem, workloads=repository / "workloads" / f"{name}.yml")
    loaded = load_problem(problem)
    run_path = directory / "runs" / name
    with audience.watch() as observer:
        order = SearchOrder(minutes=minutes)
        summary = search_stage(loaded, run_path, order, observer=observer)
    return Tried(target=target, share=share, run=str(run_path), summary=summary)


def _land(
    run_path: Path, repository: Path, audience: Audience
) -> tuple[IntegrationResult, Verification]:
    integration = integrate_stage(run_path, repository)
    audience.tell(f"committed to the branch {integration.branch}")
    verification = verify_stage(
        run_path,
        repository,
        latency_command=LATENCY_COMMAND,
        rounds=_LATENCY_ROUNDS,
        latency_seconds=_LATENCY_SECONDS,
        whole_suite=True,
        progress=audience.tell,
    )
    return integration, verification
