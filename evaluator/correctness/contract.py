"""Whether a call did what the contract says: pure functions over reported calls.

Expected values come from float64 (``budget.py`` says how far an element may be from
them), exact ones from the reference's own run. NaN and infinities must stand where
the reference has them. An index is right when it selects a value within the budget. Nothing
here knows seeds, processes or held-out workloads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from evaluator.correctness.budget import error_budget
from evaluator.correctness.comparison import agrees_exactly, compare_values
from evaluator.correctness.expected import Expected
from evaluator.correctness.indices import index_faults
from evaluator.correctness.precision import Precision, measure_precision
from evaluator.correctness.selection import follow_selection
from evaluator.evaluation import OutputError
from evaluator.problem import Contract, Output, OutputKind, Tolerance
from evaluator.tensors import GUARD_BYTE, PLAIN_TENSOR, Array, CallResult, Snapshot
from evaluator.worker.protocol import NOTHING, TensorFacts
from evaluator.workload import DType

LOWER_PRECISION = "lower precision"
"""The kind of a fault."""


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
    precision: tuple[Precision, ...] = ()


def check_call(
    contract: Contract,
    tolerance: Tolerance,
    expected: Expected,
    got: CallResult,
    *,
    allow_lower_precision: bool = False,
) -> CheckResult:
    """Compare a candidate's call with what is expected of it.

    Raises:
        ProtocolError: the report contradicts itself.
    """
    fault = _form_fault(contract, expected.native, got)
    if fault is not None:
        return CheckResult((fault,), ())
    expected = follow_selection(contract, expected, got)
    faults: list[Fault] = _writes_out_of_bounds(got)
    errors: list[OutputError] = []
    for position, output in enumerate(contract.outputs):
        _collect(
            _check_output(position, output, contract, tolerance, expected, got), faults, errors
        )
    for name in contract.writes:
        _collect(_gap_fault(name, expected, got), faults, errors)
    for name in _only_written(contract):
        _collect(_check_write(name, tolerance, expected, got), faults, errors)
    faults += _undeclared_writes(contract, expected, got)
    precision = tuple(_precisions(contract, expected, got))
    if not (allow_lower_precision or expected.stress):
        faults += [Fault(LOWER_PRECISION, p.sentence) for p in precision if p.is_low]
    return CheckResult(tuple(faults), tuple(errors), precision)


def _writes_out_of_bounds(got: CallResult) -> list[Fault]:
    return [
        Fault("wrote out of bounds", f"memory beside argument {name} was written to")
        for name, zone in got.zones.items()
        if zone.count(GUARD_BYTE) != len(zone)
    ]


def _precisions(contract: Contract, expected: Expected, got: CallResult) -> Iterator[Precision]:
    """The precision of every output, and of every written argument, that holds rounded numbers."""
    for position, output in enumerate(contract.outputs):
        native = expected.native.outputs[position]
        lifted = expected.lifted.outputs[position] if expected.lifted is not None else None
        if output.kind is OutputKind.VALUES:
            alias = output.alias_of if output.alias_of in contract.writes else None
            mine, dim = got.outputs[position], output.order_free_dim
            yield from _precision(native, lifted, mine, expected, dim=dim, argument=alias)
    for name in _only_written(contract):
        native = expected.native.arguments[name]
        lifted = expected.lifted.arguments[name] if expected.lifted is not None else None
        yield from _precision(native, lifted, got.arguments[name], expected, argument=name)


def _precision(
    native: Snapshot,
    lifted: Snapshot | None,
    mine: Snapshot,
    expected: Expected,
    *,
    dim: int | None = None,
    argument: str | None = None,
) -> Iterator[Precision]:
    """At most one; of a written argument what the reference changes, for the rest is exact."""
    if not _is_wide_enough(native, lifted):
        return
    own = native.array()
    arrays = _ordered(dim, own if lifted is None else lifted.array(), own, mine.array())
    if argument is not None and dim is None:
        held = expected.native.arguments[argument].with_storage(expected.inputs[argument])
        changed = own != held.array()
        arrays = tuple(a[changed] for a in arrays)
    found = measure_precision(
        mine.facts.name,
        *arrays,
        dtype=native.facts.dtype,
        reduction_length=expected.reduction_length,
    )
    if found is not None:
        yield found


def _is_wide_enough(native: Snapshot, lifted: Snapshot | None) -> bool:
    """Whether float64 is known, or the reference's own types are as good as that here."""
    if lifted is not None:
        return lifted.facts.shape == native.facts.shape
    return native.facts.dtype in ("float64", "float32")


