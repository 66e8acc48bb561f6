"""Starting workers: forked from a zygote where that can be, else each by itself.

Importing torch dominates a small evaluation, so a zygote imports it once for each
environment. Workers may be asked for from several threads; those that live side by side run
as different users.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from dataclasses import replace

from evaluator.backends import Backend
from evaluator.client import Client
from evaluator.errors import EvaluatorError
from evaluator.evaluation import Stage
from evaluator.memory_checkers import Checker
from evaluator.sandbox import Sandbox
from evaluator.sandbox.bubblewrap import BubblewrapSandbox
from evaluator.sandbox.program import USER_SLOTS
from evaluator.sandbox.zygote import ZygoteSandbox
from evaluator.session import PRELOAD, Role, Session, WorkerOptions
from evaluator.spending import staged
from policies.model import EvaluatorPolicy

_GPU_HOST_THREADS = 8
"""Host threads where the work is on a GPU."""


def shared_zygote() -> ZygoteSandbox:
    """Return this machine's sandbox with zygotes that several evaluators may fork from.

    An evaluator that is given it leaves it open; whoever made it closes it.

    Raises:
        SandboxUnavailable: there is no bubblewrap here, and no other sandbox forks.
    """
    return ZygoteSandbox(BubblewrapSandbox(), preload=PRELOAD)


class Workers:
    """Makes the clients of one evaluator; safe to use from several threads."""

    def __init__(self, sandbox: Sandbox, backend: Backend, policy: EvaluatorPolicy) -> None:
        self._forking = None
        if isinstance(sandbox, BubblewrapSandbox):
            self._forking = ZygoteSandbox(sandbox, preload=PRELOAD)
        self.sandbox: Sandbox = self._forking or sandbox
        self._not_forking = sandbox
        self._backend = backend
        self._free_slots = deque(range(USER_SLOTS))
        self._live: dict[int, Session] = {}
        self._lock = threading.Lock()
        cores = sorted(os.sched_getaffinity(0))
        usual = _GPU_HOST_THREADS if backend.gpu else len(cores)
        wanted = policy.timing.threads or usual
        self.cores = cores[:wanted]

    @property
    def threads(self) -> int:
        """Threads of every worker alike."""
        return len(self.cores)

    def warm(self) -> None:
        """Begin the imports of the workers to come; does not wait for them."""
        if self._forking is not None:
            for interpret in {False, self._backend.interpreted}:
                self._forking.warm(self._options(Role.CANDIDATE, interpret=interpret).spec())

    def reference(self) -> Client:
        """Start a worker for the reference."""
        return self._start(Role.REFERENCE)

    def baseline(self) -> Client:
        """Start a worker for the compiled baseline."""
        return self._start(Role.BASELINE)

    @staged(Stage.START)
    def candidate(self) -> Client:
        """Start a worker for one candidate."""
        return self._start(Role.CANDIDATE, interpret=self._backend.interpreted)

    def compiler(self) -> Client:
        """Start a worker that compiles Triton kernels without the interpreter."""
        return self._start(Role.CANDIDATE)

    def watched(self, checker: Checker) -> Client:
        """Start a worker for a candidate under a memory checker, in a process of its own."""
        return self._start(Role.CANDIDATE, checker=checker)

    def close(self) -> None:
        """Kill every worker that was forked; calling it twice does no harm."""
        if self._forking is not None:
            self._forking.close()

    def _start(
        self, role: Role, *, interpret: bool = False, checker: Checker | None = None
    ) -> Client:
        slot = self._take_slot()
        try:
            options = self._options(role, interpret=interpret, user_slot=slot)
            if checker is None:
                session = Session(self.sandbox, options)
            else:
                session = Session(self._not_forking, _under(checker, options))
        except BaseException:
            self._free_slots.append(slot)
            raise
        with self._lock:
            self._live[slot] = session
        return Client(
            session,
            device=self._backend.device,
            threads=self.threads,
            cores=self.cores,
            reference_build=self._backend.reference_build,
        )

    def _options(self, role: Role, *, interpret: bool, user_slot: int = 0) -> WorkerOptions:
        return WorkerOptions(
            role,
            threads=self.threads,
            gpu=self._backend.gpu,
            interpret=interpret,
            user_slot=user_slot,
            folders=self._backend.folders,
            variables=self._backend.variables,
        )

    def _take_slot(self) -> int:
        """Return a user that no living worker has, the one that was free for longest.

        Raises:
            EvaluatorError: too many workers live.
        """
        with self._lock:
            for slot in [slot for slot, session in self._live.items() if session.closed]:
                del self._live[slot]
                self._free_slots.append(slot)
            if not self._free_slots:
                raise EvaluatorError(
                    f"{USER_SLOTS} workers live already; evaluate fewer candidates side by side"
                )
            return self._free_slots.popleft()


def _under(checker: Checker, options: WorkerOptions) -> WorkerOptions:
    return replace(
        options,
        wrapper=checker.wrapper,
        variables=(*options.variables, *checker.variables),
        folders=(*options.folders, *checker.folders),
    )
