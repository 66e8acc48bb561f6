"""From what a KernelBench file showed to a problem.

Inputs keep their shapes, types and distribution; parameters and buffers become state, drawn
anew with every seed and loaded into reference and candidate alike. The contract (what is
returned and written) comes from running the reference, as for every extracted problem.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import psutil
from pydantic import ValidationError

from evaluator.correctness.intake import inspect_reference
from evaluator.errors import ReferenceFailed
from evaluator.problem import Entry, LoadedProblem, Origin, Problem, sha256_text
from evaluator.records import complaint
from evaluator.sandbox import Sandbox
from evaluator.workload import ArgumentValue, DType, TensorSpec, Values, Workload
from integrations.kernelbench.checkout import LICENCE, REPOSITORY, KernelBenchFile
from integrations.kernelbench.errors import NotCarried, TooLarge
from integrations.kernelbench.looking import Seen, SeenValue, look
from integrations.kernelbench.values import Structured, TensorFacts, fit_input, fit_state

ENTRY, CLASS, CANDIDATE = "forward", "Model", "ModelNew"
MEMORY_FACTOR = 24
"""Times the bytes of all arguments that judging takes at most: two seeds of inputs and
outputs, native and in float64, in the supervisor and in a worker each."""


@dataclass(frozen=True)
class Described:
    """How a file is called, before it is known what that does."""

    entry: Entry
    arguments: tuple[str, ...]
    state: tuple[str, ...]
    workload: Workload


def load_kernelbench(
    file: KernelBenchFile,
    *,
    device: str = "cpu",
    commit: str | None = None,
    most_bytes: int | None = None,
    sandbox: Sandbox | None = None,
) -> LoadedProblem:
    """Return ``file`` as a problem whose reference is its own text.

    Args:
        file: of a checkout.
        device: where its contract is found: ``cpu`` or ``cuda``.
        commit: of the checkout, for the origin.
        most_bytes: of all its arguments together; None leaves it to this machine's memory.
        sandbox: by default the machine's own choice.

    Raises:
        NotCarried: it cannot be a problem as it is.
        TooLarge: it could be, were it smaller.
        SandboxUnavailable: nothing is run without a sandbox.
    """
    text = _read(file.path)
    described = describe(look(text, sandbox))
    entry, workload = described.entry, described.workload
    arguments, state = described.arguments, described.state
    _check_size(workload, most_bytes)
    try:
        facts = inspect_reference(
            text, entry, arguments, state, [workload], device=device, sandbox=sandbox
        )
        return LoadedProblem(
            problem=Problem(
                id=file.id,
                origin=Origin(
                    repository=REPOSITORY,
                    commit=commit,
                    target=f"{file.place}::{CLASS}.{ENTRY}",
                    licence=LICENCE,
                ),
                entry=entry,
                arguments=arguments,
                state=state,
                contract=facts.contract(),
                workloads=(workload,),
                reference_sha256=sha256_text(text),
            ),
            reference_source=text,
        )
    except ValidationError as error:
        raise NotCarried(f"no problem can describe it: {complaint(error)}") from error
    except ReferenceFailed as error:
        raise NotCarried(str(error)) from error


def describe(seen: Seen) -> Described:
    """Return how the file is called, from what it showed.

    Raises:
        NotCarried: with what no problem can describe.
    """
    state = {s.name.replace(".", "__"): s for s in seen.state}
    arguments = _argument_names(seen, taken=set(state))
    values: dict[str, ArgumentValue] = {
        **{n: _input(n, v) for n, v in zip(arguments, seen.inputs, strict=True)},
        **{n: _state(s.name, s.tensor, parameter=s.parameter) for n, s in state.items()},
    }
    try:
        return Described(
            entry=_entry(seen),
            arguments=arguments,
            state=tuple(state),
            workload=Workload(name="kernelbench", arguments=values),
        )
    except ValidationError as error:
        raise NotCarried(f"no problem can describe it: {complaint(error)}") from error


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise NotCarried(f"{path} cannot be read: {error}") from error


def _entry(seen: Seen) -> Entry:
    if seen.constructor is None:
        raise NotCarried(f"it is constructed with more than plain values: {seen.constructor_told}")
    if seen.shares_state:
        raise NotCarried("two of its parameters or buffers are one tensor")
    return Entry(
        function=ENTRY,
        class_name=CLASS,
        candidate_function=CANDIDATE,
        constructor=seen.constructor,
    )


def _argument_names(seen: Seen, *, taken: set[str]) -> tuple[str, ...]:
    """The names that ``forward`` has for its inputs, unlike those of the state."""
    if len(seen.inputs) > len(seen.argument_names):
        raise NotCarried(
            f"it is called with {len(seen.inputs)} inputs, and forward names "
            f"{len(seen.argument_names)}"
        )
    names = seen.argument_names[: len(seen.inputs)]
    return tuple(f"input_{n}" if n in taken else n for n in names)


def _input(name: str, value: SeenValue) -> ArgumentValue:
    if value.other is not None:
        raise NotCarried(f"input {name} is a {value.other}, not a tensor or a plain value")
    if value.tensor is None:
        return value.scalar
    try:
        return _spec(name, value.tensor, fit_input(_known(name, value.tensor)))
    except Structured as error:
        raise NotCarried(f"input {name} {error}") from error


def _state(name: str, facts: TensorFacts, *, parameter: bool) -> TensorSpec:
    try:
        return _spec(name, facts, fit_state(_known(name, facts), parameter=parameter))
    except Structured as error:
        raise NotCarried(f"buffer {name} {error}") from error


def _known(name: str, facts: TensorFacts) -> TensorFacts:
    if not facts.plain or facts.dtype not in set(DType):
        raise NotCarried(f"{name} is a tensor of {facts.dtype} that cannot be compared")
    return facts


def _spec(name: str, facts: TensorFacts, values: Values) -> TensorSpec:
    if facts.device != "cpu":
        raise NotCarried(f"{name} lies on {facts.device}")
    return TensorSpec(
        shape=facts.shape, dtype=DType(facts.dtype), strides=facts.strides, values=values
    )


def _check_size(workload: Workload, most_bytes: int | None) -> None:
    if most_bytes is not None and workload.total_bytes > most_bytes:
        raise TooLarge(
            f"its arguments take {workload.total_bytes / 2**30:.2f} GiB, and at most "
            f"{most_bytes / 2**30:.2f} GiB were asked for"
        )
    memory = psutil.virtual_memory().total
    if MEMORY_FACTOR * workload.total_bytes > memory:
        raise TooLarge(
            f"its arguments take {workload.total_bytes / 2**30:.1f} GiB; to compare it in float64 "
            f"needs up to {MEMORY_FACTOR} times as much, and there are {memory / 2**30:.0f} GiB"
        )
