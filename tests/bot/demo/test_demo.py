"""The demonstration, stage by stage and as a whole."""

from __future__ import annotations

import errno
from contextlib import nullcontext
from pathlib import Path

import pytest

from bot import pipeline
from bot.demo.path import LATENCY_COMMAND, Audience, profile, run_demo
from bot.demo.repository import write_engine
from evaluator.candidate import BackendName, Candidate
from evolver.progress import ignore
from evolver.proposers.base import ProposalContext
from evolver.summary import Outcome
from integrations.checkouts import Checkouts
from integrations.patch.repository import TargetRepository
from integrations.verify import read_latency
from tests.integrations.patch.repositories import git
from tests.samples import RMS_NORM_CPP

pytestmark = pytest.mark.real


@pytest.fixture
def engine(tmp_path: Path) -> Path:
    return write_engine(tmp_path / "an engine")


def test_the_engine_is_a_clean_repository_of_one_commit(engine: Path) -> None:
    assert git(engine, "status", "--porcelain") == ""
    assert git(engine, "rev-list", "--count", "HEAD") == "1"
    assert ".gitignore" in git(engine, "ls-files").splitlines()
    assert not list(engine.rglob("__pycache__"))


@pytest.mark.sandbox
def test_the_engines_own_tests_and_latency_script_run_in_the_sandbox(engine: Path) -> None:
    side = TargetRepository(engine)
    with Checkouts(side, {"base": side.base}, threads=1) as checkouts:
        tests = checkouts.run("base", ["python", "-m", "pytest", "-q"], seconds=120)
        latency = checkouts.run("base", LATENCY_COMMAND, seconds=120)

    assert tests.status == 0, tests.output
    assert read_latency(latency, LATENCY_COMMAND)[0] == "decode_step_ms"


@pytest.mark.sandbox
def test_the_profile_measures_a_share_for_every_function_that_has_workloads(engine: Path) -> None:
    shares = profile(engine)

    assert list(shares.values()) == sorted(shares.values(), reverse=True)
    assert all(0 < share < 1 for share in shares.values())
    for target in shares:
        assert (engine / "workloads" / f"{target.rpartition('::')[2]}.yml").is_file()


def test_a_full_disk_leaves_no_half_of_an_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def half(directory: Path) -> Path:
        directory.mkdir()
        (directory / "half.py").touch()
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("bot.demo.path.write_engine", half)
    with pytest.raises(OSError, match="No space"):
        run_demo(
            tmp_path / "demo", minutes=1, audience=Audience(print, lambda: nullcontext(ignore))
        )
    assert not list(tmp_path.iterdir())


class OneSeed:
    """Proposes the norm's kernel once, and nothing for other targets."""

    name = "seed"

    def __init__(self) -> None:
        self._done = False

    def propose(self, context: ProposalContext) -> Candidate | None:
        if self._done or "add_rms_norm" not in context.loaded.problem.origin.target:
            return None
        self._done = True
        source = RMS_NORM_CPP.replace("def rms_norm", "def add_rms_norm")
        return Candidate.create(source, backend=BackendName.CPP, proposer=self.name)


@pytest.mark.slow
@pytest.mark.sandbox
def test_the_whole_path_leaves_a_branch_and_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lineup = pipeline.Lineup(seeders=[OneSeed()], proposers=[])
    monkeypatch.setattr(pipeline, "make_lineup", lambda *_: lineup)
    said: list[str] = []
    audience = Audience(tell=said.append, watch=lambda: nullcontext(ignore))

    result = run_demo(tmp_path / "demo", minutes=2.0, audience=audience)

    assert Path(result.report).is_file()
    assert result.tried[-1].summary.outcome is Outcome.FASTER
    assert result.integration is not None
    assert result.verification is not None
    assert result.verification.passed
    assert git(Path(result.repository), "rev-parse", result.integration.branch)


@pytest.mark.slow
@pytest.mark.sandbox
def test_where_nothing_is_faster_the_demo_says_so_and_makes_no_branch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lineup = pipeline.Lineup(seeders=[], proposers=[])
    monkeypatch.setattr(pipeline, "make_lineup", lambda *_: lineup)
    audience = Audience(tell=lambda _: None, watch=lambda: nullcontext(ignore))

    result = run_demo(tmp_path / "demo", minutes=0.3, audience=audience)

    assert result.integration is None
    assert Path(result.report).is_file()
    assert git(Path(result.repository), "branch", "--list", "ksmith/*") == ""
