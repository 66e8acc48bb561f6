"""The clocks that others use, in the same kind of fresh sandboxed process as ours."""

from __future__ import annotations

import time

from benchmarks.noise.rows import Row, Study
from evaluator.backends import choose_backend
from evaluator.candidate import BackendName, Candidate
from evaluator.correctness.judging import load_candidate
from evaluator.device import Device
from evaluator.evaluation import Clock, Status
from evaluator.problem import LoadedProblem
from evaluator.sandbox import Sandbox
from evaluator.timing.pairs import draw_seed
from evaluator.workers import Workers
from policies.model import EvaluatorPolicy


class Yardsticks:
    """Times copies of one problem's kernel; threads may call ``measure`` side by side."""

    def __init__(self, loaded: LoadedProblem, sandbox: Sandbox) -> None:
        """Start nothing yet."""
        self._loaded = loaded
        self._policy = EvaluatorPolicy.default()
        self._backend = choose_backend(BackendName.TRITON)
        self._workers = Workers(sandbox, self._backend, self._policy)
        self._device = Device(self._backend.device)

    def measure(self, candidate: Candidate) -> list[Row]:
        """Time every workload in one fresh process.

        Raises:
            Ended: the kernel does not compile.
            RequestFailed, WorkerLost: it fails.
        """
        problem = self._loaded.problem
        rows = []
        client = self._workers.candidate()
        with client.session:
            load_candidate(client, candidate, problem, self._backend, self._policy)
            seconds = self._policy.limits.call_seconds
            for workload in problem.workloads:
                client.run(workload, draw_seed(), seconds=seconds)
                started = time.monotonic()
                with self._device.timing(Clock.STREAM_EVENTS):
                    times_us = client.yardsticks(workload, draw_seed(), seconds=seconds)
                rows.append(
                    Row(
                        study=Study.YARDSTICK,
                        kernel=f"{problem.id}.{workload.name}",
                        status=Status.OK,
                        seconds=time.monotonic() - started,
                        yardsticks_us=times_us,
                    )
                )
        return rows
