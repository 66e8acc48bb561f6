"""Whether a call did what the contract says: pure functions over reported calls.

Expected values come from float64 (``evaluator/budget.py`` says how far an element may be
from them), exact ones from the reference's own run. NaN and infinities must stand where
the reference has them. An index is right when it selects a value within the budget. Nothing
here knows seeds, processes or held-out workloads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from evaluator.budget import error_budget
from evaluator.evaluation import OutputError
from evaluator.indices import index_faults
from evaluator.problem import Contract, Output, OutputKind, Tolerance
from evaluator.tensors import PLAIN_TENSOR, Array, CallResult, Snapshot


@dataclass(frozen=True)
class Expected:
    """What is known of one workload and seed before any candidate is seen."""

    native: CallResult
    """The reference in its own types."""
    lifted: CallResult | None
    """The reference in float64, or None where it cannot be lifted."""
    inputs: Mapping[str, bytes]
    """The storage of each tensor argument before the call."""
    reduction_length: int


@dataclass(frozen=True)
class Fault:
    """Why a call is wrong: a kind that a held-out workload may reveal, and the detail."""

    kind: str
    detail: str


@dataclass(frozen=True)
class CheckResult:
    """The faults of one call and the worst error of each compared tensor."""

    faults: tuple[Fault, ...]
    errors: tuple[OutputError, ...]


def check_call(
    contract: Contract, tolerance: Tolerance, expected: Expected, got: CallResult
) -> CheckResult:
    """Compare a candidate's call with what is expected of it.

    Raises:
        ProtocolError: the report contradicts itself.
    """
    fault = _form_fault(contract, expected.native, got)
    if fault is not None:
        return CheckResult((fault,), ())
    faults: list[Fault] = []
    errors: list[OutputError] = []
    for position, output in enumerate(contract.outputs):
        _collect(
            _check_output(position, output, contract, tolerance, expected, got), faults, errors
        )
    for name in contract.writes:
        _collect(_check_write(name, tolerance, expected, got), faults, errors)
    faults += _undeclared_writes(contract, expected, got)
    return CheckResult(tuple(faults), tuple(errors))


def changed_arguments(before: Mapping[str, bytes], result: CallResult) -> list[str]:
    """Return the arguments whose storage differs from what it was."""
    return [n for n, snapshot in result.arguments.items() if snapshot.storage != before[n]]


def same_bits(one: CallResult, other: CallResult) -> bool:
    """Whether two calls returned tensors of the same form and left the same bits behind."""
    if one.container != other.container or len(one.outputs) != len(other.outputs):
        return False
    if any(one.arguments[n].storage != other.arguments[n].storage for n in one.arguments):
        return False
    pairs = zip(one.outputs, other.outputs, strict=True)
    return all(a.facts == b.facts and a.array().tobytes() == b.array().tobytes() for a, b in pairs)


def alias_of(output: Snapshot, arguments: Mapping[str, Snapshot]) -> str | None:
    """Return the argument that ``output`` is, element for element, or None."""
    for name, argument in arguments.items():
        if name in output.facts.shares and _view(output) == _view(argument):
            return name
    return None


def compare_values(
    name: str, expected: Array, native: Array | None, got: Array, budget: Array
) -> OutputError:
    """Return the worst element of ``got``; ``budget_used`` above 1 means wrong.

    Args:
        name: for the record.
        expected: float64 values.
        native: the reference's own values, whose NaN and infinities are right as well.
        got: the candidate's values, same shape.
        budget: the allowed absolute error, same shape.
    """
    if expected.size == 0:
        return OutputError(name=name, max_abs_error=0.0, max_rel_error=0.0, budget_used=0.0)
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.abs(got - expected)
    magnitude = np.abs(expected)
    if not np.isfinite(error).all():  # large tensors without NaN or infinities skip these passes
        error = np.where(_agrees_exactly(got, expected), 0.0, error)
        if native is not None:
            at_limit = ~np.isfinite(native) & _agrees_exactly(got, native)
            error = np.where(at_limit, 0.0, error)
        error = np.where(np.isnan(error), np.inf, error)
        magnitude = np.where(np.isfinite(expected), magnitude, 1.0)
    used = _ratio(error, budget)
    worst = np.unravel_index(int(np.argmax(used)), used.shape)
    return OutputError(
        name=name,
        max_abs_error=float(error.max()),
        max_rel_error=float(_ratio(error, magnitude).max()),
        budget_used=float(used.max()),
        worst_index=tuple(int(i) for i in worst),
    )


def _form_fault(contract: Contract, native: CallResult, got: CallResult) -> Fault | None:
    """The first way in which container, count, type, shape or aliasing is wrong."""
    if contract.returns_tuple != (got.container in ("tuple", "list")):
        form = "a tuple" if contract.returns_tuple else "a bare tensor"
        return Fault("wrong container", f"returned a {got.container}, expected {form}")
    if len(got.outputs) != len(contract.outputs):
        detail = f"returned {len(got.outputs)} tensors, expected {len(contract.outputs)}"
        return Fault("wrong number of outputs", detail)
    for wanted, output, mine in zip(contract.outputs, native.outputs, got.outputs, strict=True):
        fault = _tensor_fault(output, mine) or _alias_fault(wanted, output, mine, got)
        if fault is not None:
            return fault
    for name, argument in got.arguments.items():
        if _view(argument) != _view(native.arguments[name]):
            return Fault("argument reshaped", f"argument {name} has other strides after the call")
    return None


def _tensor_fault(wanted: Snapshot, mine: Snapshot) -> Fault | None:
    own, other = mine.facts, wanted.facts
    if own.type_name != PLAIN_TENSOR:
        return Fault("wrong type", f"{own.name} is a {own.type_name}, expected {PLAIN_TENSOR}")
    for what in ("dtype", "shape", "device"):
        has, needs = getattr(own, what), getattr(other, what)
        if has != needs:
            return Fault(f"wrong {what}", f"{own.name} has {what} {has}, expected {needs}")
    return None


def _alias_fault(
    wanted: Output, reference: Snapshot, mine: Snapshot, got: CallResult
) -> Fault | None:
    name = mine.facts.name
    if wanted.alias_of is not None:
        argument = got.arguments[wanted.alias_of]
        if wanted.alias_of in mine.facts.shares and _view(mine) == _view(argument):
            return None
        return Fault("wrong alias", f"{name} must be the argument {wanted.alias_of} itself")
    extra = sorted(set(mine.facts.shares) - set(reference.facts.shares))
    if extra:
        return Fault("wrong alias", f"{name} shares memory with {', '.join(extra)}")
    return None


def _check_output(
    position: int,
    output: Output,
    contract: Contract,
    tolerance: Tolerance,
    expected: Expected,
    got: CallResult,
) -> Fault | OutputError | None:
    native = expected.native.outputs[position]
    lifted = expected.lifted.outputs[position] if expected.lifted is not None else None
    mine = got.outputs[position]
    if output.kind is OutputKind.EXACT:
        return _check_exact(mine, native, lifted)
    if output.kind is OutputKind.INDICES:
        return _check_indices(position, contract, tolerance, expected, got)
    return _check_values(
        mine, native, lifted, tolerance, expected.reduction_length, output.order_free_dim
    )


def _check_values(
    mine: Snapshot,
    native: Snapshot,
    lifted: Snapshot | None,
    tolerance: Tolerance,
    reduction_length: int,
    order_free_dim: int | None,
) -> Fault | OutputError:
    name = mine.facts.name
    own = np.asarray(native.array(), dtype=np.float64)
    wide = np.asarray(lifted.array(), dtype=np.float64) if lifted is not None else own
    if wide.shape != own.shape:
        wide, lifted = own, None
    values = np.asarray(mine.array(), dtype=np.float64)
    if order_free_dim is not None:
        own, wide, values = (np.sort(a, axis=order_free_dim) for a in (own, wide, values))
    budget = error_budget(
        wide,
        own if lifted is not None else None,
        dtype=native.facts.dtype,
        tolerance=tolerance,
        reduction_length=reduction_length,
    )
    return compare_values(name, wide, own, values, budget)


def _check_exact(mine: Snapshot, native: Snapshot, lifted: Snapshot | None) -> Fault | None:
    """Equal to the reference's own run or, where rounding decides, to the float64 one."""
    values, own = mine.array(), native.array()
    right = _agrees_exactly(values, own)
    if lifted is not None and lifted.facts.shape == native.facts.shape:
        right |= _agrees_exactly(values, lifted.array())
    if bool(right.all()):
        return None
    where = tuple(int(i) for i in np.argwhere(~right)[0])
    count = int((~right).sum())
    detail = f"{mine.facts.name} differs in {count} of {right.size} elements, first at {where}"
    return Fault("wrong values", detail)


