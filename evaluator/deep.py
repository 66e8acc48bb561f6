"""The deep check: a candidate under memory checkers, on small workloads, before it may land.

Correct outputs do not prove that a kernel stays within its tensors or that its threads do not
race; a memory checker does, tens of times slower. The worker is started under it in a sandbox
of its own, tensors have no guard zones, and every workload is called once; outputs are not
looked at, for the ordinary check has. What was found makes the candidate ``incorrect``; a
check that could not run says why and is never taken for one that passed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from evaluator.backends import Backend
from evaluator.candidate import Candidate
from evaluator.client import Client, describe
from evaluator.correctness.reference import candidate_call
from evaluator.errors import SandboxUnavailable
from evaluator.evaluation import (
    Attestor,
    DeepCheck,
    Evaluation,
    Flag,
    MemoryFinding,
    Severity,
    Status,
)
from evaluator.memory_checkers import FOUND_STATUS, Checker, CheckerMissing, checkers
from evaluator.problem import Problem
from evaluator.session import RequestFailed, WorkerCrashed, WorkerTimedOut
from evaluator.timing.pairs import draw_seed
from evaluator.workload import Workload
from policies.model import EvaluatorPolicy

_FOUND = f"exited with status {FOUND_STATUS}"
_ENDED_WELL = "exited with status 0"
_FINISH_SECONDS = 60
_SHOWN_CHARACTERS = 300
_OF_TIMES = ("timings", "speedups", "other_clock")
_NOTHING_TOLD = MemoryFinding(kind="an error, of which the log does not tell more")

Start = Callable[[Checker], Client]
"""Starts a worker under a checker."""


def check_deeply(
    candidate: Candidate,
    problem: Problem,
    backend: Backend,
    workloads: Sequence[Workload],
    policy: EvaluatorPolicy,
    start: Start,
) -> tuple[DeepCheck, ...]:
    """Run the candidate under each checker of its backend, once per workload.

    Returns:
        A record per checker; one that says why where there is none.
    """
    kind = backend.memory_checker
    if kind is None:
        return (_not_run("none", f"there is no memory checker for {backend.title}"),)
    if backend.lacks:
        return (_not_run(kind.value, f"{kind.value} watches a real run, but {backend.lacks}"),)
    try:
        found = checkers(kind, native=backend.language.native)
    except CheckerMissing as missing:
        return (_not_run(kind.value, str(missing)),)
    call = _Call(candidate, problem, backend, policy)
    return tuple(_run_under(checker, call, workloads, start) for checker in found)


def with_deep_checks(evaluation: Evaluation, checks: Sequence[DeepCheck]) -> Evaluation:
    """Return the evaluation with what the deep check says of it; a finding takes its times."""
    flags = [*evaluation.flags, *(_flag(check) for check in checks if _worth_a_flag(check))]
    attested = {**evaluation.attested, "deep": Attestor.WORKER}
    fields = {**dict(evaluation), "deep": tuple(checks), "flags": tuple(flags)}
    harmful = next((check for check in checks if check.findings), None)
    if harmful is not None:
        fields |= {"status": Status.INCORRECT, "message": f"{harmful.tool}: {harmful.message}"}
        fields |= {name: () for name in _OF_TIMES} | {"confirmed": False, "triviality": None}
        attested = {k: v for k, v in attested.items() if k not in (*_OF_TIMES, "triviality")}
    return Evaluation.model_validate({**fields, "attested": attested})


@dataclass(frozen=True)
class _Call:
    """What every run of one deep check shares."""

    candidate: Candidate
    problem: Problem
    backend: Backend
    policy: EvaluatorPolicy
    seed: int = field(default_factory=draw_seed)

    def load(self, client: Client, checker: Checker) -> None:
        """Import the candidate, compiled for the checker."""
        limits, slower = self.policy.limits, self.policy.limits.deep_factor
        client.session.ready(limits.start_seconds * slower)
        client.load(
            self.candidate.source,
            candidate_call(self.problem),
            build=checker.build(self.backend.build),
            compile_seconds=limits.compile_seconds,
            seconds=limits.import_seconds * slower,
        )

    def make(self, client: Client, workload: Workload) -> None:
        """Call it once."""
        seconds = self.policy.limits.call_seconds * self.policy.limits.deep_factor
        client.exercise(workload, self.seed, seconds=seconds)


def _run_under(
    checker: Checker, call: _Call, workloads: Sequence[Workload], start: Start
) -> DeepCheck:
    began = time.monotonic()
    made, trouble = 0, ""
    try:
        client = start(checker)
    except SandboxUnavailable as error:
        return _not_run(checker.name, f"its worker did not start: {error}")
    with client.session as session:
        try:
            call.load(client, checker)
            for workload in workloads:
                made += 1
                call.make(client, workload)
        except RequestFailed as error:
            trouble = f"the candidate failed under it: {describe(error)}"
        except (WorkerCrashed, WorkerTimedOut) as error:
            trouble = str(error)
        ended = session.finish(_FINISH_SECONDS) if not session.closed else trouble
        log = session.log()
    found = checker.read(log) or (_NOTHING_TOLD,) if _FOUND in ended else ()
    if not found and not trouble:
        trouble = _why_in_doubt(checker, ended, log)
    if trouble and not found:
        trouble += _last_complaint(checker, log)
        return _not_run(checker.name, trouble, seconds=time.monotonic() - began)
    return DeepCheck(
        tool=checker.name,
        ran=True,
        message="; ".join(map(_shown, found)) or f"nothing found on {made} workloads",
        workloads=made,
        findings=found,
        seconds=time.monotonic() - began,
    )


def _why_in_doubt(checker: Checker, ended: str, log: str) -> str:
    """Why a run in which nothing was found proves nothing; '' where it does."""
    if ended != _ENDED_WELL:
        return f"the worker {ended}"
    if checker.summary not in log:
        return "its report has no end, so it cannot be told whether it watched"
    return ""


def _last_complaint(checker: Checker, log: str) -> str:
    lines = [line for line in log.splitlines() if checker.complaints.search(line)]
    return f"; it said: {lines[-1].strip('= ')[:_SHOWN_CHARACTERS]}" if lines else ""


def _not_run(tool: str, message: str, *, seconds: float = 0.0) -> DeepCheck:
    return DeepCheck(tool=tool, ran=False, message=f"did not run: {message}", seconds=seconds)


def _shown(finding: MemoryFinding) -> str:
    place = f" ({finding.place})" if finding.place else ""
    times = f", {finding.count} times" if finding.count > 1 else ""
    return f"{finding.kind} in {finding.kernel or 'the candidate'}{place}{times}"


def _worth_a_flag(check: DeepCheck) -> bool:
    return bool(check.findings) or not check.ran


def _flag(check: DeepCheck) -> Flag:
    if check.findings:
        rule, severity = "memory-error", Severity.VIOLATION
    else:
        rule, severity = "deep-check", Severity.WARNING
    return Flag(rule=rule, severity=severity, evidence=f"{check.tool} {check.message}")
