"""Starting workers, and keeping one candidate worker warm for the next candidate.

Importing torch dominates a small evaluation. A standby imports it while nothing is timed;
it has seen no candidate and is used for one only, so nothing passes from one to the next.
"""

from __future__ import annotations

import itertools
import os

from evaluator.backends import Backend
from evaluator.client import Client
from evaluator.sandbox import Sandbox
from evaluator.session import Role, Session, WorkerOptions
from policies.model import EvaluatorPolicy

_CANDIDATE_SLOTS = range(2, 10)
"""Users that candidates have in turn; reference and compiled baseline have 0 and 1."""
_GPU_HOST_THREADS = 8
"""Host threads where the work is on a GPU."""


class Workers:
    """Makes the clients of one evaluator."""

    def __init__(self, sandbox: Sandbox, backend: Backend, policy: EvaluatorPolicy) -> None:
        self.sandbox = sandbox
        self._backend = backend
        self._policy = policy
        self._slots = itertools.cycle(_CANDIDATE_SLOTS)
        self._standby: Session | None = None
        cores = sorted(os.sched_getaffinity(0))
        usual = _GPU_HOST_THREADS if backend.gpu else len(cores)
        wanted = policy.timing.threads or usual
        self.cores = cores[:wanted]

    @property
    def threads(self) -> int:
        """Threads of every worker alike."""
        return len(self.cores)

    def reference(self) -> Client:
        """Start a worker for the reference."""
        return self._client(self._start(Role.REFERENCE, user_slot=0))

    def baseline(self) -> Client:
        """Start a worker for the compiled baseline."""
        return self._client(self._start(Role.BASELINE, user_slot=1))

    def candidate(self) -> Client:
        """Return a worker that has seen no candidate: the standby, or a new one."""
        self.prepare_standby()
        session, self._standby = self._standby, None
        assert session is not None
        return self._client(session)

    def compiler(self) -> Client:
        """Start a worker that compiles Triton kernels without the interpreter."""
        return self._client(
            self._start(Role.CANDIDATE, user_slot=next(self._slots), interpret=False)
        )

    def prepare_standby(self) -> None:
        """Start the next candidate's worker; call it when nothing is being timed."""
        if self._standby is not None and self._standby.closed:
            self._standby.close()
            self._standby = None
        if self._standby is None:
            self._standby = self._start_candidate()

    def close(self) -> None:
        """Kill the standby."""
        if self._standby is not None:
            self._standby.close()
            self._standby = None

    def _start_candidate(self) -> Session:
        interpret = self._backend.interpreted
        return self._start(Role.CANDIDATE, user_slot=next(self._slots), interpret=interpret)

    def _start(self, role: Role, *, user_slot: int, interpret: bool = False) -> Session:
        options = WorkerOptions(
            role,
            threads=self.threads,
            gpu=self._backend.gpu,
            interpret=interpret,
            user_slot=user_slot,
            folders=self._backend.folders,
            variables=self._backend.variables,
        )
        return Session(self.sandbox, options)

    def _client(self, session: Session) -> Client:
        return Client(session, device=self._backend.device, threads=self.threads, cores=self.cores)
