"""An evaluation in the making: what the stages found, and the record that comes of it."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from evaluator import machine
from evaluator.candidate import Candidate
from evaluator.evaluation import (
    AaCheck,
    Attestor,
    Baseline,
    Environment,
    Evaluation,
    Flag,
    KernelResources,
    OutputPrecision,
    Severity,
    Speedup,
    Status,
    Verdict,
    WorkloadCensus,
    WorkloadCorrectness,
    WorkloadTiming,
)
from evaluator.problem import Problem
from evaluator.spending import StageClock
from evaluator.timing.measure import Measurement

_LOG_CHARACTERS = 8000
_BUSY_SHARE = 0.1
"""Of the rounds: dropping more than this is worth telling."""


@dataclass
class Draft:
    """What is known of a candidate so far."""

    candidate: Candidate
    started: float = field(default_factory=time.monotonic)
    clock: StageClock = field(default_factory=StageClock)
    correctness: Sequence[WorkloadCorrectness] = ()
    derived_workloads: int = 0
    precision: Sequence[OutputPrecision] = ()
    timings: tuple[WorkloadTiming, ...] = ()
    speedups: tuple[Speedup, ...] = ()
    other_clock: tuple[WorkloadTiming, ...] = ()
    aa_check: AaCheck | None = None
    resources: tuple[KernelResources, ...] = ()
    flags: list[Flag] = field(default_factory=list)
    census: tuple[WorkloadCensus, ...] = ()
    log: str = ""
    refused_once_compiled: Exception | None = None
    """What ends the evaluation if a compiler takes the source all the same."""

    def record(
        self,
        status: Status,
        message: str,
        *,
        problem: Problem,
        environment: Environment,
        confirmed: bool,
    ) -> Evaluation:
        """Make the record; who attests a field follows from who measured it."""
        attested = {"correctness": Attestor.SUPERVISOR} if self.correctness else {}
        if self.timings:
            attested |= {"timings": Attestor.WORKER, "speedups": Attestor.SUPERVISOR}
        if self.other_clock:
            attested["other_clock"] = Attestor.WORKER
        if self.aa_check is not None:
            attested["aa_check"] = Attestor.SUPERVISOR
        if self.resources:
            attested["resources"] = Attestor.WORKER
        if self.census:
            attested["census"] = Attestor.WORKER
        return Evaluation(
            candidate_id=self.candidate.id,
            problem_id=problem.id,
            backend=self.candidate.backend,
            status=status,
            message=message,
            finished_at=datetime.now(UTC),
            seconds=time.monotonic() - self.started,
            stage_seconds=self.clock.seconds,
            device_seconds=self.clock.device_seconds,
            environment=environment,
            regime=problem.regime,
            correctness=tuple(self.correctness),
            derived_workloads=self.derived_workloads,
            precision=tuple(self.precision),
            timings=self.timings,
            speedups=self.speedups,
            other_clock=self.other_clock,
            aa_check=self.aa_check,
            confirmed=confirmed,
            resources=self.resources,
            census=self.census,
            flags=tuple(dict.fromkeys(self.flags)),
            attested=attested,
            log_tail=self.log[-_LOG_CHARACTERS:],
        )


def disturbance_flags(measured: Sequence[Measurement]) -> list[Flag]:
    """Say what disturbed the measuring, by the worst of the workloads."""
    dropped = {
        cause: max(m.dropped.get(cause, 0.0) for m in measured)
        for cause in sorted({cause for m in measured for cause in m.dropped})
    }
    held_back = {why for m in measured for why in m.held_back}
    flags = [
        Flag(
            rule="machine-busy",
            severity=Severity.WARNING,
            evidence=f"{share:.0%} of the rounds were dropped: {cause} (load average "
            f"{os.getloadavg()[0]:.1f} on {machine.cpu_count()} cores)",
        )
        for cause, share in dropped.items()
        if share > _BUSY_SHARE
    ]
    if held_back:
        evidence = f"the device's clock was held back: {', '.join(sorted(held_back))}"
        flags.append(Flag(rule="clock-held-back", severity=Severity.NOTE, evidence=evidence))
    return flags


def success_message(status: Status, draft: Draft, *, lacks: str) -> str:
    """The verdict in one line, for a candidate that nothing stopped."""
    if status is Status.NOT_MEASURED:
        return f"correct in Triton's interpreter; not measured, for {lacks}"
    speedup = next(s for s in draft.speedups if s.baseline is Baseline.EAGER)
    why = ", by the library's kernels" if speedup.verdict is Verdict.UNIMPROVED else ""
    return (
        f"{speedup.verdict.value}: {speedup.value:.3f}x against eager "
        f"[{speedup.low:.3f}, {speedup.high:.3f}]{why}"
    )
