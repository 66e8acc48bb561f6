"""The reference at work: expected values, intake, and a worker that stays warm.

Expected values of a workload and seed are computed once and kept. Intake runs every
workload before any candidate is judged: a reference that fails or disagrees with itself is
refused, and an output that zeros, a mean or another input's output would satisfy is flagged.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from evaluator.budget import error_budget
from evaluator.client import Call, Client
from evaluator.correctness import Expected, check_call, compare_values, same_bits
from evaluator.errors import ReferenceFailed, WorkerLost
from evaluator.evaluation import Flag, Severity
from evaluator.intake import load_reference, run_reference
from evaluator.problem import LoadedProblem, OutputKind, Problem
from evaluator.session import RequestFailed, Session
from evaluator.tensors import Array, CallResult, input_storages
from evaluator.workload import Workload
from policies.model import EvaluatorPolicy


class Reference:
    """A problem's reference in a worker of its own."""

    def __init__(
        self,
        loaded: LoadedProblem,
        client: Client,
        policy: EvaluatorPolicy,
    ) -> None:
        """Import the reference.

        Raises:
            ReferenceFailed: it cannot be imported.
        """
        self.problem = loaded.problem
        self.client = client
        self._policy = policy
        self._expected: dict[tuple[str, int], Expected] = {}
        load_reference(client, loaded.reference_source, reference_call(loaded.problem), policy)

    @property
    def session(self) -> Session:
        """The worker's session."""
        return self.client.session

    def expected(self, workload: Workload, seed: int) -> Expected:
        """Return what a call on the inputs of ``seed`` must give; computed once.

        Raises:
            ReferenceFailed: the reference cannot run the workload.
        """
        key = (workload.model_dump_json(), seed)
        if key not in self._expected:
            self._expected[key] = self.compute(workload, seed)
        return self._expected[key]

    def intake(self, workloads: Sequence[Workload], seeds: Sequence[int]) -> list[Flag]:
        """Check that the reference is fit to judge by; return what a reader should know.

        Raises:
            ReferenceFailed: it fails, breaks its own contract or disagrees with itself.
        """
        flags: list[Flag] = []
        for workload in workloads:
            expected = [self.expected(workload, seed) for seed in seeds]
            again = run_reference(self.client, workload, seeds[0], self._policy)
            self._check_itself(workload, expected[0], again)
            if expected[0].lifted is None:
                flags.append(_unlifted_flag(workload))
            flags += degenerate_flags(self.problem, workload, expected)
        return flags

    def _check_itself(self, workload: Workload, expected: Expected, again: CallResult) -> None:
        if not same_bits(expected.native, again):
            raise ReferenceFailed(
                f"the reference disagrees with itself on workload {workload.name!r}: two runs on "
                "the same input differ, so nothing can be compared with it (random numbers, "
                "uninitialised memory or atomics?)"
            )
        checked = check_call(self.problem.contract, self.problem.tolerance, expected, again)
        if checked.faults:
            detail = "; ".join(f.detail for f in checked.faults)
            raise ReferenceFailed(
                f"the reference breaks its own contract on workload {workload.name!r}: {detail}; "
                "correct the contract in problem.yaml"
            )

    def compute(self, workload: Workload, seed: int) -> Expected:
        """As ``expected``, without keeping it.

        Raises:
            ReferenceFailed: the reference cannot run the workload.
        """
        native = run_reference(self.client, workload, seed, self._policy)
        return Expected(
            native=native,
            lifted=self._lifted(workload, seed),
            inputs=input_storages(workload, seed),
            reduction_length=_reduction_length(workload),
        )

    def _lifted(self, workload: Workload, seed: int) -> CallResult | None:
        """The float64 run, or None where the reference cannot be lifted."""
        seconds = self._policy.limits.call_seconds
        try:
            return self.client.run(workload, seed, seconds=seconds, lifted=True)
        except RequestFailed:
            return None
        except WorkerLost as error:
            raise ReferenceFailed(
                f"the reference did not survive workload {workload.name!r} in float64: {error}"
            ) from error


def reference_call(problem: Problem) -> Call:
    """What to call in ``reference.py``."""
    entry = problem.entry
    return Call(entry.function, entry.class_name, problem.arguments, problem.state)


def candidate_call(problem: Problem) -> Call:
    """What to call in a candidate."""
    return Call(problem.entry.candidate_function, None, problem.parameters, ())


def degenerate_flags(
    problem: Problem, workload: Workload, expected: Sequence[Expected]
) -> list[Flag]:
    """Flag outputs that something trivial would satisfy (evaluators.md: a dozen of KernelBench).

    Args:
        problem: for the contract and the tolerance.
        workload: for its name.
        expected: of at least two seeds.
    """
    flags = []
    for position, output in enumerate(problem.contract.outputs):
        if output.kind is not OutputKind.VALUES or output.alias_of is not None:
            continue
        tricks = _accepted_tricks(problem, expected, position)
        if tricks:
            evidence = (
                f"workload {workload.name}, output {position}: {', '.join(tricks)} would pass"
            )
            flags.append(Flag(rule="degenerate", severity=Severity.WARNING, evidence=evidence))
    return flags


def _accepted_tricks(problem: Problem, expected: Sequence[Expected], position: int) -> list[str]:
    first, other = expected[0], expected[1]
    native = np.asarray(first.native.outputs[position].array(), dtype=np.float64)
    if native.size == 0:
        return []
    lifted = first.lifted.outputs[position].array() if first.lifted is not None else None
    truth = native if lifted is None or lifted.shape != native.shape else np.asarray(lifted)
    budget = error_budget(
        truth,
        native if lifted is not None else None,
        dtype=first.native.outputs[position].facts.dtype,
        tolerance=problem.tolerance,
        reduction_length=first.reduction_length,
    )
    tricks: dict[str, Array] = {
        "zeros": np.zeros_like(truth),
        "the mean": np.full_like(truth, truth[np.isfinite(truth)].mean() if truth.size else 0.0),
        "another input's output": np.asarray(other.native.outputs[position].array(), np.float64),
    }
    return [
        name
        for name, values in tricks.items()
        if values.shape == truth.shape
        and compare_values(name, truth, native, values, budget).budget_used <= 1
    ]


def _unlifted_flag(workload: Workload) -> Flag:
    return Flag(
        rule="expected-not-float64",
        severity=Severity.NOTE,
        evidence=f"workload {workload.name}: the reference cannot run in float64; its own types "
        "gave the expected values",
    )


def _reduction_length(workload: Workload) -> int:
    """The longest extent of any floating argument: what a reduction can run over at most."""
    shapes = [t.shape for t in workload.tensors.values() if t.dtype.is_floating]
    return max((extent for shape in shapes for extent in shape), default=1)
