"""The stages in which a candidate can end: load it, then check it on every workload.

A candidate's failure is ``Ended``: the status, one line for people, and what was found until
then. Failures of the reference or the machine are other exceptions and pass through.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from evaluator.backends import Backend
from evaluator.candidate import Candidate
from evaluator.client import Client, describe, first_error_line
from evaluator.correctness.contract import LOWER_PRECISION, CheckResult, Fault, same_bits
from evaluator.correctness.expected import Expected
from evaluator.correctness.precision import Precision
from evaluator.correctness.reference import Reference, candidate_call
from evaluator.evaluation import (
    Flag,
    KernelResources,
    OutputError,
    OutputPrecision,
    Severity,
    Status,
    WorkloadCorrectness,
)
from evaluator.problem import Problem
from evaluator.session import RequestFailed, Role, WorkerCrashed, WorkerTimedOut
from evaluator.tensors import CallResult, storage_sizes
from evaluator.worker.protocol import NOTHING, ProtocolError
from evaluator.workload import Workload
from policies.model import EvaluatorPolicy

CandidateError = RequestFailed | WorkerCrashed | WorkerTimedOut

OUT_OF_MEMORY = "out_of_memory"
TAMPERING = "tampering"
"""A worker's word that its module changed what it is measured with; also the rule's name."""
_STATUS_OF_FAILURE = {
    "compile": Status.COMPILE_ERROR,
    OUT_OF_MEMORY: Status.OUT_OF_MEMORY,
    "contract": Status.INCORRECT,
    TAMPERING: Status.CHEATING_SUSPECTED,
}


class Ended(Exception):
    """A candidate's evaluation is over."""

    def __init__(
        self,
        status: Status,
        message: str,
        *,
        correctness: Sequence[WorkloadCorrectness] = (),
        detail: str = "",
        rule: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.correctness = tuple(correctness)
        self.detail = detail
        """More than one line: a compiler's message, a traceback."""
        self.rule = rule
        """What was violated, where no flag says so yet."""


@dataclass
class Findings:
    """What the correctness stage found."""

    correctness: list[WorkloadCorrectness] = field(default_factory=list)
    flags: list[Flag] = field(default_factory=list)
    precision: dict[tuple[str, str], OutputPrecision] = field(default_factory=dict)
    """By scale of the inputs and output: the candidate's largest error."""
    derived: int = 0
    """Workloads beyond the declared ones that were right, or refused where that is allowed."""

    def add_precision(self, scale: str, found: Sequence[Precision]) -> None:
        """Keep the worst per scale and output."""
        for one in found:
            known = self.precision.get((scale, one.output))
            if known is None or one.candidate > known.candidate_error:
                self.precision[scale, one.output] = OutputPrecision(
                    output=one.output,
                    scale=scale,
                    candidate_error=one.candidate,
                    reference_error=one.reference,
                    looks_like=one.looks_like,
                )


def load_candidate(
    client: Client,
    candidate: Candidate,
    problem: Problem,
    backend: Backend,
    policy: EvaluatorPolicy,
) -> tuple[KernelResources, ...]:
    """Import (and compile) the candidate in a fresh worker.

    Returns:
        What a compiler for a GPU said of the kernels; ``()`` for those compiled at their launch.

    Raises:
        Ended: it does not compile, raises, hangs or dies.
        WorkerLost: the worker did not even come up, which is not the candidate's fault.
    """
    limits = policy.limits
    client.session.ready(limits.start_seconds)
    try:
        return client.load(
            candidate.source,
            candidate_call(problem),
            build=backend.build,
            compile_seconds=limits.compile_seconds,
            seconds=limits.import_seconds,
        )
    except (RequestFailed, WorkerCrashed, WorkerTimedOut) as error:
        raise ended_by(error, "while it was loaded") from error


def check_candidate(
    client: Client,
    reference: Reference,
    workloads: Sequence[Workload],
    seeds: Sequence[int],
    *,
    call_seconds: float,
    deadline: float,
    findings: Findings,
) -> None:
    """Run every workload on every seed and compare; held-out workloads come last.

    Args:
        client: the loaded candidate's.
        reference: for the expected values.
        workloads: to run.
        seeds: secret ones.
        call_seconds: the longest that one call may take.
        deadline: on the monotonic clock, for all of it.
        findings: what is found is added here, also where the candidate ends.

    Raises:
        Ended: a call fails, or a workload is wrong.
    """
    for workload in sorted(workloads, key=lambda w: w.held_out):
        seconds = min(call_seconds, deadline - time.monotonic())
        try:
            result = _check_workload(client, reference, workload, seeds, seconds, findings)
        except (RequestFailed, WorkerCrashed, WorkerTimedOut) as error:
            if error.role is not Role.CANDIDATE:
                raise
            raise _ended_on(error, workload, findings) from error
        findings.correctness.append(result)
        if not result.passed and result.reason is not None:
            message = f"workload {workload.name}: {result.reason}"
            message = result.reason if workload.held_out else message
            raise Ended(Status.INCORRECT, message, correctness=findings.correctness)


def ended_by(error: CandidateError, when: str) -> Ended:
    """Translate a candidate's failure into its status."""
    if isinstance(error, WorkerTimedOut):
        return Ended(Status.TIMEOUT, f"the candidate hung {when} and was killed")
    if isinstance(error, WorkerCrashed):
        status = Status.OUT_OF_MEMORY if error.out_of_memory else Status.RUNTIME_ERROR
        return Ended(status, f"{error} {when}")
    failure = error.failure
    status = _STATUS_OF_FAILURE.get(failure.kind, Status.RUNTIME_ERROR)
    text = first_error_line(failure.message) if status is Status.COMPILE_ERROR else ""
    rule = TAMPERING if failure.kind == TAMPERING else None
    detail = failure.message or failure.trace
    return Ended(status, text or describe(error), detail=detail, rule=rule)


def for_want_of_memory(error: BaseException) -> bool:
    """Whether another worker than the candidate's had no memory left, and ``error`` tells so."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, RequestFailed | WorkerCrashed) and cause.role is not Role.CANDIDATE:
            if isinstance(cause, RequestFailed):
                return cause.failure.kind == OUT_OF_MEMORY
            return cause.out_of_memory
        cause = cause.__cause__
    return False


def _check_workload(
    client: Client,
    reference: Reference,
    workload: Workload,
    seeds: Sequence[int],
    call_seconds: float,
    findings: Findings,
) -> WorkloadCorrectness:
    checks: list[CheckResult] = []
    before: CallResult | None = None
    for number, seed in enumerate(seeds):
        expected = reference.expected(workload, seed)
        result = run_checked(client, workload, seed, expected, call_seconds, before)
        checks.append(check_result(client, reference, workload, seed, expected, result, before))
        _look_around(workload, result, findings, is_first=number == 0)
        if number == 0 and not checks[0].faults:
            before = run_checked(client, workload, seed, expected, call_seconds, None)
            _look_around(workload, before, findings, is_first=False)
            if not _same_bits(result, before, client):
                findings.flags.append(_nondeterministic(workload))
                checks.append(check_result(client, reference, workload, seed, expected, before))
        else:
            before = None
        if checks[-1].faults:
            break
    scale = "held out" if workload.held_out else "declared"
    findings.add_precision(scale, [p for check in checks for p in check.precision])
    findings.flags += precision_flags(workload, checks)
    return _summary(workload, checks, len(seeds))


def run_checked(
    client: Client,
    workload: Workload,
    seed: int,
    expected: Expected,
    seconds: float,
    before: CallResult | None,
) -> CallResult:
    """Call the candidate once, in memory that holds no answers.

    Args:
        client: the loaded candidate's.
        workload: what to call it on.
        seed: of the inputs.
        expected: whose outputs say what memory to poison.
        seconds: deadline.
        before: the call before this one, if its outputs are to be looked at again.
    """
    poison = storage_sizes(expected.native)
    recall = before is not None
    return client.run(workload, seed, seconds=seconds, poison=poison, recall=recall)


def check_result(
    client: Client,
    reference: Reference,
    workload: Workload,
    seed: int,
    expected: Expected,
    result: CallResult,
    before: CallResult | None = None,
) -> CheckResult:
    """Compare a call with what is expected, and the outputs of the call before with themselves.

    Raises:
        WorkerCrashed: the report contradicts itself; the worker is ended.
    """
    with _readable(client):
        found = reference.check(workload, seed, expected, result)
        if before is None or not _was_overwritten(before, result):
            return found
    fault = Fault("earlier output overwritten", "a later call changed what an earlier one returned")
    return replace(found, faults=(*found.faults, fault))


def _was_overwritten(before: CallResult, after: CallResult) -> bool:
    """Whether the outputs of a call are others after the next call on other content."""
    now = after.earlier
    outputs = () if before.container == NOTHING else before.outputs
    if now is None or len(now) != len(outputs):
        raise ProtocolError("the outputs of the call before are not reported")
    owned = [i for i, o in enumerate(outputs) if not set(o.facts.shares) & {*before.arguments}]
    return any(outputs[i].array().tobytes() != now[i].array().tobytes() for i in owned)


def _look_around(
    workload: Workload, result: CallResult, findings: Findings, *, is_first: bool
) -> None:
    """Judge what was seen around a call: late work and threads.

    A pool of threads may start at a workload's first call.

    Raises:
        Ended: an output changed after the call's stream had ended.
    """
    shown = "a held-out workload" if workload.held_out else f"workload {workload.name}"
    if result.late:
        evidence = f"{shown}: {result.late[0]} changed after the call's stream had ended"
        flag = Flag(rule="late-work", severity=Severity.VIOLATION, evidence=evidence)
        findings.flags.append(flag)
        raise Ended(Status.CHEATING_SUSPECTED, evidence, correctness=findings.correctness)
    by_python, of_any_kind = result.new_threads
    if by_python > 0 or (of_any_kind > 0 and not is_first):
        count = max(by_python, of_any_kind)
        evidence = f"{shown}: {count} threads more are alive after a call than before it"
        findings.flags.append(Flag(rule="threads", severity=Severity.WARNING, evidence=evidence))


def precision_flags(workload: Workload, checks: Sequence[CheckResult]) -> list[Flag]:
    """Name a lower precision than the reference's, refused or not."""
    shown = "a held-out workload" if workload.held_out else f"workload {workload.name}"
    refused = any(f.kind == LOWER_PRECISION for check in checks for f in check.faults)
    severity = Severity.VIOLATION if refused else Severity.WARNING
    found = [p.sentence for check in checks for p in check.precision if p.is_low]
    return [
        Flag(rule="precision", severity=severity, evidence=f"{shown}: {sentence}")
        for sentence in found[:1]
    ]


def _same_bits(one: CallResult, other: CallResult, client: Client) -> bool:
    with _readable(client):
        return same_bits(one, other)


@contextmanager
def _readable(client: Client) -> Iterator[None]:
    """End a worker whose reports contradict themselves."""
    try:
        yield
    except (ProtocolError, KeyError) as error:
        client.session.close()
        raise WorkerCrashed(Role.CANDIDATE, f"its report makes no sense: {error}") from error


def _summary(workload: Workload, checks: Sequence[CheckResult], trials: int) -> WorkloadCorrectness:
    faults = [f for check in checks for f in check.faults]
    errors = () if workload.held_out else _worst([e for c in checks for e in c.errors])
    return WorkloadCorrectness(
        workload=workload.name,
        passed=not faults,
        trials=trials,
        reason=_reason(faults, held_out=workload.held_out),
        errors=errors,
    )


def _reason(faults: Sequence[Fault], *, held_out: bool) -> str | None:
    if not faults:
        return None
    if held_out:
        return f"{faults[0].kind} on a held-out workload"
    return "; ".join(dict.fromkeys(f.detail for f in faults))


def _worst(errors: Sequence[OutputError]) -> tuple[OutputError, ...]:
    """The worst of each name over all trials."""
    worst: dict[str, OutputError] = {}
    for error in errors:
        if error.name not in worst or error.budget_used > worst[error.name].budget_used:
            worst[error.name] = error
    return tuple(worst.values())


def _ended_on(error: CandidateError, workload: Workload, findings: Findings) -> Ended:
    """A failure at a workload; a held-out one keeps everything but the kind to itself."""
    ended = ended_by(error, f"on workload {workload.name}")
    message = f"workload {workload.name}: {ended.message}"
    detail = ended.detail
    if workload.held_out:
        kind = error.failure.type_name if isinstance(error, RequestFailed) else ended.status.value
        message, detail = f"{kind} on a held-out workload", ""
    if ended.status is Status.INCORRECT:
        failed = WorkloadCorrectness(workload=workload.name, passed=False, trials=1, reason=message)
        findings.correctness.append(failed)
    correctness = findings.correctness
    return Ended(ended.status, message, correctness=correctness, detail=detail, rule=ended.rule)


def _nondeterministic(workload: Workload) -> Flag:
    return Flag(
        rule="nondeterministic",
        severity=Severity.NOTE,
        evidence=f"workload {workload.name}: two runs on the same input differ in bits, "
        "both within the budget",
    )
