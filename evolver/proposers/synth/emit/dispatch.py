"""Several row programs behind one function: which arguments each was made for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from evolver.proposers.synth.aten import AtenGroup
from evolver.proposers.synth.emit.call import head_lines, indented
from evolver.proposers.synth.emit.reference import Reference
from evolver.proposers.synth.emit.scopes import EmitError
from evolver.proposers.synth.plan import Plan


@dataclass(frozen=True)
class Variant:
    """A plan, and the group of workloads that it serves; None where it serves all."""

    plan: Plan
    group: AtenGroup | None = None


def entry(
    reference: Reference, bodies: Sequence[Sequence[str]], variants: Sequence[Variant]
) -> str:
    """Return the entry function: the one body, or a choice between functions of their own.

    Raises:
        EmitError: nothing tells two groups apart.
    """
    parameters = reference.parameters
    if len(bodies) == 1:
        return _function(reference.function, parameters, bodies[0])
    texts, lines = [], []
    checks = _telling(variants)
    for number, (body, check) in enumerate(zip(bodies, checks, strict=True), 1):
        name = f"_{reference.function}_{number}"
        texts.append(_function(name, parameters, body))
        lines += [f"if {check}:", f"    return {name}({', '.join(parameters)})"]
    lines.append('raise ValueError("there is no kernel for these arguments")')
    return "\n\n\n".join([*texts, _function(reference.function, parameters, lines)])


def _function(name: str, parameters: Sequence[str], body: Sequence[str]) -> str:
    head = head_lines(f"def {name}(", parameters, end="):")
    return "\n".join([*head, *indented(body)])


def _telling(variants: Sequence[Variant]) -> list[str]:
    """Per group the conditions that differ between groups."""
    all_checks = [_checks(v) for v in variants]
    common = set.intersection(*(set(checks) for checks in all_checks))
    telling = [[c for c in checks if c not in common] for checks in all_checks]
    if len({tuple(sorted(t)) for t in telling}) != len(telling) or not all(telling):
        raise EmitError("nothing but the layout tells two groups of workloads apart")
    return [" and ".join(checks) for checks in telling]


def _checks(variant: Variant) -> list[str]:
    if variant.group is None:
        raise EmitError("several programs, and no workloads to tell them apart")
    scalars = [
        f"{name} is {value}" if value is None or isinstance(value, bool) else f"{name} == {value!r}"
        for name, value in variant.group.scalars.items()
    ]
    kinds, shapes = [], []
    for t in variant.group.tensors:
        kinds += [f"isinstance({t.name}, torch.Tensor)", f"{t.name}.dtype is torch.{t.dtype.value}"]
        kinds.append(f"{t.name}.dim() == {len(t.dimensions)}")
        for axis, dimension in enumerate(t.dimensions):
            if dimension.symbol is None:
                shapes.append(f"{t.name}.shape[{axis}] == {dimension.size}")
    return [*scalars, *kinds, *shapes]
