"""The reference at work: expected values, intake, and a worker that stays warm.

Expected values of a workload and seed are computed once and kept. Intake runs every
workload before any candidate is judged: a reference that fails or disagrees with itself is
refused, and an output that zeros, a mean or another input's output would satisfy is flagged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from evaluator.client import Call, Client
from evaluator.correctness.contract import CheckResult, check_call, same_bits
from evaluator.correctness.expected import Expected
from evaluator.correctness.intake import load_reference, run_reference
from evaluator.correctness.precision import measure_precision
from evaluator.correctness.probe import (
    NOTHING_WRITTEN,
    Intake,
    degenerate_flags,
    find_unused,
    trivial_outputs,
    unused_flags,
)
from evaluator.correctness.selection import selects
from evaluator.correctness.variants import derived_layouts, derived_shapes, derived_values
from evaluator.errors import ReferenceFailed, WorkerLost
from evaluator.evaluation import Flag, Severity
from evaluator.problem import LoadedProblem, OutputKind, Problem, Tolerance
from evaluator.session import RequestFailed, Session
from evaluator.tensors import CallResult, input_storages, rounded_like
from evaluator.workload import DerivedWorkload, Twist, Workload
from policies.model import EvaluatorPolicy, LayoutPolicy

_LEAST_JITTER = 2.0**-20
"""Eight units in the last place of float32, in which most kernels compute."""


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
            expected = self.compute(workload, seed)
            if self._selects(expected):
                expected = self._with_alternatives(workload, seed, expected)
            self._expected[key] = expected
        return self._expected[key]

    def intake(self, workloads: Sequence[Workload], seeds: Sequence[int]) -> Intake:
        """Check that the reference is fit to judge by; return what is worth knowing.

        Raises:
            ReferenceFailed: it fails, breaks its own contract or disagrees with itself.
        """
        flags: list[Flag] = []
        trivial: dict[str, tuple[str, ...]] = {}
        idle = 0
        for workload in workloads:
            expected = [self.expected(workload, seed) for seed in seeds]
            again = run_reference(self.client, workload, seeds[0], self._policy)
            self._check_itself(workload, expected[0], again)
            if expected[0].lifted is None:
                flags.append(_unlifted_flag(workload))
            found = trivial_outputs(self.problem.contract, self.tolerance, workload, expected)
            flags += degenerate_flags(workload, found)
            trivial |= found
            idle += (NOTHING_WRITTEN,) in found.values()
        if self.problem.contract.returns_none and idle == len(workloads):
            raise ReferenceFailed(
                "a candidate that does nothing would pass: on no workload do the written "
                f"arguments ({', '.join(self.problem.contract.writes)}) differ enough from what "
                "they were before the call; give them other values in problem.yaml"
            )
        unused = self._unused(smallest(workloads), seeds[0])
        flags += unused_flags(unused)
        return Intake(flags=tuple(flags), trivial=trivial, unused=unused)

    def derived(self, workloads: Sequence[Workload], seed: int) -> tuple[DerivedWorkload, ...]:
        """Workloads that nobody was shown and that the reference itself runs and answers.

        Args:
            workloads: those that candidates are checked on.
            seed: of their inputs; what is expected for it is kept.

        Raises:
            WorkerLost: the reference did not survive one.
        """
        policy = self._policy.correctness.derived
        base = smallest(workloads)
        if base.total_bytes > policy.heavy_bytes:
            policy = policy.at_most(policy.heavy_each)
        kept = [w for w in derived_shapes(workloads, most=policy.shapes) if self._runs(w, seed)]
        values: list[DerivedWorkload] = []
        for workload in derived_values(base):
            done = {t for w in values for t in w.twists.values()}
            if len(values) < policy.values and done.isdisjoint(workload.twists.values()):
                values += [workload] if self._answers(workload, seed) else []
        layouts: list[DerivedWorkload] = []
        if policy.layouts is not LayoutPolicy.OFF:
            layouts = derived_layouts(base, self.problem.contract)[: policy.layouts_tried]
        return (*values, *kept, *(w for w in layouts if self._runs(w, seed)))

    def check(
        self, workload: Workload, seed: int, expected: Expected, got: CallResult
    ) -> CheckResult:
        """Compare a call with ``expected``, and what near ties may select with it as well.

        Raises:
            ProtocolError: the report contradicts itself.
        """
        allow = self._policy.correctness.allow_lower_precision
        contract = self.problem.contract
        result = check_call(contract, self.tolerance, expected, got, allow_lower_precision=allow)
        if not result.faults or expected.alternatives or not self._selects(expected):
            return result
        expected = self._with_alternatives(workload, seed, expected)
        return check_call(contract, self.tolerance, expected, got, allow_lower_precision=allow)

    @property
    def tolerance(self) -> Tolerance:
        """The problem's, or the policy's where that is looser."""
        own = self.problem.tolerance
        looser = max(own.relative, self._policy.correctness.relative_tolerance)
        return own.model_copy(update={"relative": looser})

    def _runs(self, workload: DerivedWorkload, seed: int) -> bool:
        """Whether the reference accepts the workload and gives numbers."""
        try:
            expected = self.expected(workload, seed)
        except ReferenceFailed:
            if self.session.closed:
                raise
            return False
        calls = [expected.native, *([expected.lifted] if expected.lifted is not None else [])]
        if any(np.isnan(o.array()).any() for call in calls for o in call.outputs):
            return False
        checked = check_call(self.problem.contract, self.tolerance, expected, expected.native)
        return not checked.faults

    def _answers(self, workload: DerivedWorkload, seed: int) -> bool:
        """Whether the answer to extreme values is one: finite, and no choice among ties."""
        if not self._runs(workload, seed):
            return False
        expected = self.expected(workload, seed)
        outputs = [o.array() for o in expected.native.outputs]
        infinite = {Twist.MINUS_INFINITY, Twist.PLUS_INFINITY} & set(workload.twists.values())
        if not infinite and not all(np.isfinite(o).all() for o in outputs):
            return False
        if not self._selects(expected):
            return True
        seconds, jitter = self._policy.limits.call_seconds, (_LEAST_JITTER, 0)
        moved = self.client.run(workload, seed, seconds=seconds, lifted=True, jitter=jitter)
        rounded = rounded_like(moved, expected.native)
        faults = check_call(self.problem.contract, self.tolerance, expected, rounded).faults
        return not faults

    def _unused(self, workload: Workload, seed: int) -> tuple[str, ...]:
        def run(changed: DerivedWorkload) -> CallResult:
            return run_reference(self.client, changed, seed, self._policy)

        before = self.expected(workload, seed).native
        return find_unused(self.problem.contract, workload, run, before)

    def _selects(self, expected: Expected) -> bool:
        return expected.lifted is not None and selects(self.problem.contract)

    def _with_alternatives(self, workload: Workload, seed: int, expected: Expected) -> Expected:
        """``expected`` with the reference in float64 on inputs that a rounding error moved."""
        amplitude = max(_LEAST_JITTER, 2 * _typical_error(self.problem, expected))
        seconds = self._policy.limits.call_seconds
        runs = [
            self.client.run(workload, seed, seconds=seconds, lifted=True, jitter=(amplitude, n))
            for n in range(self._policy.correctness.near_tie_draws)
        ]
        alternatives = tuple(replace(run, arguments={}, zones={}) for run in runs)
        return replace(expected, alternatives=alternatives, jitter=amplitude)

    def _check_itself(self, workload: Workload, expected: Expected, again: CallResult) -> None:
        if not same_bits(expected.native, again):
            raise ReferenceFailed(
                f"the reference disagrees with itself on workload {workload.name!r}: two runs on "
                "the same input differ, so nothing can be compared with it (random numbers, "
                "uninitialised memory or atomics?)"
            )
        checked = check_call(self.problem.contract, self.tolerance, expected, again)
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
            stress=isinstance(workload, DerivedWorkload) and workload.is_stress,
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
    return Call(
        entry.function,
        entry.class_name,
        problem.arguments,
        problem.state,
        entry.constructor,
        problem.contract.writes,
    )


def candidate_call(problem: Problem) -> Call:
    """What to call in a candidate."""
    entry, writes = problem.entry, problem.contract.writes
    if entry.constructor is None:
        return Call(entry.candidate_function, None, problem.parameters, (), writes=writes)
    owner, arguments = entry.candidate_function, problem.arguments
    return Call(entry.function, owner, arguments, problem.state, entry.constructor, writes)


def _unlifted_flag(workload: Workload) -> Flag:
    return Flag(
        rule="expected-not-float64",
        severity=Severity.NOTE,
        evidence=f"workload {workload.name}: the reference cannot run in float64; its own types "
        "gave the expected values",
    )


def smallest(workloads: Sequence[Workload]) -> Workload:
    """The workload with the fewest elements."""
    return min(workloads, key=lambda w: sum(t.numel for t in w.tensors.values()))


def _typical_error(problem: Problem, expected: Expected) -> float:
    """The reference's usual error, relative: what its arithmetic rounds to."""
    assert expected.lifted is not None
    pairs = zip(expected.native.outputs, expected.lifted.outputs, strict=True)
    found = [
        measure_precision(
            "", wide.array(), None, own.array(), dtype=own.facts.dtype, reduction_length=1
        )
        for output, (own, wide) in zip(problem.contract.outputs, pairs, strict=True)
        if output.kind is OutputKind.VALUES and own.facts.shape == wide.facts.shape
    ]
    return max((f.candidate for f in found if f is not None), default=0.0)


def _reduction_length(workload: Workload) -> int:
    """The longest extent of any floating argument: what a reduction can run over at most."""
    shapes = [t.shape for t in workload.tensors.values() if t.dtype.is_floating]
    return max((extent for shape in shapes for extent in shape), default=1)
