"""For which arguments a traced graph holds, as a Python function over the arguments.

The reference's own branches on sizes appear as guards of the shape environment. Guards that
every size of two and more satisfies come from torch's treatment of sizes 0 and 1 (broadcasting,
contiguity); ``tracing.holds_for_one`` decides whether they may be dropped.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from .workloads import Group, GroupTensor, Scalar

if TYPE_CHECKING:
    from .tracing import TracedGraph

_PROBES = (2, 3, 4, 5, 6, 7, 8, 11, 16, 31, 32, 64, 100, 127, 128, 1024, 4099, 2**20)


def conditions_on_symbols(traced: TracedGraph, *, one_is_fine: bool) -> list[str]:
    """The guards that an argument's sizes must satisfy, as Python over the group's symbols."""
    kept: list[str] = []
    for guard in traced.guards():
        if not _is_about_zero_and_one(guard, sorted(traced.symbols)) and guard not in kept:
            kept.append(guard)
    if not one_is_fine:
        kept += [f"{symbol} >= 2" for symbol in traced.symbols]
    return kept


def _is_about_zero_and_one(guard: str, symbols: Sequence[str]) -> bool:
    return all(
        _is_true(guard, {s: probe + 3 * i for i, s in enumerate(symbols)}) for probe in _PROBES
    )


def _is_true(condition: str, sizes: Mapping[str, int]) -> bool:
    return bool(eval(condition, {"__builtins__": {}, "math": math}, dict(sizes)))  # noqa: S307


def holds_for(conditions: Sequence[str], group: Group, workload_index: int) -> bool:
    """Whether the sizes of one of the group's workloads satisfy ``conditions``."""
    sizes = {name: values[workload_index] for name, values in group.symbols.items()}
    return all(_is_true(c, sizes) for c in conditions)


def supports_function(
    name: str, parameters: Sequence[str], group: Group, conditions: Sequence[str]
) -> str:
    """Source of a function that tells whether its arguments are of the group's kind."""
    lines = [
        f"def {name}({', '.join(parameters)}):",
        '    """Whether the arguments are of the kind that the kernels were generated for."""',
    ]
    checks = [_scalar_check(n, v) for n, v in group.scalars.items()]
    bound: dict[str, str] = {}
    tensor_checks: list[str] = []
    for tensor in group.tensors:
        tensor_checks += _tensor_checks(tensor, bound)
    tensor_checks += list(conditions)
    kinds = [
        f"isinstance({t.name}, torch.Tensor) and {t.name}.dim() == {len(t.dimensions)}"
        for t in group.tensors
    ]
    first = _joined(checks + kinds)
    if not bound:
        return "\n".join([*lines, *_returned(checks + kinds + tensor_checks)])
    lines += [f"    if not ({first}):", "        return False"]
    lines += [f"    {symbol} = {extent}" for symbol, extent in bound.items()]
    return "\n".join([*lines, *_returned(tensor_checks)])


def _returned(checks: Sequence[str]) -> list[str]:
    return ["    return (", f"        {_joined(checks)}", "    )"]


def _joined(checks: Sequence[str]) -> str:
    return "\n        and ".join(checks) if checks else "True"


def _scalar_check(name: str, value: Scalar) -> str:
    if value is None or isinstance(value, bool):
        return f"{name} is {value}"
    return f"{name} == {value!r}"


def _tensor_checks(tensor: GroupTensor, bound: dict[str, str]) -> list[str]:
    name = tensor.name
    if tensor.alias_of is not None:
        return [f"{name}.data_ptr() == {tensor.alias_of}.data_ptr()"]
    for position, dimension in enumerate(tensor.dimensions):
        if dimension.symbol is not None:
            bound.setdefault(dimension.symbol, f"{name}.shape[{position}]")
    extents = [d.symbol or str(d.size) for d in tensor.dimensions]
    shape = f"({', '.join(extents)}{',' if len(extents) == 1 else ''})"
    checks = [f"{name}.dtype == torch.{tensor.dtype}", f"{name}.shape == {shape}"]
    if tensor.strides is None:
        return [*checks, f"{name}.is_contiguous()"]
    return [*checks, f"{name}.stride() == {tensor.strides!r}"]
