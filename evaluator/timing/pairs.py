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
from evaluator.correctness.contract import Fault
from evaluator.correctness.intake import load_reference
from evaluator.correctness.reference import Reference, reference_call
from evaluator.errors import ReferenceFailed, WorkerLost
from evaluator.evaluation import Baseline, Clock, Flag, Severity, Stage, WorkloadCorrectness
from evaluator.problem import LoadedProblem
from evaluator.session import RequestFailed
from evaluator.spending import staged
from evaluator.tensors import CallResult
from evaluator.timing.clocks import Monitor
from evaluator.timing.contestant import Contestant, calibrate
from evaluator.timing.measure import Audit, Measurement, measure
from evaluator.worker.protocol import ProtocolError
from evaluator.workload import Workload
from policies.model import EvaluatorPolicy, TimingBudget, TimingPolicy

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
        *,
        l2_bytes: int | None = None,
    ) -> None:
        """Keep what is needed; nothing is prepared before it is asked for.

        Args:
            loaded: the problem.
            reference: in its worker.
            start_compiled: starts a worker for the compiled baseline; None does without.
            policy: for buffers, blocks and limits.
            l2_bytes: of the device's cache, where it is known.
        """
        self.reference = reference
        self.flags: list[Flag] = []
        self._loaded = loaded
        self._start_compiled = start_compiled
        self._compiled: Client | None = None
        self._policy = policy
        self._l2_bytes = l2_bytes
        self._seeds: dict[str, tuple[int, ...]] = {}
        self._prepared: dict[tuple[str, Clock], dict[Baseline, Contestant]] = {}

    def seeds(self, workload: Workload) -> tuple[int, ...]:
        """The seeds of the rotated buffers of ``workload``, the same for all contestants."""
        if workload.name not in self._seeds:
            count = buffer_count(workload, self._policy.timing, l2_bytes=self._l2_bytes)
            self._seeds[workload.name] = tuple(draw_seed() for _ in range(count))
        return self._seeds[workload.name]

    def copies(self, workload: Workload) -> int:
        """How many copies of the rotated buffers all contestants have besides."""
        seeds = len(self.seeds(workload))
        return copy_count(workload, seeds, self._policy.timing, l2_bytes=self._l2_bytes)

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

    @staged(Stage.BASELINE)
    def _prepare_eager(self, workload: Workload, clock: Clock) -> Contestant:
        try:
            return self._prepare(self.reference.client, workload, clock, compiled=False)
        except (RequestFailed, WorkerLost) as error:
            raise ReferenceFailed(
                f"the reference cannot be timed on workload {workload.name!r}: {error}"
            ) from error

    @staged(Stage.BASELINE)
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
            copies=self.copies(workload),
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
    copies: int,
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
        workload,
        seeds,
        copies=copies,
        writes=writes,
        clock=clock,
        seconds=seconds,
        compiled=compiled,
    )
    buffers = len(seeds) * (1 + copies)
    contestant = Contestant(
        client, handle, used, seeds=len(seeds), buffers=buffers, in_place=bool(writes)
    )
    calibrate(contestant, policy.timing, seconds=policy.limits.call_seconds)
    return contestant


def buffer_count(workload: Workload, policy: TimingPolicy, *, l2_bytes: int | None = None) -> int:
    """How many inputs of different content the rotation has."""
    content_bytes = policy.buffer_bytes if l2_bytes is None else policy.device_content_bytes
    fitting = content_bytes // max(1, workload.total_bytes)
    return max(policy.min_buffers, min(policy.max_buffers, fitting))


def copy_count(
    workload: Workload, seeds: int, policy: TimingPolicy, *, l2_bytes: int | None
) -> int:
    """How often all the inputs are copied to other addresses, so that no cache holds them.

    A copy costs no random numbers. Where the most that the policy allows would fit the cache
    all the same, the call is timed warm, and copies would change nothing.
    """
    most = policy.max_rotation // seeds
    size_bytes = max(1, workload.total_bytes)
    if l2_bytes is None or most * seeds * size_bytes <= l2_bytes:
        return 0
    wanted = math.ceil(policy.cold_l2_multiple * l2_bytes / (size_bytes * seeds))
    return max(0, min(most, wanted) - 1)


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
    monitor: Monitor | None = None,
) -> PairResult:
    """Time a loaded candidate on every workload.

    Raises:
        RequestFailed, WorkerLost: with the role of whoever failed.
        ReferenceFailed: the eager reference cannot be timed.
        MachineBusy: others use the machine, or its clock does not hold.
        WrongAsEver: the candidate is wrong on content that was not checked before.
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
                audit=_audit(client, baselines, workload, policy.limits.call_seconds),
                seconds=policy.limits.call_seconds,
                rng=random.SystemRandom(),
                coarse=coarse,
                monitor=monitor,
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
        copies=baselines.copies(workload),
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


class WrongAsEver(Exception):
    """A timed call's wrong result is wrong outside the timed region as well: no cheating."""

    def __init__(self, workload: Workload, fault: Fault) -> None:
        shown = f"workload {workload.name}: {fault.detail}, on content that came up while timing"
        reason = f"{fault.kind} on a held-out workload" if workload.held_out else shown
        super().__init__(reason)
        self.failed = WorkloadCorrectness(
            workload=workload.name, passed=False, trials=1, reason=reason
        )


def _audit(client: Client, baselines: Baselines, workload: Workload, seconds: float) -> Audit:
    """Judge a timed call; what a call of its own gets wrong too is a fault, not a suspicion."""
    reference = baselines.reference

    def judge(result: CallResult, seed: int) -> str | None:
        expected = reference.compute(workload, seed)
        try:
            faults = reference.check(workload, seed, expected, result).faults
            if not faults:
                return None
            alone = client.run(workload, seed, seconds=seconds)
            if reference.check(workload, seed, expected, alone).faults:
                raise WrongAsEver(workload, faults[0])
        except (ProtocolError, KeyError) as error:
            return f"the report of a timed call makes no sense: {error}"
        return (
            f"a timed call on fresh content gave wrong results, and right ones when it was not "
            f"timed: {faults[0].detail}"
        )

    return Audit(seed=draw_seed(), judge=judge)
