"""What stays warm between candidates: the reference at work, its baselines, what it told of itself.

The reference's worker and all that it computed serve every screen. A worker that was lost is
started again by the next ``warm``. Confirmations bring a reference of their own and ask here
for baselines and derived workloads that fit it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from evaluator.backends import Backend
from evaluator.correctness.interpreted import interpretable_workloads
from evaluator.correctness.probe import Intake
from evaluator.correctness.reference import Reference
from evaluator.device import Device
from evaluator.errors import EvaluatorError, ReferenceFailed, WorkerLost
from evaluator.evaluation import Flag, Severity, Stage
from evaluator.problem import LoadedProblem
from evaluator.session import RequestFailed
from evaluator.spending import staged
from evaluator.timing.pairs import Baselines, draw_seed
from evaluator.workers import Workers
from evaluator.workload import DerivedWorkload, Workload
from policies.model import EvaluatorPolicy


class Standing:
    """One problem's reference, kept at work; safe to use from several threads."""

    def __init__(
        self,
        loaded: LoadedProblem,
        backend: Backend,
        policy: EvaluatorPolicy,
        workers: Workers,
        device: Device,
        *,
        always_compiled: bool,
        l2_bytes: int | None,
        tell: Callable[[str], None],
    ) -> None:
        """Start nothing yet.

        Args:
            loaded: the problem and its reference's source.
            backend: the candidates' language.
            policy: of the evaluator.
            workers: start what is needed.
            device: whose turns the reference's worker takes.
            always_compiled: whether screens have the compiled baseline.
            l2_bytes: the device's cache, where it is known.
            tell: told in a few words what happens.
        """
        self.seeds = [draw_seed() for _ in range(policy.correctness.trials)]
        """Secret ones, of all screens."""
        self.workloads: list[Workload] = list(loaded.problem.workloads)
        """What candidates are checked and timed on."""
        self.intake = Intake()
        self.flags: list[Flag] = []
        """What a reader of any evaluation should know of the problem."""
        self._loaded = loaded
        self._backend = backend
        self._policy = policy
        self._workers = workers
        self._device = device
        self._always_compiled = always_compiled
        self._l2_bytes = l2_bytes
        self._tell = tell
        self._warming = threading.Lock()
        self._reference: Reference | None = None
        self._baselines: Baselines | None = None
        self._derived: tuple[DerivedWorkload, ...] | None = ()

    @property
    def reference(self) -> Reference:
        """The warm reference; ``warm`` comes first."""
        assert self._reference is not None
        return self._reference

    @property
    def baselines(self) -> Baselines:
        """What screens are timed against; ``warm`` comes first."""
        assert self._baselines is not None
        return self._baselines

    @staged(Stage.BASELINE)
    def warm(self) -> None:
        """Start the reference, or start it again after its worker was lost.

        Raises:
            ReferenceFailed: it cannot run a workload or disagrees with itself.
            EvaluatorError: the machine or the sandbox fails.
        """
        with self._warming:
            self._warm()

    def runs(self) -> bool:
        """Whether the reference computes every workload now."""
        try:
            self.warm()
            for workload in self.workloads:
                self.reference.compute(workload, draw_seed())
        except (EvaluatorError, RequestFailed):
            return False
        return True

    def baselines_of(self, reference: Reference, *, compiled: bool) -> Baselines:
        """Return what ``reference`` is timed as, and with ``compiled`` its ``torch.compile``."""
        start = self._workers.baseline if compiled else None
        return Baselines(self._loaded, reference, start, self._policy, l2_bytes=self._l2_bytes)

    def derived_for(self, reference: Reference, seed: int) -> Sequence[DerivedWorkload]:
        """What ``reference`` answers for ``seed``, which is not the screens' in a confirmation."""
        if self._derived is None:
            return ()
        if reference is self._reference:
            return self._derived
        return reference.derived(self.workloads, seed)

    def close(self) -> None:
        """Kill the baselines' and the reference's workers; calling it twice does no harm."""
        if self._baselines is not None:
            self._baselines.close()
        if self._reference is not None:
            self._reference.session.close()

    def _warm(self) -> None:
        if self._reference is not None and not self._reference.session.closed:
            self._warm_baselines(self._reference)
            return
        self.close()
        self._tell("starting the reference")
        client = self._workers.reference()
        client.share(self._device)
        self._reference = Reference(self._loaded, client, self._policy)
        self._baselines = self.baselines_of(self._reference, compiled=self._always_compiled)
        self.workloads = list(self._loaded.problem.workloads)
        cut_flags: list[Flag] = []
        if self._backend.interpreted:
            self.workloads, cut_flags = interpretable_workloads(
                self._reference, self._policy.correctness, self.seeds[0]
            )
        self.intake = self._reference.intake(self.workloads, self.seeds)
        self.flags = [*cut_flags, *self.intake.flags]
        self._derive(self._reference)

    def _warm_baselines(self, reference: Reference) -> None:
        """Prepare the baselines anew after one of their workers was lost."""
        if self._baselines is not None and self._baselines.lost:
            self._baselines.close()
            self._baselines = self.baselines_of(reference, compiled=self._always_compiled)

    def _derive(self, reference: Reference) -> None:
        """Find out which derived workloads there are; a reference that one kills has none."""
        if self._derived is None:
            return
        try:
            self._derived = reference.derived(self.workloads, self.seeds[0])
        except (WorkerLost, ReferenceFailed) as error:
            self._derived = None
            self._warm()
            evidence = f"only the declared workloads are checked: {error}"
            flag = Flag(rule="no-derived-workloads", severity=Severity.WARNING, evidence=evidence)
            self.flags.append(flag)
