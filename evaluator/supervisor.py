"""The local evaluator: one problem, one backend, candidate after candidate.

The supervisor owns seeds, expected values, comparison, clocks, statistics and the record;
it imports neither reference nor candidate. The reference's worker, expected outputs and
baselines stay warm between candidates; each candidate has a sandbox of its own. Whatever a
candidate does ends as its own status within its time limits, and the next one starts as if
nothing had happened (design.md section 4).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from enum import Enum, auto
from types import TracebackType
from typing import Self

from evaluator import machine
from evaluator.attention import many_threads
from evaluator.backends import Backend, choose_backend, runs_here
from evaluator.candidate import BackendName, Candidate
from evaluator.census import withhold
from evaluator.client import Client
from evaluator.counting import CensusTaker, interpreted_census
from evaluator.deep import check_deeply, with_deep_checks
from evaluator.derived import check_derived
from evaluator.device import Device
from evaluator.draft import Draft, success_message
from evaluator.errors import EvaluatorError, ReferenceFailed, WorkerLost
from evaluator.evaluation import (
    Clock,
    Environment,
    Evaluation,
    Flag,
    Severity,
    Status,
)
from evaluator.interpreted import compile_resources, interpretable_workloads
from evaluator.judging import (
    Ended,
    Findings,
    check_candidate,
    ended_by,
    for_want_of_memory,
    load_candidate,
)
from evaluator.pairs import Baselines, PairResult, draw_seed
from evaluator.probe import Intake
from evaluator.problem import LoadedProblem
from evaluator.reference import Reference
from evaluator.samples import SampleSink
from evaluator.sandbox import Sandbox
from evaluator.session import RequestFailed, Role, WorkerCrashed, WorkerTimedOut
from evaluator.source_policy import as_flags, check_source
from evaluator.summary import summarise
from evaluator.timekeeper import Timekeeper
from evaluator.triviality import with_triviality
from evaluator.workers import Workers
from evaluator.workload import DerivedWorkload, Workload
from policies.model import EvaluatorPolicy

Progress = Callable[[str], None]
_MOST_LANES = 8


class CompiledBaseline(Enum):
    """When ``torch.compile`` of the reference is timed beside eager.

    Building it takes up to a minute on a CPU, and a search ranks by eager alone.
    """

    NEVER = auto()
    CONFIRMATIONS = auto()
    ALWAYS = auto()


class LocalEvaluator:
    """Implements ``evaluator.service.Evaluator`` on this machine; a context manager."""

    def __init__(
        self,
        loaded: LoadedProblem,
        backend: BackendName,
        *,
        policy: EvaluatorPolicy | None = None,
        sandbox: Sandbox | None = None,
        compiled: CompiledBaseline = CompiledBaseline.CONFIRMATIONS,
        progress: Progress | None = None,
        samples: SampleSink | None = None,
    ) -> None:
        """Start nothing yet; entering the context does.

        Args:
            loaded: the problem and its reference's source.
            backend: the candidates' language.
            policy: by default ``policies/default.yml``.
            sandbox: by default the machine's own choice.
            compiled: when ``torch.compile`` of the reference is timed as well.
            progress: told in a few words what happens, for people who wait.
            samples: is handed every timed round.

        Raises:
            BackendUnavailable: its compiler is not on this machine.
            SandboxUnavailable: nothing is run without a sandbox.
        """
        self.loaded = loaded
        self.policy = policy or EvaluatorPolicy.default()
        self.backend: Backend = choose_backend(backend)
        self._workers = Workers(sandbox or _default_sandbox(), self.backend, self.policy)
        self._device = Device(self.backend.device)
        self._timekeeper = Timekeeper(
            loaded,
            self.backend,
            self.policy,
            self._device,
            start_worker=self._workers.candidate,
            cores=self._workers.threads,
            sink=samples,
        )
        self._warming = threading.Lock()
        self._compiled = compiled
        self._tell: Progress = progress or (lambda _: None)
        self._seeds = [draw_seed() for _ in range(self.policy.correctness.trials)]
        self._reference: Reference | None = None
        self._baselines: Baselines | None = None
        self._workloads: list[Workload] = list(loaded.problem.workloads)
        self._intake_flags: list[Flag] = []
        self.intake = Intake()
        """What the reference told of the problem, once the evaluator has started."""
        self._derived: tuple[DerivedWorkload, ...] | None = ()
        self._census = CensusTaker(self.policy)

    def __enter__(self) -> Self:
        """Start the reference and check that it can be judged by.

        Raises:
            ReferenceFailed: it cannot run a workload or disagrees with itself.
        """
        try:
            self._workers.warm()
            if runs_here(self.backend):
                self._warm_reference()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Leave no process behind."""
        self.close()

    def close(self) -> None:
        """Kill every worker; calling it twice does no harm."""
        self._workers.close()
        if self._baselines is not None:
            self._baselines.close()
        if self._reference is not None:
            self._reference.session.close()

    def screen(self, candidate: Candidate, *, incumbent_us: float | None = None) -> Evaluation:
        """Judge ``candidate`` against the warm reference; threads may call this side by side.

        Raises:
            EvaluatorError: the machine, the sandbox or the reference fails.
        """
        draft = Draft(candidate)
        return self._judge(draft, lambda: self._screen(draft, incumbent_us))

    def screen_many(
        self, candidates: Sequence[Candidate], *, incumbent_us: float | None = None
    ) -> Iterator[Evaluation]:
        """Judge ``candidates``, ``lanes`` at a time, and yield them in the order they end in.

        Raises:
            EvaluatorError: as ``screen``; what has not been started then never is.
        """
        pool = ThreadPoolExecutor(self.lanes, thread_name_prefix="screen")
        with many_threads():
            try:
                screens = [
                    pool.submit(self.screen, c, incumbent_us=incumbent_us) for c in candidates
                ]
                for done in as_completed(screens):
                    yield done.result()
            finally:
                pool.shutdown(cancel_futures=True)

    @property
    def lanes(self) -> int:
        """How many candidates may usefully be in flight: compiling takes host cores."""
        if self.backend.clock(self.loaded.problem.regime) is Clock.WALL_PINNED:
            return 1  # what would compile beside would disturb what is timed
        return max(1, min(_MOST_LANES, machine.cpu_count() // 2))

    def confirm(self, candidate: Candidate) -> Evaluation:
        """Judge ``candidate`` in fresh processes, with fresh seeds and full timing.

        Raises:
            EvaluatorError: the machine, the sandbox or the reference fails.
        """
        draft = Draft(candidate)
        if self.backend.lacks:
            return self._judge(draft, lambda: self._screen(draft, None))
        return self._judge(draft, lambda: self._confirm(draft), confirmed=True)

    def check_deeply(self, candidate: Candidate, evaluation: Evaluation) -> Evaluation:
        """Return ``evaluation`` with what memory checkers say of its candidate.

        One that failed is returned as it is.

        Raises:
            EvaluatorError: the machine, the sandbox or the reference fails.
        """
        if evaluation.status.is_candidates_fault:
            return evaluation
        small: list[Workload] = []
        if not self.backend.lacks:
            self._warm_reference()
            assert self._reference is not None
            self._tell("running it under a memory checker")
            seed = self._seeds[0]
            small, _ = interpretable_workloads(self._reference, self.policy.correctness, seed)
        with self._device.running():  # nobody is timed beside it
            checks = check_deeply(
                candidate,
                self.loaded.problem,
                self.backend,
                small,
                self.policy,
                self._workers.watched,
            )
        return with_deep_checks(evaluation, checks)

    def _judge(
        self, draft: Draft, stages: Callable[[], Status], *, confirmed: bool = False
    ) -> Evaluation:
        """Run the stages after the source policy and make the record of how they ended."""
        try:
            self._check_policy(draft)
            status = self._blaming(stages)
            message = success_message(status, draft, lacks=self.backend.lacks)
        except Ended as ended:
            status, message = ended.status, ended.message
            draft.correctness = ended.correctness or draft.correctness
            if ended.rule is not None:
                flag = Flag(rule=ended.rule, severity=Severity.VIOLATION, evidence=ended.message)
                draft.flags.append(flag)
            draft.log = "\n".join(part for part in (ended.detail, draft.log) if part)
            draft.timings = draft.other_clock = ()
            draft.speedups = ()
        evaluation = draft.record(
            status,
            message,
            problem=self.loaded.problem,
            environment=self.environment(),
            confirmed=confirmed and status is Status.OK,
        )
        return with_triviality(evaluation, self.policy)

    def _blaming(self, stages: Callable[[], Status]) -> Status:
        """Run ``stages``, and see to it that a failure is blamed on whoever caused it.

        Raises:
            Ended: also where a failure of the reference is the candidate's doing.
            EvaluatorError: as ``screen``.
        """
        try:
            return stages()
        except (Ended, EvaluatorError, RequestFailed) as error:
            if (cause := self._timekeeper.device_lost()) is not None:
                message = f"the GPU cannot be used any more ({cause}); reset it or restart"
                raise Ended(Status.MACHINE_UNFIT, message) from error
            if for_want_of_memory(error) and self._reference_runs():
                message = "it left the reference, which runs without it, too little memory"
                raise Ended(Status.OUT_OF_MEMORY, message) from error
            if isinstance(error, RequestFailed):
                raise ReferenceFailed(f"the {error.role.value} failed: {error}") from error
            raise

    def _reference_runs(self) -> bool:
        """Whether the reference computes every workload now."""
        try:
            self._warm_reference()
            assert self._reference is not None
            for workload in self._workloads:
                self._reference.compute(workload, draw_seed())
        except (EvaluatorError, RequestFailed):
            return False
        return True

    def _check_policy(self, draft: Draft) -> None:
        entry = self.loaded.problem.entry.candidate_function
        found = check_source(
            draft.candidate,
            entry_function=entry,
            policy=self.policy.source,
            constructed=self.loaded.problem.entry.constructor is not None,
        )
        if found and found[0].refuses:
            more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
            detail = "\n".join(str(v) for v in found)
            raise Ended(Status.POLICY_VIOLATION, f"{found[0]}{more}", detail=detail)
        draft.flags += as_flags(found)

    def _screen(self, draft: Draft, incumbent_us: float | None) -> Status:
        if not runs_here(self.backend):
            return self._compile_alone(draft)
        self._warm_reference()
        assert self._reference is not None
        assert self._baselines is not None
        draft.flags += self._intake_flags
        client = self._workers.candidate()
        with client.session:
            try:
                self._check(draft, client, self._reference, self._seeds)
                if self.backend.interpreted:
                    self._compile(draft, client)
                    return Status.NOT_MEASURED
                self._count(draft, client, self._reference, profile=False)
                self._tell("timing")
                self._timekeeper.open_series(draft, self._baselines, self._workloads)
                pair = self._timekeeper.time(
                    draft,
                    client,
                    self._baselines,
                    self._workloads,
                    self.policy.timing.screen,
                    purpose="screen",
                    incumbent_us=incumbent_us,
                )
            finally:
                draft.log = client.session.log_tail()
        self._summarise(draft, [pair], self._baselines)
        return Status.OK

    def _compile_alone(self, draft: Draft) -> Status:
        """Compile what cannot be run here; a compiler's refusal is an answer all the same.

        Raises:
            Ended: always.
        """
        self._tell("compiling")
        client = self._workers.candidate()
        with client.session:
            try:
                draft.resources = load_candidate(
                    client, draft.candidate, self.loaded.problem, self.backend, self.policy
                )
            finally:
                draft.log = client.session.log_tail()
        message = f"it compiles; it was neither run nor measured, for {self.backend.lacks}"
        raise Ended(Status.MACHINE_UNFIT, message)

    def _confirm(self, draft: Draft) -> Status:
        """Fresh processes, seeds and buffers for every pair, and a check in each.

        The compiled baseline takes most of a minute to build, so only the first pair has it.
        """
        pairs: list[PairResult] = []
        flags: list[Flag] = []
        while len(pairs) < (total := self._pairs_wanted(pairs)):
            self._tell(f"confirming in process pair {len(pairs) + 1} of {total}")
            client = self._workers.reference()
            with client.session:
                reference = Reference(self.loaded, client, self.policy)
                wanted = not pairs and self._compiled is not CompiledBaseline.NEVER
                baselines = self._make_baselines(reference, compiled=wanted)
                try:
                    if not pairs:
                        self._timekeeper.open_series(draft, baselines, self._workloads, fresh=True)
                    pairs.append(self._confirm_pair(draft, reference, baselines, len(pairs)))
                finally:
                    baselines.close()
                flags += baselines.flags
        draft.flags += [*self._intake_flags, *dict.fromkeys(flags)]
        self._summarise(draft, pairs, None)
        return Status.OK

    def _pairs_wanted(self, pairs: Sequence[PairResult]) -> int:
        """How many process pairs a confirmation takes, after what was seen so far."""
        timing = self.policy.timing
        calls_us = [m.candidate_us for pair in pairs for m in pair.measurements]
        if any(us < timing.short_call_us for us in calls_us):
            return max(timing.confirm.process_pairs, timing.short_call_pairs)
        return timing.confirm.process_pairs

    def _confirm_pair(
        self, draft: Draft, reference: Reference, baselines: Baselines, number: int
    ) -> PairResult:
        seeds = [draw_seed() for _ in self._seeds]
        client = self._workers.candidate()
        with client.session:
            try:
                self._check(draft, client, reference, seeds, derived=number == 0)
                profile = self.backend.gpu
                if not draft.census and not profile:
                    self._count(draft, client, reference, profile=False)
                self._tell("timing")
                pair = self._timekeeper.time(
                    draft,
                    client,
                    baselines,
                    self._workloads,
                    self.policy.timing.confirm,
                    purpose="confirmation",
                    process_pair=number,
                )
                if number == 0:
                    self._timekeeper.time_other_clock(
                        draft, client, baselines, self._workloads, pair
                    )
                if not draft.census and profile:
                    self._count(draft, client, reference, profile=True)
                return pair
            finally:
                draft.log = client.session.log_tail()

    def _check(
        self,
        draft: Draft,
        client: Client,
        reference: Reference,
        seeds: Sequence[int],
        *,
        derived: bool = True,
    ) -> None:
        """Load, then compare on every workload, and on those that nobody declared.

        Args:
            draft: takes what is found.
            client: the candidate's.
            reference: for the expected values.
            seeds: secret ones.
            derived: whether derived workloads are wanted: what is right on these in one process
                is right in the next.

        Raises:
            Ended: the candidate fails.
        """
        self._tell("compiling and importing")
        client.share(self._device)
        with self._device.building():
            draft.resources = load_candidate(
                client, draft.candidate, self.loaded.problem, self.backend, self.policy
            )
        self._tell("checking correctness")
        limits = self.policy.limits
        interpreted = self.backend.interpreted
        call_seconds = limits.interpreted_call_seconds if interpreted else limits.call_seconds
        deadline = draft.started + limits.total_seconds
        findings = Findings()
        try:
            check_candidate(
                client,
                reference,
                self._workloads,
                seeds,
                call_seconds=call_seconds,
                deadline=deadline,
                findings=findings,
            )
            check_derived(
                client,
                reference,
                self._derived_for(reference, seeds[0]) if derived else (),
                seeds[0],
                layouts=self.policy.correctness.derived.layouts,
                call_seconds=call_seconds,
                deadline=deadline,
                findings=findings,
            )
        finally:
            draft.correctness = findings.correctness
            if derived:
                draft.derived_workloads = findings.derived
                draft.precision = list(findings.precision.values())
            draft.flags += findings.flags

    def _count(self, draft: Draft, client: Client, reference: Reference, *, profile: bool) -> None:
        """Find out what the candidate's call runs, beside the reference's.

        Raises:
            Ended: it fails while it is watched, or runs what the policy forbids.
        """
        if not self.policy.census.enabled:
            return
        self._tell("counting kernels")
        source = draft.candidate.source
        try:
            census = self._census.take(
                client, source, reference, self._workloads, draw_seed(), profile=profile
            )
        except (RequestFailed, WorkerCrashed, WorkerTimedOut) as error:
            if error.role is not Role.CANDIDATE:
                raise WorkerLost(f"the census stopped: {error}") from error
            ended = ended_by(error, "while its kernels were counted")
            ended.correctness = tuple(draft.correctness)
            raise ended from error
        draft.census = census.workloads
        draft.flags += census.flags
        if (broken := census.violation) is not None:
            message = f"{broken.evidence} [{broken.rule}]"
            raise Ended(Status.POLICY_VIOLATION, message, correctness=draft.correctness)

    def _compile(self, draft: Draft, client: Client) -> None:
        """Compile the launches that the interpreter saw, for a GPU that is not here."""
        target = self.backend.target
        assert target is not None  # every interpreted backend has one
        self._tell(f"compiling for {target.name}")
        launches = client.launches(seconds=self.policy.limits.call_seconds)
        names = [str(launch.get("kernel")) for launch in launches]
        draft.census = interpreted_census(self._workloads, names, draft.candidate.source)
        if not launches:
            evidence = "no @triton.jit kernel was launched"
            flag = Flag(rule="no-kernel", severity=Severity.WARNING, evidence=evidence)
            draft.flags.append(flag)
            return
        compiler = self._workers.compiler()
        with compiler.session:
            try:
                draft.resources = compile_resources(
                    compiler,
                    draft.candidate,
                    self.loaded.problem,
                    launches,
                    target,
                    self.policy,
                )
            except (RequestFailed, WorkerCrashed, WorkerTimedOut) as error:
                ended = ended_by(error, "while its kernels were compiled")
                message = f"the kernels do not compile for {target.name}: {ended.message}"
                is_plain = ended.status in (Status.TIMEOUT, Status.OUT_OF_MEMORY)
                status = ended.status if is_plain else Status.COMPILE_ERROR
                raise Ended(status, message, detail=ended.detail) from error

    def _summarise(
        self, draft: Draft, pairs: Sequence[PairResult], baselines: Baselines | None
    ) -> None:
        draft.timings, draft.speedups = summarise(
            self._workloads, pairs, self.policy.verdict, self._timekeeper.roofline
        )
        draft.timings, draft.speedups = withhold(draft.timings, draft.speedups, draft.census)
        draft.other_clock, _ = withhold(draft.other_clock, (), draft.census)
        if baselines is not None:
            draft.flags += baselines.flags

    def _warm_reference(self) -> None:
        """Start the reference, or start it again after its worker was lost."""
        with self._warming:
            self._warm_reference_alone()

    def _warm_reference_alone(self) -> None:
        if self._reference is not None and not self._reference.session.closed:
            self._warm_baselines(self._reference)
            return
        if self._reference is not None:
            self._reference.session.close()
        if self._baselines is not None:
            self._baselines.close()
        self._tell("starting the reference")
        client = self._workers.reference()
        client.share(self._device)
        self._reference = Reference(self.loaded, client, self.policy)
        self._baselines = self._make_screening_baselines(self._reference)
        self._workloads = list(self.loaded.problem.workloads)
        cut_flags: list[Flag] = []
        if self.backend.interpreted:
            self._workloads, cut_flags = interpretable_workloads(
                self._reference, self.policy.correctness, self._seeds[0]
            )
        self.intake = self._reference.intake(self._workloads, self._seeds)
        self._intake_flags = [*cut_flags, *self.intake.flags]
        self._derive(self._reference)

    def _derive(self, reference: Reference) -> None:
        """Find out which derived workloads there are; a reference that one kills has none."""
        if self._derived is None:
            return
        try:
            self._derived = reference.derived(self._workloads, self._seeds[0])
        except (WorkerLost, ReferenceFailed) as error:
            self._derived = None
            self._warm_reference_alone()
            evidence = f"only the declared workloads are checked: {error}"
            flag = Flag(rule="no-derived-workloads", severity=Severity.WARNING, evidence=evidence)
            self._intake_flags.append(flag)

    def _derived_for(self, reference: Reference, seed: int) -> Sequence[DerivedWorkload]:
        """What ``reference`` answers for ``seed``, which is not the screens' in a confirmation."""
        if self._derived is None:
            return ()
        if reference is self._reference:
            return self._derived
        return reference.derived(self._workloads, seed)

    def _warm_baselines(self, reference: Reference) -> None:
        """Prepare the baselines anew after one of their workers was lost."""
        if self._baselines is not None and self._baselines.lost:
            self._baselines.close()
            self._baselines = self._make_screening_baselines(reference)

    def _make_screening_baselines(self, reference: Reference) -> Baselines:
        wanted = self._compiled is CompiledBaseline.ALWAYS
        return self._make_baselines(reference, compiled=wanted)

    def _make_baselines(self, reference: Reference, *, compiled: bool) -> Baselines:
        start = self._workers.baseline if compiled else None
        l2_bytes = self._timekeeper.l2_bytes
        return Baselines(self.loaded, reference, start, self.policy, l2_bytes=l2_bytes)

    def environment(self) -> Environment:
        """The machine and the versions that this evaluator's numbers belong to."""
        build = self.backend.build
        return machine.environment(
            compiler=build.command[0] if build is not None else "g++",
            device=self.backend.device,
            threads=self._workers.threads,
            sandbox=self._workers.sandbox.name,
        )


def _default_sandbox() -> Sandbox:
    from evaluator.sandbox.select import select_sandbox

    return select_sandbox()
