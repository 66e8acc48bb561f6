"""For which arguments a traced graph holds, as a Python function over the arguments.

The reference's own branches on sizes appear as guards of the shape environment. Guards that
every size of two and more satisfies come from torch's treatment of sizes 0 and 1 (broadcasting,
contiguity); ``tracing.holds_for_one`` decides whether they may be dropped.
"""

from __future__ import annotations

from collections.abc import Sequence

import sympy

from .tracing import TracedGraph
from .workloads import Group, GroupTensor, Scalar

_PROBES = (2, 3, 4, 5, 6, 7, 8, 11, 16, 31, 32, 64, 100, 127, 128, 1024, 4099, 2**20)


def conditions_on_symbols(traced: TracedGraph, *, one_is_fine: bool) -> list[sympy.Basic]:
    """The guards that an argument's sizes must satisfy, in the group's own symbols."""
    renamed = {v: sympy.Symbol(k, integer=True, positive=True) for k, v in traced.symbols.items()}
    kept: list[sympy.Basic] = []
    for guard in traced.guards():
        if _is_about_zero_and_one(guard):
            continue
        condition = guard.xreplace(renamed)
        if condition not in kept:
            kept.append(condition)
    if not one_is_fine:
        kept += [sympy.Ge(symbol, 2, evaluate=False) for symbol in renamed.values()]
    return kept


def _is_about_zero_and_one(guard: sympy.Basic) -> bool:
    symbols = sorted(guard.free_symbols, key=str)
    if not symbols:
        return True
    for probe in _PROBES:
        values = {s: probe + 3 * i for i, s in enumerate(symbols)}
        if guard.subs(values) != sympy.true:
            return False
    return True


def holds_for(conditions: Sequence[sympy.Basic], group: Group, workload_index: int) -> bool:
    """Whether the sizes of one of the group's workloads satisfy ``conditions``."""
    values = {
        sympy.Symbol(name, integer=True, positive=True): sizes[workload_index]
        for name, sizes in group.symbols.items()
    }
    return all(bool(c.subs(values)) for c in conditions)


def supports_function(
    name: str, parameters: Sequence[str], group: Group, conditions: Sequence[sympy.Basic]
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
    tensor_checks += [_python(c) for c in conditions]
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


def _python(condition: sympy.Basic) -> str:
    from torch.utils._sympy.printers import PythonPrinter

    return str(PythonPrinter().doprint(condition))


