"""The repository's own word on a branch: its tests and its latency, before and after.

Both sides run in one sandbox, from exported commits, never in the user's checkout. Tests
that failed before the change are told apart from tests that fail because of it. Latency is
measured in interleaved rounds in random order, so that a drift of the machine meets both
sides alike; each round is a fresh process a side, and the interval is over rounds. It does
not choose hardware, install dependencies or judge accuracy beyond the tests.
"""

from __future__ import annotations

import json
import math
import random
import re
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import Literal
from xml.etree import ElementTree

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat

from evaluator.evaluation import Baseline, Verdict
from evaluator.records import Record
from integrations.checkouts import Checkouts, CommandResult
from integrations.errors import IntegrationError
from integrations.patch.repository import TargetRepository
from integrations.patch.result import INTEGRATION_DIRECTORY, IntegrationResult

BEFORE, AFTER = "before", "after"
VERIFICATION_FILE = f"{INTEGRATION_DIRECTORY}/verification.json"
_TEST_SECONDS = 600.0
_LATENCY_SECONDS = 300.0
_MOST_TEST_FILES = 20
_FEWEST_ROUNDS = 3
_JUNIT = "/tmp/junit.xml"  # noqa: S108 - the sandbox's own
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")

Progress = Callable[[str], None]


class TestRun(Record):
    """One run of pytest."""

    __test__ = False

    files: tuple[str, ...]
    """Empty for the whole suite."""
    status: Literal["ran", "could_not_run", "timed_out"]
    passed: NonNegativeInt = 0
    skipped: NonNegativeInt = 0
    failed: tuple[str, ...] = ()
    """Names of tests that failed or raised, and of files that could not be imported."""
    seconds: NonNegativeFloat = 0.0
    output_tail: str = ""


class LatencyComparison(Record):
    """The latency command on both sides. Below, a ratio is before over after."""

    command: tuple[str, ...]
    metric: str
    before: PositiveFloat
    after: PositiveFloat
    ratio: PositiveFloat
    low: PositiveFloat
    high: PositiveFloat
    confidence: float
    verdict: Verdict
    rounds: NonNegativeInt
    rounds_before: tuple[float, ...]
    rounds_after: tuple[float, ...]


class Verification(Record):
    """What the repository itself says of the branch."""

    schema_version: Literal[1] = 1
    branch: str
    base: str
    commit: str
    new_test: TestRun
    before: TestRun
    after: TestRun
    latency: LatencyComparison | None = None
    latency_problem: str | None = None
    """Why there is no latency although a command was given."""

    @property
    def broken(self) -> tuple[str, ...]:
        """Tests that fail after the change and did not before."""
        return tuple(sorted(set(self.after.failed) - set(self.before.failed)))

    @property
    def passed(self) -> bool:
        """Whether the new test ran and passed, and nothing broke."""
        new = self.new_test
        proved = new.status == "ran" and new.passed > 0 and not new.failed
        return proved and self.after.status == self.before.status and not self.broken

    def save(self, run_directory: Path) -> None:
        """Write the record into the run's directory, beside the integration's."""
        (run_directory / INTEGRATION_DIRECTORY).mkdir(exist_ok=True)
        text = self.model_dump_json(indent=2)
        (run_directory / VERIFICATION_FILE).write_text(text + "\n", encoding="utf-8")


class LatencyUnreadable(IntegrationError):
    """The latency command failed, or printed no number."""


def verify(
    result: IntegrationResult,
    repository: Path,
    *,
    latency_command: Sequence[str] = (),
    rounds: int = 8,
    latency_seconds: float = 900.0,
    threads: int,
    whole_suite: bool = False,
    gpu: bool = False,
    progress: Progress = lambda _: None,
) -> Verification:
    """Run the tests that cover the change, and the latency command, on both sides.

    After ``latency_seconds`` no further round begins, once there are three.

    Raises:
        RepositoryUnfit: the commits are not in ``repository``.
        SandboxUnavailable: nothing is run without a sandbox.
        WorkerLost: the sandbox died.
    """
    git_side = TargetRepository(repository)
    commits = {BEFORE: git_side.resolve(result.base), AFTER: git_side.resolve(result.commit)}
    files = () if whole_suite else covering_tests(git_side, result)
    with Checkouts(git_side, commits, threads=threads, gpu=gpu) as checkouts:
        progress("new test")
        new_test = _run_tests(checkouts, AFTER, (result.test_file,), result.import_root)
        runs = {}
        for side in (BEFORE, AFTER):
            progress(f"the repository's tests, {side}")
            runs[side] = _nothing_to_run()
            if files or whole_suite:
                runs[side] = _run_tests(checkouts, side, files, result.import_root)
        latency, problem = None, None
        if latency_command:
            try:
                latency = _compare_latency(
                    checkouts, tuple(latency_command), rounds, latency_seconds, progress
                )
            except LatencyUnreadable as error:
                problem = str(error)
    return Verification(
        branch=result.branch,
        base=commits[BEFORE],
        commit=commits[AFTER],
        new_test=new_test,
        before=runs[BEFORE],
        after=runs[AFTER],
        latency=latency,
        latency_problem=problem,
    )


def covering_tests(git_side: TargetRepository, result: IntegrationResult) -> tuple[str, ...]:
    """Test files of the base commit that name the target's module, the nearest names first."""
    stem = PurePosixPath(result.target.rpartition("::")[0]).stem
    word = re.compile(rf"\b{re.escape(stem)}\b".encode())
    tests = [p for p in sorted(git_side.files()) if _is_test(p)]
    naming = [p for p in tests if word.search(git_side.read(p))]
    naming.sort(key=lambda p: stem not in p.stem)
    return tuple(str(p) for p in naming[:_MOST_TEST_FILES])


