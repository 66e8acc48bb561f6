"""Process pairs: one candidate process timed against one process per baseline.

Baselines are prepared once per process and workload and serve every candidate that is
timed against them. The compiled baseline has a sandbox of its own; where the reference
cannot be compiled it is absent, and the record says so.
"""

from __future__ import annotations

import math
import random
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from evaluator.client import Client, describe
from evaluator.correctness import check_call
from evaluator.errors import ReferenceFailed, WorkerLost
from evaluator.evaluation import Baseline, Clock, Flag, Severity
from evaluator.intake import load_reference
from evaluator.problem import LoadedProblem
from evaluator.reference import Reference, reference_call
from evaluator.session import RequestFailed
from evaluator.tensors import CallResult
from evaluator.timing import (
    Audit,
    Contestant,
    Measurement,
    calibrate,
    in_place_limit,
    measure,
)
from evaluator.worker.protocol import ProtocolError
from evaluator.workload import Workload
from policies.model import EvaluatorPolicy, TimingBudget

_SEED_BITS = 62


def draw_seed() -> int:
    """A seed that nobody can guess."""
    return secrets.randbits(_SEED_BITS)


class Baselines:
    """The reference, eager and compiled, prepared for timing."""

    def __init__(
        self,
        loaded: LoadedProblem,
        reference: Reference,
        start_compiled: Callable[[], Client] | None,
        policy: EvaluatorPolicy,
    ) -> None:
        """Keep what is needed; nothing is prepared before it is asked for."""
        self.reference = reference
        self.flags: list[Flag] = []
        self._loaded = loaded
        self._start_compiled = start_compiled
        self._compiled: Client | None = None
        self._policy = policy
        self._seeds: dict[str, tuple[int, ...]] = {}
        self._prepared: dict[tuple[str, Clock], dict[Baseline, Contestant]] = {}

    def seeds(self, workload: Workload) -> tuple[int, ...]:
        """The seeds of the rotated buffers of ``workload``, the same for all contestants."""
        if workload.name not in self._seeds:
            count = buffer_count(workload, self._policy)
            self._seeds[workload.name] = tuple(draw_seed() for _ in range(count))
        return self._seeds[workload.name]

    def prepared(self, workload: Workload, clock: Clock) -> dict[Baseline, Contestant]:
        """The baselines of ``workload``, calibrated; eager is always among them.

        Raises:
            ReferenceFailed: the eager reference cannot be timed.
        """
        key = (workload.name, clock)
        if key not in self._prepared:
            contestants = {Baseline.EAGER: self._prepare_eager(workload, clock)}
            compiled = self._prepare_compiled(workload, contestants[Baseline.EAGER].clock)
            if compiled is not None:
                contestants[Baseline.COMPILED] = compiled
            self._prepared[key] = contestants
        return self._prepared[key]

    @property
    def lost(self) -> bool:
        """Whether a worker that is needed has died; what was prepared in it is gone."""
        compiled = self._compiled if self._start_compiled is not None else None
        return self.reference.session.closed or (compiled is not None and compiled.session.closed)

    def close(self) -> None:
        """Kill the compiled baseline's worker; the reference's is the caller's."""
        if self._compiled is not None:
            self._compiled.session.close()

    def _prepare_eager(self, workload: Workload, clock: Clock) -> Contestant:
        try:
            return self._prepare(self.reference.client, workload, clock, compiled=False)
        except (RequestFailed, WorkerLost) as error:
            raise ReferenceFailed(
                f"the reference cannot be timed on workload {workload.name!r}: {error}"
            ) from error

    def _prepare_compiled(self, workload: Workload, clock: Clock) -> Contestant | None:
        """The compiled baseline, or None and a flag; one failure ends it for all workloads."""
        if self._start_compiled is None:
            return None
        try:
            if self._compiled is None:
                self._compiled = self._start_compiled()
                call = reference_call(self._loaded.problem)
                load_reference(self._compiled, self._loaded.reference_source, call, self._policy)
            contestant = self._prepare(self._compiled, workload, clock, compiled=True)
            if contestant.clock is clock:
                return contestant
            cause = f"it can only be timed by {contestant.clock.value}, not by {clock.value}"
        except RequestFailed as error:
            cause = describe(error)
        except (WorkerLost, ReferenceFailed) as error:
            cause = str(error)
        self._start_compiled = None
        evidence = f"workload {workload.name}: no compiled baseline: {cause}"
        flag = Flag(rule="no-compiled-baseline", severity=Severity.WARNING, evidence=evidence)
        self.flags.append(flag)
        return None

    def _prepare(
        self, client: Client, workload: Workload, clock: Clock, *, compiled: bool
    ) -> Contestant:
        limits = self._policy.limits
        seconds = limits.baseline_compile_seconds if compiled else limits.call_seconds
        return prepare(
            client,
            workload,
            self.seeds(workload),
            writes=self._loaded.problem.contract.writes,
            clock=clock,
            seconds=seconds,
            policy=self._policy,
            compiled=compiled,
        )


