"""Checking a candidate on workloads that the evaluator derived (``variants.py``).

They are run once each, after the declared ones. A failure tells in what the workload differs
from those that were shown, and no more; what layouts a candidate takes is no secret.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from evaluator.client import Client
from evaluator.correctness.judging import (
    CandidateError,
    Ended,
    Findings,
    check_result,
    ended_by,
    precision_flags,
    run_checked,
)
from evaluator.correctness.reference import Reference
from evaluator.evaluation import Flag, Severity, Status, WorkloadCorrectness
from evaluator.session import RequestFailed, Role, WorkerCrashed, WorkerTimedOut
from evaluator.workload import DerivedWorkload, Twist, Variation
from policies.model import LayoutPolicy

_SCALES = (Twist.LARGE, Twist.TINY, Twist.SCALES)
_DIFFERS_IN = {
    Variation.SHAPES: "other shapes",
    Variation.VALUES: "extreme values",
    Variation.LAYOUTS: "other strides",
}


def check_derived(
    client: Client,
    reference: Reference,
    workloads: Sequence[DerivedWorkload],
    seed: int,
    *,
    layouts: LayoutPolicy,
    call_seconds: float,
    deadline: float,
    findings: Findings,
) -> None:
    """Run every derived workload once and compare.

    Args:
        client: the loaded candidate's.
        reference: for the expected values.
        workloads: as ``Reference.derived`` found them.
        seed: a secret one.
        layouts: whether strides that no workload declares must be refused or served.
        call_seconds: the longest that one call may take.
        deadline: on the monotonic clock, for all of it.
        findings: what is found is added here.

    Raises:
        Ended: a call fails that may not, or a workload is wrong.
    """
    assumed: set[str] = set()
    for workload in workloads:
        seconds = min(call_seconds, deadline - time.monotonic())
        try:
            wrong = _fault(client, reference, workload, seed, seconds, findings)
        except RequestFailed as error:
            if not workload.may_refuse:
                raise _ended(error, workload, findings) from error
            wrong = None
        except (WorkerCrashed, WorkerTimedOut) as error:
            if error.role is not Role.CANDIDATE:
                raise
            raise _ended(error, workload, findings) from error
        if wrong is None:
            findings.derived += 1
        elif workload.variation is Variation.LAYOUTS and layouts is LayoutPolicy.NOTE:
            assumed |= {n for n, t in workload.tensors.items() if t.strides is not None}
        else:
            raise _incorrect(f"{wrong} on a workload with {_differs_in(workload)}", findings)
    if assumed:
        findings.flags.append(_assumes_layout(sorted(assumed)))


def _fault(
    client: Client,
    reference: Reference,
    workload: DerivedWorkload,
    seed: int,
    seconds: float,
    findings: Findings,
) -> str | None:
    """The kind of the first fault, or None."""
    expected = reference.expected(workload, seed)
    result = run_checked(client, workload, seed, expected, seconds, None)
    check = check_result(client, reference, workload, seed, expected, result)
    for scale in set(workload.twists.values()) & {*_SCALES}:
        findings.add_precision(scale.value, check.precision)
    if workload.variation is Variation.SHAPES:
        findings.flags += precision_flags(workload, [check])
    return check.faults[0].kind if check.faults else None


def _differs_in(workload: DerivedWorkload) -> str:
    return _DIFFERS_IN[workload.variation]


def _assumes_layout(names: Sequence[str]) -> Flag:
    return Flag(
        rule="assumes-layout",
        severity=Severity.NOTE,
        evidence=f"wrong, without an exception, for other strides of {', '.join(names)} than the "
        "workloads declare; dispatch to it for the declared layouts alone",
    )


def _incorrect(reason: str, findings: Findings) -> Ended:
    failed = WorkloadCorrectness(workload="derived", passed=False, trials=1, reason=reason)
    findings.correctness.append(failed)
    return Ended(Status.INCORRECT, reason, correctness=findings.correctness)


def _ended(error: CandidateError, workload: DerivedWorkload, findings: Findings) -> Ended:
    ended = ended_by(error, "")
    kind = error.failure.type_name if isinstance(error, RequestFailed) else ended.status.value
    reason = f"{kind} on a workload with {_differs_in(workload)}"
    if ended.status is Status.INCORRECT:
        return _incorrect(reason, findings)
    return Ended(ended.status, reason, correctness=findings.correctness)
