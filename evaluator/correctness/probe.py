"""What a problem can tell of itself before any candidate is judged: the intake probe.

Would something trivial pass: zeros, the mean, another input's output, a copy of an input? On
which arguments does no output depend? Other stages take these facts from ``Intake``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice

import numpy as np
from pydantic import Field

from evaluator.correctness.budget import error_budget
from evaluator.correctness.comparison import compare_values
from evaluator.correctness.contract import check_call
from evaluator.correctness.expected import Expected
from evaluator.evaluation import Flag, Severity
from evaluator.problem import Contract, OutputKind, Tolerance
from evaluator.records import Record
from evaluator.tensors import Array, CallResult
from evaluator.workload import (
    DerivedWorkload,
    TensorSpec,
    Twist,
    ValueKind,
    Variation,
    Workload,
)

NOTHING_WRITTEN = "leaving them as they were"

Run = Callable[[DerivedWorkload], CallResult]

_MOST_ASKED = 16
"""Arguments, call arguments before state: each costs a run, and a network has hundreds."""


class Intake(Record):
    """Facts of a problem, found by running its reference."""

    flags: tuple[Flag, ...] = ()
    trivial: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Per output that something trivial would satisfy on some workload: what would."""
    unused: tuple[str, ...] = ()
    """Tensor arguments on which no output depends."""


def trivial_outputs(
    contract: Contract, tolerance: Tolerance, workload: Workload, expected: Sequence[Expected]
) -> dict[str, tuple[str, ...]]:
    """Outputs that something trivial would satisfy, and what (a dozen of KernelBench's).

    Args:
        contract: which outputs hold rounded numbers.
        tolerance: what passes.
        workload: whose inputs may be copied.
        expected: of at least two seeds.
    """
    found = {}
    for position, output in enumerate(contract.outputs):
        is_argument = output.alias_of is not None and output.alias_of not in contract.writes
        if output.kind is not OutputKind.VALUES or is_argument:
            continue
        tricks = _accepted_tricks(tolerance, workload, expected, position)
        if tricks:
            found[f"output {position}"] = tuple(tricks)
    if contract.writes and all(_holds_unwritten(contract, tolerance, e) for e in expected):
        found["written arguments"] = (NOTHING_WRITTEN,)
    return found


def _holds_unwritten(contract: Contract, tolerance: Tolerance, expected: Expected) -> bool:
    """Whether a candidate passes that returns what it must and writes nothing."""
    native = expected.native
    before = {n: a.with_storage(expected.inputs[n]) for n, a in native.arguments.items()}
    outputs = tuple(
        mine if output.alias_of is None else mine.with_storage(expected.inputs[output.alias_of])
        for output, mine in zip(contract.outputs, native.outputs, strict=True)
    )
    idle = replace(native, outputs=outputs, arguments=before)
    return not check_call(contract, tolerance, expected, idle).faults


def degenerate_flags(workload: Workload, trivial: dict[str, tuple[str, ...]]) -> list[Flag]:
    """Say what ``trivial_outputs`` found."""
    return [
        Flag(
            rule="degenerate",
            severity=Severity.WARNING,
            evidence=f"workload {workload.name}, {output}: {', '.join(tricks)} would pass",
        )
        for output, tricks in trivial.items()
    ]


def unused_flags(unused: Sequence[str]) -> list[Flag]:
    """Say on which arguments nothing depends."""
    return [
        Flag(
            rule="unused-input",
            severity=Severity.NOTE,
            evidence=f"no output depends on the values of argument {name}",
        )
        for name in unused
    ]


def find_unused(
    contract: Contract, workload: Workload, run: Run, before: CallResult
) -> tuple[str, ...]:
    """Tensor arguments, of the first few, that may be drawn anew without any output noticing.

    Args:
        contract: whose written arguments are left out.
        workload: whose arguments are changed.
        run: the reference, on the seed that ``before`` comes from.
        before: the call without a change.
    """
    return tuple(
        name
        for name, spec in islice(_changeable(contract, workload).items(), _MOST_ASKED)
        if not _differs(before, run(_redrawn(workload, name)), contract)
        and spec.values.kind not in (ValueKind.CONSTANT, ValueKind.CAPTURED)
    )


def _changeable(contract: Contract, workload: Workload) -> dict[str, TensorSpec]:
    """Arguments of which a change can only show in what the reference computes."""
    aliased = {t.alias_of for t in workload.tensors.values()}
    taken = {*contract.writes, *aliased, *(o.alias_of for o in contract.outputs)}
    return {
        name: spec
        for name, spec in workload.tensors.items()
        if name not in taken and spec.alias_of is None and spec.numel
    }


def _redrawn(workload: Workload, name: str) -> DerivedWorkload:
    return DerivedWorkload(
        name="probe",
        arguments=workload.arguments,
        variation=Variation.VALUES,
        twists={name: Twist.REDRAWN},
    )


def _differs(before: CallResult, after: CallResult, contract: Contract) -> bool:
    outputs = zip(before.outputs, after.outputs, strict=True)
    if any(a.array().tobytes() != b.array().tobytes() for a, b in outputs):
        return True
    written = contract.writes
    return any(before.arguments[n].storage != after.arguments[n].storage for n in written)


def _accepted_tricks(
    tolerance: Tolerance, workload: Workload, expected: Sequence[Expected], position: int
) -> list[str]:
    first, other = expected[0], expected[1]
    native = first.native.outputs[position].array()
    if native.size == 0:
        return []
    lifted = first.lifted.outputs[position].array() if first.lifted is not None else None
    truth = native if lifted is None or lifted.shape != native.shape else lifted
    budget = error_budget(
        truth,
        native if lifted is not None else None,
        dtype=first.native.outputs[position].facts.dtype,
        tolerance=tolerance,
        reduction_length=first.reduction_length,
    )
    finite = truth[np.isfinite(truth)]
    tricks: dict[str, Array] = {
        "zeros": np.zeros_like(truth),
        "the mean": np.full_like(truth, finite.mean() if finite.size else 0.0),
        "another input's output": other.native.outputs[position].array(),
        **_copies(workload, first),
    }
    return [
        name
        for name, values in tricks.items()
        if values.shape == truth.shape
        and compare_values(name, truth, native, values, budget).budget_used <= 1
    ]


def _copies(workload: Workload, expected: Expected) -> dict[str, Array]:
    """The arguments as they were before the call."""
    held = expected.native.arguments
    return {
        f"a copy of {name}": held[name].with_storage(expected.inputs[name]).array()
        for name, spec in workload.tensors.items()
        if spec.dtype.is_floating
    }
