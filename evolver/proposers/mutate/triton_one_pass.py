"""A reduction that loops over a row becomes one that holds the whole row at once.

The loop's tile grows to the power of two that covers the row, so that each loop runs once and
its body stands alone; what the later loops loaded again is then taken from registers. It is
offered where every access along the tile is masked (the tile may grow) and every loop over
the tile spans the same range. A row too long for one block does not compile.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import libcst as cst
import libcst.matchers as m

from evolver.proposers.mutate.operators import Option
from evolver.proposers.mutate.triton_forward import reuse
from evolver.proposers.mutate.triton_launch import MAX_TILE
from evolver.proposers.mutate.triton_source import (
    Launch,
    NodeEdit,
    TritonSource,
    find_tl_calls,
    integer,
    is_tl_call,
    names_in,
    parse_triton,
)
from evolver.proposers.mutate.triton_tensors import (
    arguments_of,
    exclusive_parameters,
    traffic_of,
)
from evolver.proposers.mutate.triton_tiles import movable_tiles


def one_pass_options(source: str) -> list[Option]:
    """Hold whole rows in one block instead of looping over them."""
    parsed = parse_triton(source)
    options: list[Option] = []
    for name, kernel in parsed.kernels.items():
        if traffic_of(parsed, kernel) is None:
            continue
        for tile in movable_tiles(kernel):
            edits = _edits(parsed, kernel, tile.name) if tile.axis is None and tile.masked else {}
            if edits:
                description = f"one pass over whole rows in {name}"
                options.append(Option(description, partial(parsed.replace, edits)))
    return options


def _edits(parsed: TritonSource, kernel: cst.FunctionDef, tile: str) -> dict[cst.CSTNode, NodeEdit]:
    loops = _loops_over(kernel, tile)
    extents = {parsed.text(_bounds(loop)[1]) for loop in loops}
    if not loops or len(extents) != 1:
        return {}
    extent = _constant(kernel, _bounds(loops[0])[1])
    launches = [launch for launch in parsed.launches if launch.kernel == kernel.name.value]
    sizes = [_size(parsed, launch, kernel, extent) for launch in launches]
    edits: dict[cst.CSTNode, NodeEdit] = {kernel: lambda _: _flattened(parsed, kernel, loops)}
    for launch, size in zip(launches, sizes, strict=True):
        argument = launch.keyword(tile)
        if argument is None or size is None:
            return {}
        edits[argument.value] = partial(_expression, size)
    return edits


def _expression(text: str, _: cst.CSTNode) -> cst.BaseExpression:
    return cst.parse_expression(text)


def _loops_over(kernel: cst.FunctionDef, tile: str) -> Sequence[cst.For]:
    """Return the loops ``for i in range(0, N, TILE)``; none where the tile drives others too."""
    loops = [cst.ensure_type(n, cst.For) for n in m.findall(kernel.body, m.For())]
    driven = [loop for loop in loops if tile in names_in(loop.iter)]
    plain = [loop for loop in driven if _is_plain(loop, tile)]
    nested = any(m.findall(loop.body, m.For()) for loop in plain)
    return plain if len(plain) == len(driven) and not nested else ()


def _is_plain(loop: cst.For, tile: str) -> bool:
    call = loop.iter
    if not isinstance(call, cst.Call) or not isinstance(loop.target, cst.Name):
        return False
    if not (is_tl_call(call, "range") or m.matches(call.func, m.Name("range"))):
        return False
    positional = [a.value for a in call.args if a.keyword is None]
    return (
        len(positional) == 3
        and integer(positional[0]) == 0
        and m.matches(positional[2], m.Name(tile))
        and loop.orelse is None
        and not find_tl_calls(loop.body, "dot")
    )


def _bounds(loop: cst.For) -> tuple[cst.BaseExpression, cst.BaseExpression]:
    call = cst.ensure_type(loop.iter, cst.Call)
    return call.args[0].value, call.args[1].value


def _constant(kernel: cst.FunctionDef, extent: cst.BaseExpression) -> cst.BaseExpression:
    """Return the literal that the variable ``extent`` holds, or ``extent`` itself."""
    if not isinstance(extent, cst.Name):
        return extent
    target = m.Assign(targets=[m.AssignTarget(target=m.Name(extent.value))])
    values = [cst.ensure_type(a, cst.Assign).value for a in m.findall(kernel.body, target)]
    return values[0] if len(values) == 1 and integer(values[0]) is not None else extent


def _size(
    parsed: TritonSource, launch: Launch, kernel: cst.FunctionDef, extent: cst.BaseExpression
) -> str | None:
    """Return the tile's size in the launch, as text; None where the row cannot be held."""
    length = integer(extent)
    if length is None:
        arguments = arguments_of(launch, kernel)
        if arguments is None or not isinstance(extent, cst.Name) or extent.value not in arguments:
            return None
        host = arguments[extent.value].value
        length = integer(host)
        if length is None:
            return f"triton.next_power_of_2({parsed.text(host)})"
    return str(1 << (length - 1).bit_length()) if 1 <= length <= MAX_TILE else None


def _flattened(
    parsed: TritonSource, kernel: cst.FunctionDef, loops: Sequence[cst.For]
) -> cst.FunctionDef:
    flat = cst.ensure_type(kernel.visit(_Flatten(loops)), cst.FunctionDef)
    return reuse(flat, exclusive_parameters(parsed, kernel))


class _Flatten(cst.CSTTransformer):
    """Puts the body of each loop in the loop's place, its variable at the start."""

    def __init__(self, loops: Sequence[cst.For]) -> None:
        super().__init__()
        self._loops = loops

    def leave_For(
        self, original_node: cst.For, updated_node: cst.For
    ) -> cst.For | cst.FlattenSentinel[cst.BaseStatement]:
        """Replace one of the loops."""
        if not any(loop is original_node for loop in self._loops):
            return updated_node
        name = cst.ensure_type(updated_node.target, cst.Name).value
        start = cst.ensure_type(cst.parse_statement(f"{name} = 0"), cst.SimpleStatementLine)
        body = cst.ensure_type(updated_node.body, cst.IndentedBlock).body
        return cst.FlattenSentinel([start, *(s for s in body if isinstance(s, cst.BaseStatement))])
