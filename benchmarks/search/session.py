"""One session: what is missing in a work folder, as far as time allows."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from benchmarks.deadline import Deadline, expected_seconds
from benchmarks.search.figures import EVOLVE
from benchmarks.search.kills import kill_trial
from benchmarks.search.plan import Plan
from benchmarks.search.problems import Subject
from benchmarks.search.ranking import rank
from benchmarks.search.rows import RankingRow, ScaleRow, SearchRow, Unit
from benchmarks.search.units import Bench, open_bench, run_unit
from benchmarks.search.work import Work
from evaluator.candidate import BackendName
from evaluator.errors import EvaluatorError, SandboxUnavailable
from evaluator.evaluation import Environment
from evolver.errors import MachineTrouble, SearchError
from evolver.progress import Observer
from evolver.run import Run
from integrations.errors import IntegrationError
from policies.model import EvaluatorPolicy

KILLS_PER_RUN = 10
_INSERT_SECONDS = 0.006
"""What an insert and its making take on a slow machine."""
_TROUBLE_LIMIT = 3


@dataclass(frozen=True)
class Job:
    """A search, or the ranking of what it found."""

    kind: Literal["search", "rank"]
    unit: Unit


@dataclass
class Session:
    """What one session knows."""

    work: Work
    plan: Plan
    backend: BackendName
    policy: EvaluatorPolicy
    say: Callable[[str], None]
    observer: Observer
    deadline: Deadline
    environment: Environment | None = None
    trouble: int = field(default=0, init=False)

    def search_all(self, subjects: Sequence[Subject]) -> None:
        """One seed after the other, one problem after the other, so that comparisons are whole.

        Raises:
            MachineTrouble: searches fail in a row through no candidate's fault.
            SandboxUnavailable: nothing is run without a sandbox.
        """
        for seed in range(1 if self.plan.long else self.plan.seeds):
            for number, subject in enumerate(subjects):
                jobs = self._missing(self.plan.units(subject.id, number, seed))
                if jobs and not self._take(subject, jobs):
                    self.say("the time is over; run again with the same --work to go on")
                    return

    def kill_all(self, machine: str) -> None:
        """Kill searches until there were enough kills."""
        while (left := self.plan.kills - sum(k.kills for k in self.work.kills)) > 0:
            if not self.deadline.allows(expected_seconds([k.seconds for k in self.work.kills])):
                return
            trial = len(self.work.kills)
            row = kill_trial(self.work.scratch_path, trial, kills=min(left, KILLS_PER_RUN))
            self.say(f"a search was killed {row.kills} times: {row.lost + row.repeated} lost")
            self.work.add(row.model_copy(update={"machine": machine}))

    def fill(self, machine: str) -> None:
        """Fill archive and store, once."""
        most_seconds = _INSERT_SECONDS * self.plan.scale
        if self.work.scale or not self.plan.scale or not self.deadline.allows(most_seconds):
            return
        from benchmarks.search.scale import measure_scale  # it is a program of its own, too

        self.say(f"filling the store with {self.plan.scale} candidates")
        found = measure_scale(self.plan.scale)
        row = ScaleRow(
            candidates=found.candidates,
            insert_ms=found.last_ms,
            peak_gib=found.peak_rss_bytes / 2**30,
            machine=machine,
        )
        self.work.add(row)

    def _missing(self, units: Sequence[Unit]) -> list[Job]:
        """What has no row; a ranking needs the run, which may have stayed on another machine."""
        searched = {r.unit for r in self.work.searches}
        ranked = {r.unit for r in self.work.rankings}
        jobs: list[Job] = []
        for unit in units:
            if unit not in searched:
                jobs.append(Job("search", unit))
            here = unit not in searched or self.work.run_path(unit).exists()
            if unit.mode == EVOLVE and not unit.adaptive and unit not in ranked and here:
                jobs.append(Job("rank", unit))
        return jobs

    def _take(self, subject: Subject, jobs: Sequence[Job]) -> bool:
        """Do the jobs of one problem; whether the time sufficed."""
        if not self.deadline.allows(self._expected(jobs[0])):
            return False
        try:
            with open_bench(subject.load(), self.backend, self.policy, self.observer) as bench:
                return all(self._do(bench, job) for job in jobs)
        except SandboxUnavailable:
            raise
        except (EvaluatorError, IntegrationError) as error:
            self._fail(jobs[0], str(error))
            return True

    def _do(self, bench: Bench, job: Job) -> bool:
        if not self.deadline.allows(self._expected(job)):
            return False
        self.say(f"{job.unit.name}: {job.kind}")
        began = time.monotonic()
        try:
            row = self._row(bench, job)
        except SandboxUnavailable:
            raise
        except (EvaluatorError, SearchError) as error:
            self._fail(job, str(error))
            return True
        self.trouble = 0
        self.environment = bench.evaluator.environment()
        if row is None:
            return False
        self.work.add(row.model_copy(update={"seconds": round(time.monotonic() - began, 1)}))
        self.say(f"{job.unit.name}: {_told(row)}")
        return True

    def _row(self, bench: Bench, job: Job) -> SearchRow | RankingRow | None:
        """None where the session's time was over first."""
        path = self.work.run_path(job.unit)
        if job.kind == "search":
            return run_unit(bench, job.unit, path, minutes_left=self.deadline.minutes_left)
        with Run.open(path) as run:
            row = RankingRow(unit=job.unit)
            return rank(run, row, bench.evaluator, bench.sandbox, bench.policy)

    def _fail(self, job: Job, why: str) -> None:
        """Keep why; a later session tries again."""
        self.say(f"{job.unit.name}: {job.kind} failed: {why}")
        kind = SearchRow if job.kind == "search" else RankingRow
        self.work.add(kind(unit=job.unit, failure=why))
        self.trouble += 1
        if self.trouble == _TROUBLE_LIMIT:
            raise MachineTrouble(
                f"{self.trouble} in a row could not be measured, the last one: {why}. Mend the "
                "machine (`ksmith doctor`), then run the same command again"
            )

    def _expected(self, job: Job) -> float:
        """As long as the longest of late of its kind: of the same problem where one is known.

        A long search is begun in any case: it is cut where the session ends, and goes on.
        """
        if self.plan.long:
            return 0.0
        rows = self.work.searches if job.kind == "search" else self.work.rankings
        alike = [r for r in rows if r.unit.steps == job.unit.steps]
        same = [r.seconds for r in alike if r.unit.problem == job.unit.problem]
        return expected_seconds(same or [r.seconds for r in alike])


def _told(row: SearchRow | RankingRow) -> str:
    if isinstance(row, SearchRow):
        return f"{row.value_at():.3f}x at least for {row.spent:.0f} s of the device"
    wrong = {True: "wrong", False: "right", None: "unknown"}
    naive, stable = (wrong[row.wrong(p)] for p in (row.naive_pick, row.stable_pick))
    return f"of {len(row.contenders)} candidates the naive pick is {naive}, ours {stable}"
