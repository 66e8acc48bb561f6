"""Everything that a measurement on this machine takes, around ``pairs.measure_pair``.

The timekeeper holds the device's lock while it times, asks the driver about clocks and
strangers, lets the reference race against itself before a series, knows the floor that memory
sets, and hands every round to whoever wants it. Its findings go into the candidate's draft.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from evaluator import machine
from evaluator.backends import Backend
from evaluator.client import Client
from evaluator.correctness.intake import load_reference
from evaluator.correctness.judging import Ended, ended_by
from evaluator.correctness.reference import reference_call
from evaluator.device import Device
from evaluator.draft import Draft, disturbance_flags
from evaluator.errors import ReferenceFailed, WorkerLost
from evaluator.evaluation import AaCheck, Baseline, Clock, Flag, Severity, Stage, Status
from evaluator.problem import LoadedProblem
from evaluator.session import RequestFailed, Role, WorkerCrashed, WorkerTimedOut
from evaluator.spending import staged
from evaluator.timing.clocks import open_monitor
from evaluator.timing.fitness import compare_with_itself, unfit_message
from evaluator.timing.gpu_limits import GPU_LIMITS
from evaluator.timing.measure import MachineBusy, Measurement
from evaluator.timing.pairs import Baselines, PairResult, WrongAsEver, draw_seed, measure_pair
from evaluator.timing.roofline import (
    SEEDS,
    Roofline,
    Traffic,
    below_floor,
    core_floor_us,
    traffic_of,
)
from evaluator.timing.samples import Purpose, SampleSink, TimingSamples
from evaluator.timing.summary import summarise
from evaluator.workload import Workload
from policies.model import EvaluatorPolicy, TimingBudget

_OTHER = {
    Clock.GRAPH_REPLAY: Clock.STREAM_EVENTS,
    Clock.STREAM_EVENTS: Clock.GRAPH_REPLAY,
}


class Timekeeper:
    """Times candidates of one problem on one device."""

    def __init__(
        self,
        loaded: LoadedProblem,
        backend: Backend,
        policy: EvaluatorPolicy,
        device: Device,
        *,
        start_worker: Callable[[], Client],
        cores: int,
        sink: SampleSink | None = None,
    ) -> None:
        """Measure nothing yet.

        Args:
            loaded: the problem.
            backend: says which device and clock.
            policy: budgets and limits.
            device: whose lock is held while blocks are timed.
            start_worker: returns a worker that has seen no candidate.
            cores: that a worker may use.
            sink: is handed every round.
        """
        self._loaded = loaded
        self._policy = policy
        self._device = device
        self._start_worker = start_worker
        self._sink = sink
        self._cores = cores
        self._clock = backend.clock(loaded.problem.regime)
        measured = backend.gpu and not backend.interpreted
        self._monitor = open_monitor(backend.device) if measured else None
        name = machine.gpu_name(backend.device) if measured else None
        self._limits = GPU_LIMITS.get(name or "")
        self._traffic: dict[str, Traffic] = {}
        self._checking = threading.Lock()
        self._checked: tuple[float, AaCheck] | None = None

    @property
    def l2_bytes(self) -> int | None:
        """The device's cache, where it is known."""
        return self._limits.l2_bytes if self._limits is not None else None

    @property
    def roofline(self) -> Roofline | None:
        """The floors that memory sets, as far as they are known."""
        if self._limits is None:
            return None
        writes = self._loaded.problem.contract.writes
        return Roofline(self._limits, self._traffic, in_place=bool(writes))

    def device_lost(self) -> str | None:
        """Why nothing runs on the device any more; None if something may."""
        return self._monitor.lost() if self._monitor is not None else None

    def open_series(
        self,
        draft: Draft,
        baselines: Baselines,
        workloads: Sequence[Workload],
        *,
        fresh: bool = False,
    ) -> None:
        """Let the reference race against itself, unless it did lately.

        Args:
            draft: takes the result.
            baselines: what candidates will be timed against.
            workloads: theirs; the first is raced.
            fresh: do it in any case.

        Raises:
            Ended: the machine is unfit.
            ReferenceFailed, WorkerLost: a worker failed.
        """
        with self._checking:
            self._learn_traffic(workloads)
            settings = self._policy.timing.self_comparison
            if settings is None:
                return
            lately = (
                self._checked is not None
                and self._checked[1].passed
                and time.monotonic() - self._checked[0] < settings.lasts_seconds
            )
            if fresh or not lately:
                self._race_reference(draft, baselines, workloads[0])
            assert self._checked is not None
            draft.aa_check = self._checked[1]
        if not draft.aa_check.passed:
            raise self._unfit(draft, unfit_message(draft.aa_check))

    @staged(Stage.TIMING)
    def time(
        self,
        draft: Draft,
        client: Client,
        baselines: Baselines,
        workloads: Sequence[Workload],
        budget: TimingBudget,
        *,
        purpose: Purpose,
        process_pair: int = 0,
        incumbent_us: float | None = None,
        clock: Clock | None = None,
    ) -> PairResult:
        """Time a loaded candidate on every workload.

        Raises:
            Ended: the machine is unfit, or the candidate fails, or its times are impossible.
            WorkerLost: another worker than the candidate's failed.
        """
        clock = clock or self._clock
        try:
            with self._device.timing(clock):
                pair = measure_pair(
                    client,
                    baselines,
                    workloads,
                    clock=clock,
                    budget=budget,
                    policy=self._policy,
                    incumbent_us=incumbent_us,
                    monitor=self._monitor,
                )
        except MachineBusy as busy:
            raise self._unfit(draft, str(busy)) from busy
        except WrongAsEver as wrong:
            correctness = [c for c in draft.correctness if c.workload != wrong.failed.workload]
            correctness.append(wrong.failed)
            raise Ended(Status.INCORRECT, str(wrong), correctness=correctness) from wrong
        except (RequestFailed, WorkerCrashed, WorkerTimedOut) as error:
            if error.role is not Role.CANDIDATE:
                raise WorkerLost(f"timing stopped: {error}") from error
            ended = ended_by(error, "while it was timed")
            ended.correctness = tuple(draft.correctness)
            raise ended from error
        self._emit(draft.candidate.id, purpose, process_pair, workloads, pair)
        draft.flags += disturbance_flags(pair.measurements)
        draft.flags += _capture_flags(baselines, workloads, pair, clock)
        self._expect_possible(draft, workloads, pair)
        return pair

    def time_other_clock(
        self,
        draft: Draft,
        client: Client,
        baselines: Baselines,
        workloads: Sequence[Workload],
        ranked: PairResult,
    ) -> None:
        """Time the regime that does not rank, where the device has two, for the reader.

        A machine that is unfit for this costs the reader the second number, not the first.

        Raises:
            Ended: as ``time``.
            WorkerLost: as ``time``.
        """
        other = _OTHER.get(self._clock)
        if other is None or any(m.clock is not self._clock for m in ranked.measurements):
            return
        try:
            pair = self.time(
                draft,
                client,
                baselines,
                workloads,
                self._policy.timing.other_clock,
                purpose="other clock",
                clock=other,
            )
        except Ended as ended:
            if ended.status is not Status.MACHINE_UNFIT:
                raise
            evidence = f"not timed by {other.value}: {ended.message}"
            draft.flags.append(Flag(rule="one-clock", severity=Severity.NOTE, evidence=evidence))
            return
        if all(m.clock is other for m in pair.measurements):
            draft.other_clock, _ = summarise(workloads, [pair], self._policy.verdict, self.roofline)

    @staged(Stage.SELF_COMPARISON)
    def _race_reference(self, draft: Draft, baselines: Baselines, workload: Workload) -> None:
        settings = self._policy.timing.self_comparison
        assert settings is not None
        try:
            found = compare_with_itself(
                self._start_worker,
                lambda: self._device.timing(self._clock),
                self._loaded,
                baselines,
                workload,
                clock=self._clock,
                policy=self._policy,
                settings=settings,
                monitor=self._monitor,
            )
        except MachineBusy as busy:
            raise self._unfit(draft, str(busy)) from busy
        except (RequestFailed, WrongAsEver) as error:
            raise ReferenceFailed(
                f"the reference could not be timed against itself: {error}"
            ) from error
        for number, pair in enumerate(found.pairs):
            self._emit("reference", "reference against itself", number, [workload], pair)
        doubt = found.pairs[-1].measurements[0].suspicion
        if doubt is not None:  # then honest candidates would be doubted here too
            message = f"the machine is unfit: the reference itself would be doubted: {doubt}"
            raise self._unfit(draft, message)
        self._checked = (time.monotonic(), found.check)

    @staged(Stage.BASELINE)
    def _learn_traffic(self, workloads: Sequence[Workload]) -> None:
        """Find out once per workload which bytes must move.

        It is done in a worker of its own: a reference may not survive the values it is given.
        """
        unknown = [w for w in workloads if w.name not in self._traffic]
        has_floor = self._limits is not None or self._clock is Clock.WALL_PINNED
        if not has_floor or not unknown:
            return
        problem, policy = self._loaded.problem, self._policy
        client = self._start_worker()
        with client.session:
            load_reference(client, self._loaded.reference_source, reference_call(problem), policy)
            for workload in unknown:
                seeds = [draw_seed() for _ in range(SEEDS)]
                with self._device.running():
                    self._traffic[workload.name] = traffic_of(
                        client,
                        workload,
                        problem.contract.writes,
                        seeds,
                        call_seconds=policy.limits.call_seconds,
                    )

    def _expect_possible(
        self, draft: Draft, workloads: Sequence[Workload], pair: PairResult
    ) -> None:
        """Doubt a candidate whose claims or times cannot be."""
        slack = self._policy.timing.roofline_slack
        for workload, found in zip(workloads, pair.measurements, strict=True):
            floor_us = self._floor_us(workload.name, found)
            too_fast = below_floor(found.candidate_us, floor_us, slack)
            if below_floor(found.baselines_us[Baseline.EAGER], floor_us, slack) is not None:
                too_fast = None  # the floor is wrong if the reference itself is below it
            evidence = found.suspicion or too_fast
            if evidence is None:
                continue
            rule = "claims" if found.suspicion else "roofline"
            draft.flags.append(Flag(rule=rule, severity=Severity.VIOLATION, evidence=evidence))
            raise Ended(Status.CHEATING_SUSPECTED, evidence, correctness=draft.correctness)

    def _floor_us(self, workload: str, found: Measurement) -> float | None:
        """Less than that is impossible; None where nothing is known."""
        if found.clock is Clock.WALL_PINNED:
            return core_floor_us(self._traffic.get(workload, Traffic()), cores=self._cores)
        if (roofline := self.roofline) is None:
            return None
        return roofline.floor_us(workload, buffers=found.buffers, clock=found.clock)

    def _emit(
        self,
        candidate_id: str,
        purpose: Purpose,
        process_pair: int,
        workloads: Sequence[Workload],
        pair: PairResult,
    ) -> None:
        if self._sink is None:
            return
        for workload, found in zip(workloads, pair.measurements, strict=True):
            self._sink(
                TimingSamples(
                    candidate_id=candidate_id,
                    purpose=purpose,
                    process_pair=process_pair,
                    workload=workload.name,
                    clock=found.clock.value,
                    calls_per_block=found.calls_per_block,
                    per_call_ns={who: ns.tolist() for who, ns in found.per_call_ns.items()},
                )
            )

    def _unfit(self, draft: Draft, message: str) -> Ended:
        return Ended(Status.MACHINE_UNFIT, message, correctness=draft.correctness)


def _capture_flags(
    baselines: Baselines, workloads: Sequence[Workload], pair: PairResult, clock: Clock
) -> list[Flag]:
    """Say where the reference can be captured into a graph and the candidate cannot."""
    if clock is not Clock.GRAPH_REPLAY:
        return []
    return [
        Flag(
            rule="not-capturable",
            severity=Severity.WARNING,
            evidence=f"workload {workload.name}: the reference can be captured into a CUDA graph, "
            "the candidate cannot (does it wait for the device, or allocate outside of torch?)",
        )
        for workload, found in zip(workloads, pair.measurements, strict=True)
        if found.clock is not clock
        and baselines.prepared(workload, clock)[Baseline.EAGER].clock is clock
    ]
