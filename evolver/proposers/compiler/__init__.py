"""The ``compiler`` proposer: TorchInductor's kernels as the first translations of a problem.

Each call offers the next program of a fixed list: one per Inductor setting, cleaned into a
standalone module, equal programs left out. The list depends on the problem, the backend and
the installed torch alone. Emission executes the reference, so it runs in a sandbox
(``emitter/``), which works only while a call waits for it and ends with the list.
"""

from __future__ import annotations

import logging

from evaluator.candidate import BackendName, Candidate
from evaluator.sandbox import Sandbox
from evolver.proposers.base import ProposalContext
from evolver.proposers.compiler.constructed import as_candidate
from evolver.proposers.compiler.process import EmitterProcess, EmitterReply

log = logging.getLogger(__name__)


class CompilerProposer:
    """Offers TorchInductor's programs one by one; parents and feedback are not looked at."""

    name = "compiler"

    def __init__(self, sandbox: Sandbox | None = None) -> None:
        """Use ``sandbox``, or the one that fits this machine."""
        self._sandbox = sandbox
        self._emitters: dict[tuple[str, BackendName], EmitterProcess] = {}
        self._finished: set[tuple[str, BackendName]] = set()
        self.failures: list[str] = []
        """Why settings, or whole problems, gave no program; for the run's log."""

    def propose(self, context: ProposalContext) -> Candidate | None:
        """Return the next program for the context's problem and backend, None after the last.

        Raises:
            SandboxUnavailable: nothing can be isolated here, so nothing is traced.
        """
        key = (context.loaded.problem.reference_sha256, context.backend)
        while key not in self._finished:
            reply = self._next(key, context)
            if reply.failure is not None:
                log.info("compiler: %s", reply.failure)
                self.failures.append(reply.failure)
            if reply.is_last:
                self._finish(key)
            candidate = self._candidate(reply, context)
            if candidate is not None:
                return candidate
        return None

    def close(self) -> None:
        """End the emitters that still run."""
        for key in list(self._emitters):
            self._finish(key)

    def _candidate(self, reply: EmitterReply, context: ProposalContext) -> Candidate | None:
        if reply.source is None:
            return None
        try:
            return Candidate.create(
                as_candidate(reply.source, context.loaded.problem),
                backend=context.backend,
                proposer=self.name,
                description=reply.description,
            )
        except SyntaxError as error:
            self.failures.append(f"{reply.description}: the program is not Python: {error}")
            return None

    def _next(self, key: tuple[str, BackendName], context: ProposalContext) -> EmitterReply:
        if key not in self._emitters:
            self._emitters[key] = EmitterProcess(context.loaded, context.backend, self._sandbox)
        return self._emitters[key].next()

    def _finish(self, key: tuple[str, BackendName]) -> None:
        self._emitters.pop(key).close()
        self._finished.add(key)