def _check_indices(
    position: int,
    contract: Contract,
    tolerance: Tolerance,
    expected: Expected,
    got: CallResult,
) -> Fault | None:
    output = contract.outputs[position]
    selects = output.selects
    assert selects is not None  # the contract's own validator says so
    truth = expected.lifted if expected.lifted is not None else expected.native
    native_values = expected.native.outputs[selects]
    wide = np.asarray(truth.outputs[selects].array(), dtype=np.float64)
    budget = error_budget(
        wide,
        np.asarray(native_values.array(), np.float64) if expected.lifted is not None else None,
        dtype=native_values.facts.dtype,
        tolerance=tolerance,
        reduction_length=expected.reduction_length,
    )
    problem = index_faults(
        indices=got.outputs[position].array(),
        values=np.asarray(got.outputs[selects].array(), dtype=np.float64),
        expected_indices=truth.outputs[position].array(),
        native_indices=expected.native.outputs[position].array(),
        expected_values=wide,
        budget=budget,
        axis=output.order_free_dim if output.order_free_dim is not None else -1,
    )
    if problem is None:
        return None
    return Fault("wrong indices", f"{got.outputs[position].facts.name}: {problem}")


def _check_write(
    name: str, tolerance: Tolerance, expected: Expected, got: CallResult
) -> Fault | OutputError:
    """A declared write: values like an output, and the gaps between its elements untouched."""
    mine, native = got.arguments[name], expected.native.arguments[name]
    if _gaps(mine) != _gaps(Snapshot(mine.facts, expected.inputs[name])):
        return Fault("wrote between elements", f"argument {name}: memory between rows changed")
    lifted = expected.lifted.arguments[name] if expected.lifted is not None else None
    result = _check_values(mine, native, lifted, tolerance, expected.reduction_length, None)
    if isinstance(result, OutputError):
        return result.model_copy(update={"name": f"argument {name}"})
    return result


