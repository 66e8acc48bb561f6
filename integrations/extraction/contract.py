"""The contract: what running the reference shows, what its code suggests, what the user knows.

In that order, the later overruling the earlier.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import ValidationError

from evaluator.correctness.intake import ReferenceFacts
from evaluator.problem import Assumption, Contract, Output, OutputKind
from evaluator.records import complaint
from integrations.errors import WorkloadsError
from integrations.extraction.selections import Tags
from integrations.workloads import ContractOverride


def build_contract(
    facts: ReferenceFacts, tags: tuple[Tags, ...], override: ContractOverride
) -> tuple[Contract, list[Assumption]]:
    """Return the contract and what was assumed about the outputs.

    Raises:
        WorkloadsError: the user's override names an output that does not exist, or contradicts
            itself.
    """
    observed = facts.contract()
    writes = observed.writes if override.writes is None else override.writes
    writes = tuple(dict.fromkeys((*writes, *override.seen_writes)))
    outputs = list(observed.outputs)
    if observed.returns_none:  # what was not seen to be written is exact, unless the user knows
        seen = {o.alias_of: o for o in outputs}
        outputs = [seen.get(n, Output(kind=OutputKind.EXACT, alias_of=n)) for n in writes]
    assumptions: list[Assumption] = []
    if len(tags) == len(outputs):
        outputs = _with_selections(outputs, tags, assumptions)
    for number, change in override.outputs.items():
        if not 0 <= number < len(outputs):
            raise WorkloadsError(
                f"contract.outputs names output {number}; the reference returns {len(outputs)}"
            )
        outputs[number] = _overridden(
            number, outputs[number], change.model_dump(exclude_unset=True)
        )
    missing = set(observed.writes) - set(writes)
    if missing:
        raise WorkloadsError(
            f"contract.writes leaves out {', '.join(sorted(missing))}, which the reference was "
            "seen to write"
        )
    changed = observed.model_copy(update={"outputs": tuple(outputs), "writes": writes})
    try:
        contract = Contract.model_validate(changed.model_dump())
    except ValidationError as error:
        raise WorkloadsError(f"contract: {complaint(error)}") from error
    return contract, assumptions


def unlike_code(
    writes: Sequence[str], seems: Sequence[str], arguments: Sequence[str]
) -> list[Assumption]:
    """Return, for the reviewer, where what running showed of writes is not what the code says."""
    unseen = [n for n in seems if n in arguments and n not in writes]
    hidden = [n for n in writes if n in arguments and n not in seems]
    told = (
        (unseen, "the code may write {}, and no workload showed it: such a write is not allowed"),
        (hidden, "{} was seen to be written, though the code does not show where"),
    )
    return [
        Assumption(kind="contract", detail=text.format(", ".join(names)))
        for names, text in told
        if names
    ]


def _with_selections(
    outputs: list[Output], tags: tuple[Tags, ...], assumptions: list[Assumption]
) -> list[Output]:
    changed = list(outputs)
    for number, output in enumerate(outputs):
        made = tags[number].indices
        if output.kind is not OutputKind.EXACT or not made:
            continue
        selects = next(
            (
                other
                for other, candidate in enumerate(outputs)
                if candidate.kind is OutputKind.VALUES and tags[other].selected & made
            ),
            None,
        )
        if selects is None:
            continue
        free = all(s.order_free for s in made)
        dim = next(iter(made)).dim if free else None
        changed[number] = Output(
            kind=OutputKind.INDICES, selects=selects, order_free_dim=dim, alias_of=output.alias_of
        )
        changed[selects] = changed[selects].model_copy(update={"order_free_dim": dim})
        order = f", in any order along dimension {dim}" if free else ""
        detail = f"output {number} holds the indices of the values in output {selects}{order}"
        line = min(s.line for s in made)
        assumptions.append(Assumption(kind="contract", detail=detail, line=line))
    return changed


def _overridden(number: int, output: Output, change: dict[str, object]) -> Output:
    merged = {**output.model_dump(), **change}
    if merged["kind"] != OutputKind.INDICES and "selects" not in change:
        merged["selects"] = None
    try:
        return Output.model_validate(merged)
    except ValueError as error:
        raise WorkloadsError(f"contract.outputs.{number}: {error}") from error