def _is_test(path: PurePosixPath) -> bool:
    named = path.name.startswith("test_") or path.stem.endswith("_test")
    return path.suffix == ".py" and named


def _nothing_to_run() -> TestRun:
    return TestRun(files=(), status="ran", output_tail="no test of the repository names the module")


def _run_tests(
    checkouts: Checkouts, side: str, files: tuple[str, ...], import_root: str
) -> TestRun:
    command = [
        "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", "--color=no",
        f"--junitxml={_JUNIT}", *files,
    ]  # fmt: skip
    environment = {"PYTHONPATH": import_root}
    done = checkouts.run(
        side, command, seconds=_TEST_SECONDS, environment=environment, collect=_JUNIT
    )
    status: Literal["ran", "could_not_run", "timed_out"] = "ran"
    if done.timed_out:
        status = "timed_out"
    elif done.collected is None:
        status = "could_not_run"
    found = _read_junit(done.collected or "<testsuites/>")
    return TestRun(
        files=files,
        status=status,
        passed=found.count("passed"),
        skipped=found.count("skipped"),
        failed=tuple(sorted(found.failures)),
        seconds=done.seconds,
        output_tail=done.output[-4000:],
    )


class _Outcomes:
    """Outcomes by test, read from JUnit XML."""

    def __init__(self) -> None:
        self.by_test: dict[str, str] = {}

    def count(self, outcome: str) -> int:
        return sum(found == outcome for found in self.by_test.values())

    @property
    def failures(self) -> list[str]:
        return [name for name, outcome in self.by_test.items() if outcome == "failed"]


def _read_junit(text: str) -> _Outcomes:
    """Read what pytest wrote. It comes from untrusted code: no entities, a bounded size."""
    outcomes = _Outcomes()
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        return outcomes
    try:
        suites = ElementTree.fromstring(text)  # noqa: S314 - see above
    except ElementTree.ParseError:
        return outcomes
    for case in suites.iter("testcase"):
        name = "::".join(filter(None, (case.get("classname"), case.get("name"))))
        tags = {child.tag for child in case}
        outcome = "failed" if tags & {"failure", "error"} else "passed"
        outcomes.by_test[name] = "skipped" if "skipped" in tags else outcome
    return outcomes


def _compare_latency(
    checkouts: Checkouts,
    command: tuple[str, ...],
    rounds: int,
    seconds: float,
    progress: Progress,
) -> LatencyComparison:
    """Time both sides ``rounds`` times in random order, after one round that does not count."""
    order = random.Random(0)  # noqa: S311 - an order, not a secret
    figures: dict[str, list[float]] = {BEFORE: [], AFTER: []}
    metric = "latency"
    deadline = time.monotonic() + seconds
    for number in range(rounds + 1):
        if number > _FEWEST_ROUNDS and time.monotonic() > deadline:
            break
        progress(f"latency, round {number} of {rounds}" if number else "latency, warm-up")
        for side in order.sample((BEFORE, AFTER), 2):
            done = checkouts.run(side, command, seconds=_LATENCY_SECONDS)
            metric, value = read_latency(done, command)
            if number:
                figures[side].append(value)
    return _compared(command, metric, figures)


def read_latency(done: CommandResult, command: Sequence[str]) -> tuple[str, float]:
    """Name and value from a command's output: a JSON object with ``value``, or the last number.

    Raises:
        LatencyUnreadable: it failed, or printed no positive number.
    """
    shown = " ".join(command)
    if done.status != 0:
        how = "ran out of time" if done.timed_out else f"ended with status {done.status}"
        raise LatencyUnreadable(f"`{shown}` {how}: {done.output.strip()[-500:]}")
    for line in reversed(done.output.splitlines()):
        try:
            found = json.loads(line)
            value = found["value"] if isinstance(found, dict) else None
        except (ValueError, KeyError):
            continue
        if isinstance(value, int | float) and value > 0 and math.isfinite(value):
            return str(found.get("metric", "latency")), float(value)
    numbers = [float(n) for n in _NUMBER.findall(done.output)]
    if not numbers or numbers[-1] <= 0:
        raise LatencyUnreadable(
            f'`{shown}` printed no latency; let it print a JSON object with "value" '
            f"or a number last. It printed: {done.output.strip()[-300:] or 'nothing'}"
        )
    return "latency", numbers[-1]


def _compared(
    command: tuple[str, ...], metric: str, figures: dict[str, list[float]]
) -> LatencyComparison:
    import numpy as np

    from evaluator.timing.statistics import Judge, Samples, workload_speedup

    before, after = np.asarray(figures[BEFORE]), np.asarray(figures[AFTER])
    # Every round is a process pair of its own, so the spread between processes is in the data.
    judge = Judge(confidence=0.95, threshold=1.0, process_noise=0.0)
    samples = Samples(workload=metric, weight=1.0, pairs=(np.log(before / after),))
    found = workload_speedup(samples, Baseline.EAGER, judge)
    return LatencyComparison(
        command=command,
        metric=metric,
        before=statistics.median(figures[BEFORE]),
        after=statistics.median(figures[AFTER]),
        ratio=found.value,
        low=found.low,
        high=found.high,
        confidence=found.confidence,
        verdict=found.verdict,
        rounds=len(before),
        rounds_before=tuple(figures[BEFORE]),
        rounds_after=tuple(figures[AFTER]),
    )
