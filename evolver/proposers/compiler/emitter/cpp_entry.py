"""The Python side of a ``cpp`` candidate: constants, conditions and the entry function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import sympy

from .cpp_expression import Untranslatable
from .cpp_module import Piece
from .cpp_source import CleanKernel
from .tracing import ReturnedValue, TracedGraph
from .workloads import GroupTensor, Request

_INDENT = "    "


@dataclass(frozen=True)
class GroupCode:
    """One group of workloads with its code."""

    traced: TracedGraph
    piece: Piece
    symbols: Mapping[str, str]
    """The name of each of the group's symbols."""
    conditions: tuple[str, ...]


def conditions_of(traced: TracedGraph, symbols: Mapping[str, str]) -> tuple[str, ...]:
    """Python expressions over parameters and symbols that must hold for the graph to serve.

    Raises:
        Untranslatable: the trace assumed something about sizes that has no plain text.
    """
    found: list[str] = []
    for tensor in traced.group.tensors:
        found.extend(_tensor_conditions(tensor, traced, symbols))
    for name, value in traced.group.scalars.items():
        same = "is" if value is None or isinstance(value, bool) else "=="
        found.append(f"{name} {same} {value!r}")
    by_symbol = {traced.symbols[s]: name for s, name in symbols.items()}
    found.extend(_guard(g, by_symbol) for g in traced.guards() if g != sympy.true)
    return tuple(dict.fromkeys(found))


def _tensor_conditions(
    tensor: GroupTensor, traced: TracedGraph, symbols: Mapping[str, str]
) -> list[str]:
    name = tensor.name
    if tensor.alias_of is not None:
        return [f"{name}.data_ptr() == {tensor.alias_of}.data_ptr()"]
    extents = [symbols[d.symbol] if d.symbol else str(d.size) for d in tensor.dimensions]
    conditions = [f"{name}.shape == {_tuple(extents)}", f"{name}.dtype == torch.{tensor.dtype}"]
    if tensor.strides is not None:
        conditions.append(f"{name}.stride() == {_tuple([str(s) for s in tensor.strides])}")
    elif name in _kept_in_place(traced):
        conditions.append(f"{name}.is_contiguous()")
    return conditions


def _kept_in_place(traced: TracedGraph) -> set[str]:
    """Arguments that a copy would not do for: written, or returned themselves."""
    return {*traced.written, *(r.argument for r in traced.returns if r.argument)}


def _tuple(items: Sequence[str]) -> str:
    return f"({', '.join(items)}{',' if len(items) == 1 else ''})"


_RELATIONS = {
    sympy.Eq: "==",
    sympy.Ne: "!=",
    sympy.StrictLessThan: "<",
    sympy.LessThan: "<=",
    sympy.StrictGreaterThan: ">",
    sympy.GreaterThan: ">=",
}


def _guard(guard: sympy.Basic, names: Mapping[sympy.Symbol, str]) -> str:
    relation = _RELATIONS.get(type(guard))
    if relation is None:
        raise Untranslatable(f"the trace assumed {guard} about the sizes")
    left, right = (_sized(a, names) for a in guard.args)
    return f"{left} {relation} {right}"


def _sized(expression: sympy.Basic, names: Mapping[sympy.Symbol, str]) -> str:
    if not expression.atoms(sympy.Function) <= set() or not expression.free_symbols <= set(names):
        raise Untranslatable(f"the trace assumed something of {expression}")
    return str(expression.xreplace({s: sympy.Symbol(n) for s, n in names.items()}))


def write_entry(
    request: Request, groups: Sequence[GroupCode], source: str, header: str
) -> str:
    """Return the whole module."""
    parts = [f'"""{header}"""\n\nimport torch\n']
    functions = [f for g in groups for f in g.piece.functions]
    parts.append(f'SOURCE = r"""\n{source}"""\n')
    parts.append(_signatures(functions))
    parameters = ", ".join(request.parameters)
    if len(groups) == 1:
        parts += ["", *_single(request.candidate_function, parameters, groups[0])]
    else:
        parts += ["", *_dispatch(request.candidate_function, parameters, groups)]
    return "\n".join(parts) + "\n"


