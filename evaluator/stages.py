"""The stages of one candidate, cheapest first: read, build, check, count, compile for elsewhere.

Each takes a draft and a loaded worker, adds what it found to the draft, and raises ``Ended``
where the candidate's evaluation is over. Timing is the timekeeper's; who runs which stage when
is the supervisor's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from evaluator.backends import Backend
from evaluator.census.counting import CensusTaker, interpreted_census
from evaluator.client import Client
from evaluator.correctness.derived import check_derived
from evaluator.correctness.interpreted import compile_resources
from evaluator.correctness.judging import (
    Ended,
    Findings,
    check_candidate,
    ended_by,
    load_candidate,
)
from evaluator.correctness.reference import Reference
from evaluator.device import Device
from evaluator.draft import Draft
from evaluator.errors import WorkerLost
from evaluator.evaluation import Flag, Severity, Stage, Status
from evaluator.problem import LoadedProblem
from evaluator.session import RequestFailed, Role, WorkerCrashed, WorkerTimedOut
from evaluator.source_policy import as_flags, check_source
from evaluator.source_policy.rules import UNPARSED
from evaluator.spending import staged
from evaluator.standing import Standing
from evaluator.timing.pairs import draw_seed
from evaluator.workers import Workers
from policies.model import EvaluatorPolicy


class Stages:
    """What is done with a candidate before it is timed."""

    def __init__(
        self,
        loaded: LoadedProblem,
        backend: Backend,
        policy: EvaluatorPolicy,
        workers: Workers,
        device: Device,
        standing: Standing,
        *,
        tell: Callable[[str], None],
    ) -> None:
        """Keep what the stages need; ``tell`` is told in a few words what happens."""
        self._loaded = loaded
        self._backend = backend
        self._policy = policy
        self._workers = workers
        self._device = device
        self._standing = standing
        self._tell = tell
        self._census = CensusTaker(policy)

    @staged(Stage.POLICY)
    def read(self, draft: Draft) -> None:
        """Hold the source against the policy.

        Text that no parser can follow is refused only once a compiler has taken it: where it has
        not, its author wants to know what the compiler says.

        Raises:
            Ended: the policy refuses it.
        """
        entry = self._loaded.problem.entry
        found = check_source(
            draft.candidate,
            entry_function=entry.candidate_function,
            policy=self._policy.source,
            constructed=entry.constructor is not None,
        )
        refused = [v for v in found if v.refuses]
        draft.flags += as_flags([v for v in found if not v.refuses])
        if not refused:
            return
        more = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
        detail = "\n".join(str(v) for v in found)
        ended = Ended(Status.POLICY_VIOLATION, f"{refused[0]}{more}", detail=detail)
        if any(v.rule != UNPARSED for v in refused):
            raise ended
        draft.refused_once_compiled = ended

    @staged(Stage.BUILD)
    def build(self, draft: Draft, client: Client) -> None:
        """Import and compile the candidate in its worker.

        Raises:
            Ended: it does not compile, raises, hangs or dies.
        """
        self._tell("compiling and importing")
        client.share(self._device)
        with self._device.building():
            draft.resources = load_candidate(
                client, draft.candidate, self._loaded.problem, self._backend, self._policy
            )
        if draft.refused_once_compiled is not None:
            raise draft.refused_once_compiled

    @staged(Stage.CORRECTNESS)
    def check(
        self,
        draft: Draft,
        client: Client,
        reference: Reference,
        seeds: Sequence[int],
        *,
        derived: bool = True,
    ) -> None:
        """Compare on every workload, and on those that nobody declared.

        Args:
            draft: takes what is found.
            client: the candidate's, which was built.
            reference: for the expected values.
            seeds: secret ones.
            derived: whether derived workloads are wanted: what is right on these in one process
                is right in the next.

        Raises:
            Ended: the candidate fails.
        """
        self._tell("checking correctness")
        limits, standing = self._policy.limits, self._standing
        interpreted = self._backend.interpreted
        call_seconds = limits.interpreted_call_seconds if interpreted else limits.call_seconds
        deadline = draft.started + limits.total_seconds
        findings = Findings()
        try:
            check_candidate(
                client,
                reference,
                standing.workloads,
                seeds,
                call_seconds=call_seconds,
                deadline=deadline,
                findings=findings,
            )
            check_derived(
                client,
                reference,
                standing.derived_for(reference, seeds[0]) if derived else (),
                seeds[0],
                layouts=self._policy.correctness.derived.layouts,
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

    @staged(Stage.CENSUS)
    def count(self, draft: Draft, client: Client, reference: Reference, *, profile: bool) -> None:
        """Find out what the candidate's call runs, beside the reference's.

        Raises:
            Ended: it fails while it is watched, or runs what the policy forbids.
        """
        if not self._policy.census.enabled:
            return
        self._tell("counting kernels")
        source, workloads = draft.candidate.source, self._standing.workloads
        try:
            census = self._census.take(
                client, source, reference, workloads, draw_seed(), profile=profile
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

    @staged(Stage.BUILD)
    def compile_launches(self, draft: Draft, client: Client) -> None:
        """Compile the launches that the interpreter saw, for a GPU that is not here.

        Raises:
            Ended: they do not compile.
        """
        target = self._backend.target
        assert target is not None  # every interpreted backend has one
        self._tell(f"compiling for {target.name}")
        launches = client.launches(seconds=self._policy.limits.call_seconds)
        names = [str(launch.get("kernel")) for launch in launches]
        workloads = self._standing.workloads
        draft.census = interpreted_census(workloads, names, draft.candidate.source)
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
                    self._loaded.problem,
                    launches,
                    target,
                    self._policy,
                )
            except (RequestFailed, WorkerCrashed, WorkerTimedOut) as error:
                ended = ended_by(error, "while its kernels were compiled")
                message = f"the kernels do not compile for {target.name}: {ended.message}"
                is_plain = ended.status in (Status.TIMEOUT, Status.OUT_OF_MEMORY)
                status = ended.status if is_plain else Status.COMPILE_ERROR
                raise Ended(status, message, detail=ended.detail) from error
