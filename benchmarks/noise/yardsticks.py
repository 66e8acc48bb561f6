"""The clocks that others use, in the same kind of fresh sandboxed process as ours."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

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
from evaluator.workload import Workload
from policies.model import EvaluatorPolicy


class Yardsticks:
    """Times candidates of one problem; threads may call it side by side."""

    def __init__(
        self,
        loaded: LoadedProblem,
        sandbox: Sandbox,
        backend: BackendName = BackendName.TRITON,
        policy: EvaluatorPolicy | None = None,
    ) -> None:
        """Start nothing yet."""
        self._loaded = loaded
        self._policy = policy or EvaluatorPolicy.default()
        self._backend = choose_backend(backend)
        self._workers = Workers(sandbox, self._backend, self._policy)
        self._device = Device(self._backend.device)

    def times_us(
        self, candidate: Candidate, clocks: Sequence[str] = ()
    ) -> Iterator[tuple[Workload, dict[str, float]]]:
        """Time every workload by every clock, or the named ones, all in one fresh process.

        Raises:
            Ended: the kernel does not compile.
            RequestFailed, WorkerLost: it fails.
        """
        problem = self._loaded.problem
        client = self._workers.candidate()
        with client.session:
            load_candidate(client, candidate, problem, self._backend, self._policy)
            seconds = self._policy.limits.call_seconds
            for workload in problem.workloads:
                client.run(workload, draw_seed(), seconds=seconds)
                with self._device.timing(Clock.STREAM_EVENTS):
                    times_us = client.yardsticks(
                        workload, draw_seed(), seconds=seconds, clocks=clocks
                    )
                yield workload, times_us

    def measure(self, candidate: Candidate) -> list[Row]:
        """What ``times_us`` finds, as rows with what each workload took."""
        rows, started = [], time.monotonic()
        for workload, times_us in self.times_us(candidate):
            rows.append(
                Row(
                    study=Study.YARDSTICK,
                    kernel=f"{self._loaded.problem.id}.{workload.name}",
                    status=Status.OK,
                    seconds=time.monotonic() - started,
                    yardsticks_us=times_us,
                )
            )
            started = time.monotonic()
        return rows

    def close(self) -> None:
        """Kill its workers."""
        self._workers.close()