def _ordered(dim: int | None, *arrays: Array) -> tuple[Array, ...]:
    return arrays if dim is None else tuple(np.sort(a, axis=dim) for a in arrays)


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


def _form_fault(contract: Contract, native: CallResult, got: CallResult) -> Fault | None:
    """The first way in which container, count, type, shape or aliasing is wrong."""
    if contract.returns_none != (got.container == NOTHING):
        returned = "None" if got.container == NOTHING else f"a {got.container}"
        right = "None" if contract.returns_none else "tensors"
        return Fault("wrong container", f"returned {returned}, expected {right}")
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
    if _overlaps(own) and not _overlaps(other):
        detail = f"{own.name} has strides {own.strides}, so that its elements share memory"
        return Fault("overlapping output", f"{detail}; the reference's do not")
    return None


def _overlaps(facts: TensorFacts) -> bool:
    """Whether elements share memory, as in an expanded tensor; interlocked ones count as such."""
    reach = 0
    for step, extent in sorted(zip(facts.strides, facts.shape, strict=True)):
        if extent > 1 and step <= reach:
            return 0 not in facts.shape
        reach += step * (extent - 1)
    return False


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
    return _check_values(mine, native, lifted, tolerance, expected, output.order_free_dim)


def _check_values(
    mine: Snapshot,
    native: Snapshot,
    lifted: Snapshot | None,
    tolerance: Tolerance,
    expected: Expected,
    order_free_dim: int | None,
) -> Fault | OutputError:
    name = mine.facts.name
    own, values = native.array(), mine.array()
    true = lifted.array() if lifted is not None else own
    if true.shape != own.shape:
        true, lifted = own, None
    own, true, values = _ordered(order_free_dim, own, true, values)
    budget = error_budget(
        true,
        own if lifted is not None else None,
        dtype=native.facts.dtype,
        tolerance=tolerance,
        reduction_length=expected.reduction_length,
        stress=expected.stress,
    )
    return compare_values(name, true, own, values, budget)


def _check_exact(mine: Snapshot, native: Snapshot, lifted: Snapshot | None) -> Fault | None:
    """Equal to the reference's own run or, where rounding decides, to the float64 one."""
    values, own = mine.array(), native.array()
    right = agrees_exactly(values, own)
    if lifted is not None and lifted.facts.shape == native.facts.shape:
        right |= agrees_exactly(values, lifted.array())
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
        stress=expected.stress,
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


def _only_written(contract: Contract) -> list[str]:
    """The written arguments that are not returned as well."""
    returned = {o.alias_of for o in contract.outputs}
    return [name for name in contract.writes if name not in returned]


def _gap_fault(name: str, expected: Expected, got: CallResult) -> Fault | None:
    """Whether memory between the elements of a written argument was written."""
    mine = got.arguments[name]
    if _gaps(mine) == _gaps(Snapshot(mine.facts, expected.inputs[name])):
        return None
    return Fault("wrote between elements", f"argument {name}: memory between rows changed")


def _check_write(
    name: str, tolerance: Tolerance, expected: Expected, got: CallResult
) -> Fault | OutputError | None:
    """A declared write's values; integers are exact, but for what caches are quantised to."""
    mine, native = got.arguments[name], expected.native.arguments[name]
    lifted = expected.lifted.arguments[name] if expected.lifted is not None else None
    dtype = DType(native.facts.dtype)
    if not (dtype.is_floating or dtype in (DType.INT8, DType.UINT8)):
        return _check_exact(mine, native, lifted)
    result = _check_values(mine, native, lifted, tolerance, expected, None)
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


def _view(snapshot: Snapshot) -> tuple[object, ...]:
    facts = snapshot.facts
    return (facts.shape, facts.strides, facts.offset)