def prepare(
    client: Client,
    workload: Workload,
    seeds: Sequence[int],
    *,
    writes: Sequence[str],
    clock: Clock,
    seconds: float,
    policy: EvaluatorPolicy,
    compiled: bool = False,
) -> Contestant:
    """Make the buffers in the worker and calibrate the block.

    Raises:
        RequestFailed, WorkerLost: the target fails.
    """
    handle, used = client.prepare(
        workload, seeds, writes=writes, clock=clock, seconds=seconds, compiled=compiled
    )
    contestant = Contestant(client, handle, used)
    limit = {"max_calls": in_place_limit(len(seeds))} if writes else {}
    calibrate(contestant, policy.timing, seconds=policy.limits.call_seconds, **limit)
    return contestant


def buffer_count(workload: Workload, policy: EvaluatorPolicy) -> int:
    """How many inputs the rotation has."""
    timing = policy.timing
    fitting = timing.buffer_bytes // max(1, workload.total_bytes)
    return max(timing.min_buffers, min(timing.max_buffers, fitting))


@dataclass(frozen=True)
class PairResult:
    """All workloads in one process pair."""

    measurements: tuple[Measurement, ...]


def measure_pair(
    client: Client,
    baselines: Baselines,
    workloads: Sequence[Workload],
    *,
    clock: Clock,
    budget: TimingBudget,
    policy: EvaluatorPolicy,
    incumbent_us: float | None = None,
) -> PairResult:
    """Time a loaded candidate on every workload.

    Raises:
        RequestFailed, WorkerLost: with the role of whoever failed.
        ReferenceFailed: the eager reference cannot be timed.
    """
    prepared = [_contestants(client, baselines, w, clock, policy) for w in workloads]
    own = [candidate for candidate, _ in prepared]
    coarse = incumbent_us is not None and _is_hopeless(own, workloads, incumbent_us, policy)
    return PairResult(
        tuple(
            measure(
                candidate,
                against,
                workload,
                budget=budget,
                policy=policy.timing,
                confidence=policy.verdict.confidence,
                audit=_audit(baselines, workload),
                seconds=policy.limits.call_seconds,
                rng=random.SystemRandom(),
                coarse=coarse,
            )
            for (candidate, against), workload in zip(prepared, workloads, strict=True)
        )
    )


def _contestants(
    client: Client,
    baselines: Baselines,
    workload: Workload,
    clock: Clock,
    policy: EvaluatorPolicy,
) -> tuple[Contestant, dict[Baseline, Contestant]]:
    """Candidate and baselines on one clock; what cannot be captured moves all to events."""
    against = baselines.prepared(workload, clock)
    shared = against[Baseline.EAGER].clock
    candidate = prepare(
        client,
        workload,
        baselines.seeds(workload),
        writes=baselines.reference.problem.contract.writes,
        clock=shared,
        seconds=policy.limits.call_seconds,
        policy=policy,
    )
    if candidate.clock is not shared:
        against = baselines.prepared(workload, candidate.clock)
    return candidate, against


def _is_hopeless(
    own: Sequence[Contestant],
    workloads: Sequence[Workload],
    incumbent_us: float,
    policy: EvaluatorPolicy,
) -> bool:
    """Whether calibration alone says that the incumbent is out of reach."""
    total = sum(w.weight for w in workloads)
    logs = [w.weight * math.log(c.estimate_ns / 1e3) for c, w in zip(own, workloads, strict=True)]
    return math.exp(sum(logs) / total) > policy.timing.coarse_ratio * incumbent_us


def _audit(baselines: Baselines, workload: Workload) -> Audit:
    reference = baselines.reference
    problem = reference.problem

    def judge(result: CallResult, seed: int) -> str | None:
        expected = reference.compute(workload, seed)
        try:
            faults = check_call(problem.contract, problem.tolerance, expected, result).faults
        except (ProtocolError, KeyError) as error:
            return f"the report of a timed call makes no sense: {error}"
        if not faults:
            return None
        return f"a timed call on fresh content gave wrong results: {faults[0].detail}"

    return Audit(
        seeds=tuple(draw_seed() for _ in baselines.seeds(workload)),
        judge=judge,
        in_place=bool(problem.contract.writes),
    )
