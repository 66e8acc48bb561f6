"""Whether a reference computes what the original does: the same seeds through both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.extraction.targets import BenchTarget
from evaluator.client import Call, Client
from evaluator.correctness.contract import same_bits
from evaluator.problem import Contract, LoadedProblem
from evaluator.session import RequestFailed, Role, Session, WorkerOptions
from evaluator.tensors import Array, CallResult, Snapshot
from evaluator.workload import DType

PROBES = Path(__file__).resolve().parents[2] / "integrations" / "probe"
_WRITTEN = Path(__file__).with_name("written.py")
_SEEDS = (1, 2, 3)
_IMPORT_SECONDS = 600.0
_CALL_SECONDS = 120.0
_SPACINGS = 8
"""Rounded results may lie this many units in the last place of the largest element apart."""
_UNIT = {
    DType.FLOAT64: 2.0**-52,
    DType.FLOAT32: 2.0**-23,
    DType.FLOAT16: 2.0**-10,
    DType.BFLOAT16: 2.0**-7,
}


@dataclass(frozen=True)
class Likeness:
    """How alike two functions are over all workloads and seeds."""

    equal: bool
    bitwise: bool
    calls: int
    difference: str | None = None

    @property
    def told(self) -> str:
        """One phrase."""
        if self.difference is not None:
            return self.difference
        return f"{'bit for bit' if self.bitwise else 'within rounding'} over {self.calls} calls"

    def as_row(self) -> dict[str, Any]:
        """For the result's details."""
        return {k: v for k, v in asdict(self).items() if v is not None}


def original_source(loaded: LoadedProblem, target: BenchTarget, repo: Path) -> str:
    """Return a module whose ``original`` is the repository's own function."""
    problem = loaded.problem
    path, _, qualname = problem.origin.target.partition("::")
    lists: dict[str, int] = {
        name: len(value)
        for name, value in target.inputs["arguments"].items()
        if isinstance(value, list)
    }
    given = {
        "arguments": problem.arguments,
        "state": problem.state,
        "lists": lists,
        "constructor": problem.entry.constructor,
        "bound": target.original.set,
        "attributes": target.original.attributes,
        "module_values": target.original.globals,
    }
    module = path.removesuffix(".py").replace("/", ".")
    return (
        f"import sys\nsys.path.insert(0, {str(PROBES)!r})\nimport originals\n"
        f"original = originals.original({str(repo.resolve())!r}, {module!r}, {qualname!r},"
        f" **{given!r})\n"
    )


def written_source(function: str) -> str:
    """Return a module whose ``original`` was written by hand."""
    return f"{_WRITTEN.read_text(encoding='utf-8')}\n\noriginal = {function}\n"


def compare(loaded: LoadedProblem, other: str, folders: Sequence[Path]) -> Likeness:
    """Run the problem's reference and ``other`` side by side.

    Args:
        loaded: the problem.
        other: a module that defines ``original``, taking arguments and state by position.
        folders: what the sandbox of ``other`` may read.
    """
    from evaluator.sandbox.select import select_sandbox

    problem, entry = loaded.problem, loaded.problem.entry
    names, writes = (problem.arguments, problem.state), problem.contract.writes
    theirs = Call("original", None, *names, writes=writes)
    ours = Call(entry.function, entry.class_name, *names, entry.constructor, writes)
    eager = (("TORCHDYNAMO_DISABLE", "1"),)
    options = WorkerOptions(
        Role.REFERENCE,
        threads=1,
        folders=(PROBES, *(f.resolve() for f in folders)),
        variables=eager,
    )
    sandbox = select_sandbox()
    with (
        Session(sandbox, WorkerOptions(Role.REFERENCE, threads=1)) as one,
        Session(sandbox, options) as two,
    ):
        pair = [Client(s, device="cpu", threads=1, cores=()) for s in (one, two)]
        try:
            for client, source, call in zip(
                pair, (loaded.reference_source, other), (ours, theirs), strict=True
            ):
                client.session.ready(_IMPORT_SECONDS)
                client.load(source, call, seconds=_IMPORT_SECONDS)
            calls = 0
            bitwise = True
            for workload in problem.workloads:
                for seed in _SEEDS:
                    a, b = (c.run(workload, seed, seconds=_CALL_SECONDS) for c in pair)
                    fault = difference(problem.contract, a, b)
                    if fault is not None:
                        return Likeness(
                            False, False, calls, f"{workload.name}, seed {seed}: {fault}"
                        )
                    bitwise = bitwise and same_bits(a, b)
                    calls += 1
        except RequestFailed as error:
            return Likeness(False, False, 0, f"not run: {error}"[:500])
    return Likeness(True, bitwise, calls)


def difference(contract: Contract, one: CallResult, other: CallResult) -> str | None:
    """Return the first way in which two calls differ, None where rounding explains them."""
    if len(one.outputs) != len(other.outputs):
        return f"{len(one.outputs)} outputs against {len(other.outputs)}"
    dims = [o.order_free_dim for o in contract.outputs]
    for number, (a, b, dim) in enumerate(zip(one.outputs, other.outputs, dims, strict=True)):
        fault = _apart(a, b, dim)
        if fault is not None:
            return f"output {number} {fault}"
    for name in one.arguments:
        fault = _apart(one.arguments[name], other.arguments[name], None)
        if fault is not None:
            return f"argument {name} {fault} after the call"
    return None


def _apart(one: Snapshot, other: Snapshot, dim: int | None) -> str | None:
    if one.facts.dtype != other.facts.dtype or one.facts.shape != other.facts.shape:
        a, b = ((s.facts.dtype, s.facts.shape) for s in (one, other))
        return f"is {a} against {b}"
    left, right = (_ordered(s.array(), dim) for s in (one, other))
    if np.array_equal(left, right, equal_nan=True):
        return None
    unit = _UNIT.get(DType(one.facts.dtype))
    if unit is None:
        return f"differs in {int((left != right).sum())} of {left.size} elements"
    finite = np.isfinite(left)
    largest = float(np.abs(left[finite]).max(initial=0.0))
    if not np.array_equal(left[~finite], right[~finite], equal_nan=True):
        return "differs in infinities or NaN"
    apart = float(np.abs(left[finite].astype(np.float64) - right[finite]).max(initial=0.0))
    return None if apart <= _SPACINGS * unit * largest else f"is {apart:.3g} off at {largest:.3g}"


def _ordered(values: Array, dim: int | None) -> Array:
    return values if dim is None else np.sort(values, axis=dim)