def _signatures(functions: Sequence[CleanKernel]) -> str:
    lines = ["SIGNATURES = {"]
    for function in functions:
        types = _tuple([f'"{_c_type(kind)}"' for kind, _ in function.parameters])
        single = f'{_INDENT}"{function.name}": {types},'
        if len(single) <= 100:
            lines.append(single)
            continue
        lines.append(f'{_INDENT}"{function.name}": (')
        lines += [f'{_INDENT * 2}"{_c_type(kind)}",' for kind, _ in function.parameters]
        lines.append(f"{_INDENT}),")
    return "\n".join([*lines, "}"]) + "\n"


def _c_type(kind: str) -> str:
    return kind.replace("bfloat16", "uint16_t").replace("half", "uint16_t")


def _single(name: str, parameters: str, group: GroupCode) -> list[str]:
    return [
        *_fits("_fits", parameters, group),
        "",
        "",
        f"def {name}({parameters}):",
        f"{_INDENT}if not _fits({parameters}):",
        f"{_INDENT * 2}raise NotImplementedError({_refusal(name)!r})",
        *_body(group),
    ]


def _dispatch(name: str, parameters: str, groups: Sequence[GroupCode]) -> list[str]:
    lines: list[str] = []
    for number, group in enumerate(groups):
        lines += [*_fits(f"_fits{number}", parameters, group), "", ""]
        lines += [f"def _case{number}({parameters}):", *_body(group), "", ""]
    lines.append(f"def {name}({parameters}):")
    # A layout with strides of its own is asked for before one that a copy brings about.
    special = [n for n, g in enumerate(groups) if any(".stride()" in c for c in g.conditions)]
    order = special + [n for n in range(len(groups)) if n not in special]
    for number in order:
        lines.append(f"{_INDENT}if _fits{number}({parameters}):")
        lines.append(f"{_INDENT * 2}return _case{number}({parameters})")
    return [*lines, f"{_INDENT}raise NotImplementedError({_refusal(name)!r})"]


def _refusal(name: str) -> str:
    return f"{name} was compiled for other shapes, types or options than these"


def _fits(name: str, parameters: str, group: GroupCode) -> list[str]:
    lines = [f"def {name}({parameters}):"]
    lines.append(f'{_INDENT}"""Whether the kernels were made for such arguments."""')
    for symbol, (owner, position, rank) in _owners(group).items():
        value = f"{owner}.shape[{position}] if {owner}.dim() == {rank} else -1"
        lines.append(f"{_INDENT}{group.symbols[symbol]} = {value}")
    lines.append(f"{_INDENT}return (")
    for number, condition in enumerate(group.conditions):
        lines.append(f"{_INDENT * 2}{'and ' if number else ''}{condition}")
    return [*lines, f"{_INDENT})"]


def _owners(group: GroupCode) -> dict[str, tuple[str, int, int]]:
    """For each symbol the first tensor and dimension that has it, and the tensor's rank."""
    owners: dict[str, tuple[str, int, int]] = {}
    for tensor in group.traced.group.tensors:
        for position, dimension in enumerate(tensor.dimensions):
            if dimension.symbol is not None:
                place = (tensor.name, position, len(tensor.dimensions))
                owners.setdefault(dimension.symbol, place)
    return owners


def _body(group: GroupCode) -> list[str]:
    traced = group.traced
    lines: list[str] = []
    for symbol, (owner, position, _) in _owners(group).items():
        lines.append(f"{group.symbols[symbol]} = {owner}.shape[{position}]")
    fixed = _kept_in_place(traced)
    for tensor in traced.group.tensors:
        is_copied = tensor.strides is None and tensor.alias_of is None
        if is_copied and tensor.name not in fixed:
            lines.append(f"{tensor.name} = {tensor.name}.contiguous()")
    lines += group.piece.body
    returned = [_returned(r, group.piece) for r in traced.returns]
    if traced.returns_tuple:
        lines.append(f"return {_tuple(returned)}")
    else:
        lines.append(f"return {returned[0]}")
    return [_INDENT + line for text in lines for line in text.splitlines()]


def _returned(value: ReturnedValue, piece: Piece) -> str:
    if value.argument is not None:
        return value.argument
    if value.graph_output is not None:
        return piece.outputs[value.graph_output]
    return repr(value.constant)
