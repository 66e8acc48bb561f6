"""What a reference is, found by running it in the sandbox: the facts of a contract.

Extraction asks this before it writes a problem, and the evaluator before it judges one. A
reference that cannot run a workload, returns what no contract can describe, or disagrees
with itself is refused with the workload's name and the cause.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evaluator.candidate import native_source
from evaluator.client import Call, Client, describe
from evaluator.correctness.contract import alias_of, changed_arguments, same_bits
from evaluator.errors import ReferenceFailed, WorkerLost
from evaluator.problem import Contract, Entry, Output, OutputKind
from evaluator.sandbox import Sandbox
from evaluator.session import RequestFailed, Role, Session, WorkerOptions
from evaluator.tensors import PLAIN_TENSOR, CallResult, input_storages, returning_arguments
from evaluator.worker.protocol import NOTHING
from evaluator.workload import DType, Workload
from policies.model import EvaluatorPolicy

_SEEDS = (11, 12)
"""Facts do not depend on values, so these need not be secret."""


@dataclass(frozen=True)
class OutputFacts:
    """One returned tensor, as the first workload showed it."""

    dtype: DType
    shape: tuple[int, ...]
    alias_of: str | None
    """The argument that is returned itself."""


@dataclass(frozen=True)
class ReferenceFacts:
    """What a contract says, as far as running can tell."""

    outputs: tuple[OutputFacts, ...]
    returns_tuple: bool
    returns_none: bool
    """Then the outputs are the written arguments."""
    writes: tuple[str, ...]
    deterministic: bool
    """Whether two runs on the same input gave the same bits, on every workload."""

    def contract(self) -> Contract:
        """The contract to start from: integers exact, everything else as values.

        Whether integers are indices, or an order is free, running cannot tell.
        """
        outputs = tuple(
            Output(
                kind=OutputKind.VALUES if o.dtype.is_floating else OutputKind.EXACT,
                alias_of=o.alias_of,
            )
            for o in self.outputs
        )
        return Contract(
            outputs=outputs,
            returns_tuple=self.returns_tuple,
            returns_none=self.returns_none,
            writes=self.writes,
        )


def inspect_reference(
    source: str,
    entry: Entry,
    arguments: Sequence[str],
    state: Sequence[str],
    workloads: Sequence[Workload],
    *,
    device: str = "cpu",
    sandbox: Sandbox | None = None,
    policy: EvaluatorPolicy | None = None,
) -> ReferenceFacts:
    """Run the reference twice per workload in a sandbox and report what it does.

    Args:
        source: the text of ``reference.py``.
        entry: what to call in it.
        arguments: its call arguments, in order.
        state: the attributes of ``self`` that it reads.
        workloads: at least one; all must agree on outputs, aliases and writes.
        device: ``cpu`` or ``cuda``.
        sandbox: by default the machine's own choice.
        policy: by default ``policies/default.yml``; its time limits apply.

    Raises:
        ReferenceFailed: with the workload and the cause.
        SandboxUnavailable: nothing is run without a sandbox.
    """
    policy = policy or EvaluatorPolicy.default()
    call = Call(entry.function, entry.class_name, tuple(arguments), tuple(state), entry.constructor)
    options = WorkerOptions(Role.REFERENCE, threads=1, gpu=device.startswith("cuda"))
    with Session(sandbox or _default_sandbox(), options) as session:
        client = Client(session, device=device, threads=1, cores=())
        load_reference(client, source, call, policy)
        facts = [_facts(client, workload, policy) for workload in workloads]
    first = facts[0]
    for workload, other in zip(workloads, facts, strict=True):
        if _signature(other) != _signature(first):
            raise ReferenceFailed(
                f"workloads {workloads[0].name!r} and {workload.name!r} disagree on the contract "
                f"({_signature(first)} against {_signature(other)}); a problem has one contract, "
                "so extract them as two problems"
            )
    return ReferenceFacts(
        outputs=first.outputs,
        returns_tuple=first.returns_tuple,
        returns_none=first.returns_none,
        writes=first.writes,
        deterministic=all(f.deterministic for f in facts),
    )


def load_reference(client: Client, source: str, call: Call, policy: EvaluatorPolicy) -> None:
    """Import the reference in a fresh worker, and compile it where it is native itself.

    Raises:
        ReferenceFailed: it cannot be imported or compiled, or lacks its entry.
    """
    limits = policy.limits
    build = client.reference_build if native_source(source) is not None else None
    try:
        client.session.ready(limits.start_seconds)
        client.load(
            source,
            call,
            build=build,
            compile_seconds=limits.compile_seconds,
            seconds=limits.import_seconds,
        )
    except RequestFailed as error:
        raise ReferenceFailed(f"reference.py cannot be imported: {describe(error)}") from error
    except WorkerLost as error:
        log = client.session.log_tail().strip().splitlines()
        last = f"; its last words: {log[-1]}" if log else ""
        raise ReferenceFailed(f"reference.py cannot be imported: {error}{last}") from error


def run_reference(
    client: Client, workload: Workload, seed: int, policy: EvaluatorPolicy
) -> CallResult:
    """Call the reference once in its own types.

    Raises:
        ReferenceFailed: with the workload and the cause.
    """
    try:
        result = client.run(workload, seed, seconds=policy.limits.call_seconds)
    except RequestFailed as error:
        raise ReferenceFailed(
            f"the reference cannot run workload {workload.name!r}: {describe(error)}; "
            "correct the workload in problem.yaml, or extract another function"
        ) from error
    except WorkerLost as error:
        raise ReferenceFailed(
            f"the reference did not survive workload {workload.name!r}: {error}"
        ) from error
    for output in result.outputs:
        if output.facts.type_name != PLAIN_TENSOR or not output.is_known_dtype:
            raise ReferenceFailed(
                f"workload {workload.name!r}: {output.facts.name} is {output.facts.type_name} of "
                f"{output.facts.dtype}; plain tensors of {', '.join(DType)} can be compared"
            )
    return result


def _facts(client: Client, workload: Workload, policy: EvaluatorPolicy) -> ReferenceFacts:
    results = [run_reference(client, workload, seed, policy) for seed in (*_SEEDS, _SEEDS[0])]
    first, _, again = results
    writes: set[str] = set()
    for seed, result in zip(_SEEDS, results[:2], strict=True):
        writes |= set(changed_arguments(input_storages(workload, seed), result))
    ordered = tuple(n for n in workload.arguments if n in writes)
    returns_none = first.container == NOTHING
    if returns_none and not ordered:
        raise ReferenceFailed(
            f"the reference returns None on workload {workload.name!r} and leaves every argument "
            "as it was: there is nothing to judge; give it values on which it writes something"
        )
    if returns_none:
        first = returning_arguments(first, ordered)
        again = returning_arguments(again, ordered)
    arguments = first.arguments
    return ReferenceFacts(
        outputs=tuple(
            OutputFacts(DType(o.facts.dtype), o.facts.shape, alias_of(o, arguments))
            for o in first.outputs
        ),
        returns_tuple=first.container not in ("tensor", NOTHING),
        returns_none=returns_none,
        writes=ordered,
        deterministic=same_bits(first, again),
    )


def _signature(facts: ReferenceFacts) -> tuple[object, ...]:
    """What must be the same in every workload; dtypes and shapes may differ."""
    aliases = tuple(o.alias_of for o in facts.outputs)
    return (aliases, facts.returns_tuple, facts.returns_none, facts.writes)


def _default_sandbox() -> Sandbox:
    from evaluator.sandbox.select import select_sandbox

    return select_sandbox()
