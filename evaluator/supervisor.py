"""The local evaluator: one problem, one backend, candidate after candidate.

The supervisor owns seeds, expected values, comparison, clocks, statistics and the record;
it imports neither reference nor candidate. The reference's worker, expected outputs and
baselines stay warm between candidates; each candidate has a sandbox of its own. Whatever a
candidate does ends as its own status within its time limits, and the next one starts as if
nothing had happened (design.md section 4).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from enum import Enum, auto
from types import TracebackType
from typing import Self

from evaluator import machine
from evaluator.attention import many_threads
from evaluator.backends import Backend, choose_backend, runs_here
from evaluator.candidate import BackendName, Candidate
from evaluator.census.findings import withhold
from evaluator.census.triviality import with_triviality
from evaluator.correctness.interpreted import interpretable_workloads
from evaluator.correctness.judging import Ended, for_want_of_memory
from evaluator.correctness.probe import Intake
from evaluator.correctness.reference import Reference
from evaluator.deep import check_deeply, with_deep_checks
from evaluator.device import Device
from evaluator.draft import Draft, success_message
from evaluator.errors import EvaluatorError, ReferenceFailed
from evaluator.evaluation import Clock, Environment, Evaluation, Flag, Severity, Stage, Status
from evaluator.problem import LoadedProblem
from evaluator.sandbox import Sandbox
from evaluator.session import RequestFailed
from evaluator.spending import StageClock, staged
from evaluator.stages import Stages
from evaluator.standing import Standing
from evaluator.timing.pairs import Baselines, PairResult, draw_seed
from evaluator.timing.samples import SampleSink
from evaluator.timing.summary import summarise
from evaluator.timing.timekeeper import Timekeeper
from evaluator.workers import Workers
from evaluator.workload import Workload
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
        self._compiled = compiled
        self._tell: Progress = progress or (lambda _: None)
        self._standing = Standing(
            loaded,
            self.backend,
            self.policy,
            self._workers,
            self._device,
            always_compiled=compiled is CompiledBaseline.ALWAYS,
            l2_bytes=self._timekeeper.l2_bytes,
            tell=self._tell,
        )
        self._stages = Stages(
            loaded,
            self.backend,
            self.policy,
            self._workers,
            self._device,
            self._standing,
            tell=self._tell,
        )

    def __enter__(self) -> Self:
        """Start the reference and check that it can be judged by.

        Raises:
            ReferenceFailed: it cannot run a workload or disagrees with itself.
        """
        try:
            self._workers.warm()
            if runs_here(self.backend):
                self._standing.warm()
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
        self._standing.close()

    @property
    def intake(self) -> Intake:
        """What the reference told of the problem, once the evaluator has started."""
        return self._standing.intake

    def screen(self, candidate: Candidate, *, incumbent_us: float | None = None) -> Evaluation:
        """Judge ``candidate`` against the warm reference; threads may call this side by side.

        Raises:
            EvaluatorError: the machine, the sandbox or the reference fails.
        """
        draft = Draft(candidate, clock=StageClock(self._device))
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
        draft = Draft(candidate, clock=StageClock(self._device))
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
            self._standing.warm()
            self._tell("running it under a memory checker")
            small, _ = interpretable_workloads(
                self._standing.reference, self.policy.correctness, self._standing.seeds[0]
            )
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
            with draft.clock.open():
                self._stages.read(draft)
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
            if for_want_of_memory(error) and self._standing.runs():
                message = "it left the reference, which runs without it, too little memory"
                raise Ended(Status.OUT_OF_MEMORY, message) from error
            if isinstance(error, RequestFailed):
                raise ReferenceFailed(f"the {error.role.value} failed: {error}") from error
            raise

    def _screen(self, draft: Draft, incumbent_us: float | None) -> Status:
        if not runs_here(self.backend):
            return self._compile_alone(draft)
        standing, stages = self._standing, self._stages
        standing.warm()
        reference, baselines = standing.reference, standing.baselines
        draft.flags += standing.flags
        client = self._workers.candidate()
        with client.session:
            try:
                stages.build(draft, client)
                stages.check(draft, client, reference, standing.seeds)
                if self.backend.interpreted:
                    stages.compile_launches(draft, client)
                    return Status.NOT_MEASURED
                stages.count(draft, client, reference, profile=False)
                self._tell("timing")
                self._timekeeper.open_series(draft, baselines, standing.workloads)
                pair = self._timekeeper.time(
                    draft,
                    client,
                    baselines,
                    standing.workloads,
                    self.policy.timing.screen,
                    purpose="screen",
                    incumbent_us=incumbent_us,
                )
            finally:
                draft.log = client.session.log_tail()
        self._summarise(draft, [pair])
        draft.flags += baselines.flags
        return Status.OK

    def _compile_alone(self, draft: Draft) -> Status:
        """Compile what cannot be run here; a compiler's refusal is an answer all the same.

        Raises:
            Ended: always.
        """
        client = self._workers.candidate()
        with client.session:
            try:
                self._stages.build(draft, client)
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
            with staged(Stage.BASELINE):
                client = self._workers.reference()
            with client.session:
                reference = Reference(self.loaded, client, self.policy)
                wanted = not pairs and self._compiled is not CompiledBaseline.NEVER
                baselines = self._standing.baselines_of(reference, compiled=wanted)
                try:
                    if not pairs:
                        workloads = self._standing.workloads
                        self._timekeeper.open_series(draft, baselines, workloads, fresh=True)
                    pairs.append(self._confirm_pair(draft, reference, baselines, len(pairs)))
                finally:
                    baselines.close()
                flags += baselines.flags
        draft.flags += [*self._standing.flags, *dict.fromkeys(flags)]
        self._summarise(draft, pairs)
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
        stages, workloads = self._stages, self._standing.workloads
        seeds = [draw_seed() for _ in self._standing.seeds]
        client = self._workers.candidate()
        with client.session:
            try:
                stages.build(draft, client)
                stages.check(draft, client, reference, seeds, derived=number == 0)
                profile = self.backend.gpu
                if not draft.census and not profile:
                    stages.count(draft, client, reference, profile=False)
                self._tell("timing")
                pair = self._timekeeper.time(
                    draft,
                    client,
                    baselines,
                    workloads,
                    self.policy.timing.confirm,
                    purpose="confirmation",
                    process_pair=number,
                )
                if number == 0:
                    self._timekeeper.time_other_clock(draft, client, baselines, workloads, pair)
                if not draft.census and profile:
                    stages.count(draft, client, reference, profile=True)
                return pair
            finally:
                draft.log = client.session.log_tail()

    def _summarise(self, draft: Draft, pairs: Sequence[PairResult]) -> None:
        draft.timings, draft.speedups = summarise(
            self._standing.workloads, pairs, self.policy.verdict, self._timekeeper.roofline
        )
        draft.timings, draft.speedups = withhold(draft.timings, draft.speedups, draft.census)
        draft.other_clock, _ = withhold(draft.other_clock, (), draft.census)

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