def _undeclared_writes(contract: Contract, expected: Expected, got: CallResult) -> list[Fault]:
    changed = set(changed_arguments(expected.inputs, got)) - set(contract.writes)
    return [
        Fault("input modified", f"argument {name} was modified, but is not declared as written")
        for name in sorted(changed)
    ]


def _collect(
    found: Fault | OutputError | None, faults: list[Fault], errors: list[OutputError]
) -> None:
    """Sort what a check found; an error beyond its budget is a fault too."""
    if isinstance(found, Fault):
        faults.append(found)
    if isinstance(found, OutputError):
        errors.append(found)
        if not found.budget_used <= 1:
            faults.append(Fault("wrong values", _beyond_budget(found)))


def _beyond_budget(error: OutputError) -> str:
    return (
        f"{error.name} is off by {error.max_abs_error:.3g} (relative {error.max_rel_error:.3g}), "
        f"{error.budget_used:.3g} times the budget; worst at {error.worst_index}"
    )


def _gaps(snapshot: Snapshot) -> bytes:
    """The storage with the tensor's own elements blanked."""
    facts = snapshot.facts
    size = snapshot.itemsize_bytes
    cells = np.frombuffer(bytearray(snapshot.storage), dtype=np.uint8).reshape(-1, size)
    if 0 not in facts.shape:
        own = np.lib.stride_tricks.as_strided(
            np.arange(len(cells))[facts.offset :],
            facts.shape,
            tuple(step * np.dtype(np.int64).itemsize for step in facts.strides),
        )
        cells[own.reshape(-1)] = 0
    return cells.tobytes()


def _agrees_exactly(one: Array, other: Array) -> Array:
    """Where two arrays are equal, NaN counting as equal to NaN."""
    both_nan = (one != one) & (other != other)
    return np.asarray((one == other) | both_nan)


def _ratio(numerator: Array, denominator: Array) -> Array:
    """Element by element; 0 over 0 is 0, anything else over 0 is infinite."""
    quotient = np.empty(np.broadcast_shapes(numerator.shape, denominator.shape))
    with np.errstate(divide="ignore", invalid="ignore"):
        np.divide(numerator, denominator, out=quotient)
    undefined = np.isnan(quotient)
    if undefined.any():
        quotient[undefined] = np.where(numerator[undefined] == 0, 0.0, np.inf)
    return quotient


def _view(snapshot: Snapshot) -> tuple[object, ...]:
    facts = snapshot.facts
    return (facts.shape, facts.strides, facts.offset)
