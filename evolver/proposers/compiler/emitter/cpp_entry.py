"""The Python side of a ``cpp`` candidate: source, signatures and the entry function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .cpp_module import Piece
from .cpp_source import CleanKernel
from .guards import supports_function
from .layout import formatted
from .tracing import ReturnedValue, TracedGraph
from .workloads import Request

_INDENT = "    "


@dataclass(frozen=True)
class GroupCode:
    """One group of workloads with its code."""

    traced: TracedGraph
    piece: Piece
    symbols: Mapping[str, str]
    """What the code calls each of the group's symbols."""
    conditions: Sequence[str]
    """What must hold of the group's symbols for the code to serve."""


def write_module(request: Request, groups: Sequence[GroupCode], source: str, header: str) -> str:
    """Return the candidate: ``header`` as its docstring, ``source`` as its C++."""
    functions = [f for g in groups for f in g.piece.functions]
    parts = [f'"""{header}"""\n\nimport torch\n', f'SOURCE = r"""\n{source}"""\n']
    python = [_signatures(functions), *_entry(request, groups)]
    return "\n".join([*parts, formatted("\n".join(python))])


def _signatures(functions: Sequence[CleanKernel]) -> str:
    lines = ["SIGNATURES = {"]
    for function in functions:
        types = [f'"{_c_type(kind)}"' for kind, _ in function.parameters]
        trailing = "," if len(types) == 1 else ""
        lines.append(f'{_INDENT}"{function.name}": ({", ".join(types)}{trailing}),')
    return "\n".join([*lines, "}"]) + "\n"


def _c_type(kind: str) -> str:
    """16-bit floats cross as their bits."""
    return kind.replace("bfloat16", "uint16_t").replace("half", "uint16_t")


def _entry(request: Request, groups: Sequence[GroupCode]) -> list[str]:
    name, parameters = request.candidate_function, ", ".join(request.parameters)
    refusal = (
        f'{_INDENT}raise NotImplementedError("{name}: shapes, types or options without a kernel")'
    )
    if len(groups) == 1:
        return [
            "",
            _supports("_supports", request, groups[0]),
            *["", "", f"def {name}({parameters}):", f"{_INDENT}if not _supports({parameters}):"],
            _INDENT + refusal,
            *_body(groups[0]),
        ]
    lines: list[str] = [""]
    for number, group in enumerate(groups):
        lines += [_supports(f"_supports_{number}", request, group), "", ""]
        lines += [f"def _run_{number}({parameters}):", *_body(group), "", ""]
    lines.append(f"def {name}({parameters}):")
    for number in range(len(groups)):
        lines.append(f"{_INDENT}if _supports_{number}({parameters}):")
        lines.append(f"{_INDENT * 2}return _run_{number}({parameters})")
    return [*lines, refusal]


def _supports(name: str, request: Request, group: GroupCode) -> str:
    return supports_function(name, request.parameters, group.traced.group, group.conditions)


def _body(group: GroupCode) -> list[str]:
    lines = [f"{group.symbols[s]} = {place}" for s, place in _places(group).items()]
    lines += group.piece.body
    returned = [_returned(r, group.piece) for r in group.traced.returns]
    if group.traced.returns_tuple:
        lines.append(f"return ({', '.join(returned)}{',' if len(returned) == 1 else ''})")
    else:
        lines.append(f"return {returned[0]}")
    return [_INDENT + line for text in lines for line in text.splitlines()]


def _places(group: GroupCode) -> dict[str, str]:
    """For each symbol that the code mentions, the first extent that has it."""
    text = "\n".join((*group.piece.body, *group.piece.outputs))
    places: dict[str, str] = {}
    for tensor in group.traced.group.tensors:
        for position, dimension in enumerate(tensor.dimensions):
            symbol = dimension.symbol
            if symbol is not None and group.symbols[symbol] in text:
                places.setdefault(symbol, f"{tensor.name}.shape[{position}]")
    return places


def _returned(value: ReturnedValue, piece: Piece) -> str:
    if value.argument is not None:
        return value.argument
    if value.graph_output is not None:
        return piece.outputs[value.graph_output]
    return repr(value.constant)
