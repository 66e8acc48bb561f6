"""One launch becomes two: a kernel that stores to several tensors is split between them.

Each half keeps the stores to its own tensors and what these need; what both need is computed
twice. It is offered where no tensor is both read and written, so that the halves do not
depend on each other. Smaller kernels need fewer registers, and their tiles move separately.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import cast

import libcst as cst
import libcst.matchers as m

from evolver.proposers.mutate.operators import Option, fresh_name
from evolver.proposers.mutate.triton_forward import single_assignment
from evolver.proposers.mutate.triton_source import (
    Launch,
    NodeEdit,
    TritonSource,
    find_tl_calls,
    names_in,
    parse_triton,
)
from evolver.proposers.mutate.triton_tensors import base_of, exclusive_parameters, traffic_of

MAX_KERNELS = 12
"""Splitting stops here, so that programs do not grow without end."""


def fission_options(source: str) -> list[Option]:
    """Split one kernel between two of the tensors that it stores to."""
    parsed = parse_triton(source)
    if len(parsed.kernels) >= MAX_KERNELS:
        return []
    return [o for kernel in parsed.kernels.values() for o in _splits(parsed, kernel)]


def _splits(parsed: TritonSource, kernel: cst.FunctionDef) -> list[Option]:
    traffic = traffic_of(parsed, kernel)
    launches = [launch for launch in parsed.launches if launch.kernel == kernel.name.value]
    if traffic is None or len(traffic.writes) < 2 or not launches or m.findall(kernel, m.Return()):
        return []
    if not traffic.writes <= exclusive_parameters(parsed, kernel) - traffic.reads:
        return []
    alone = [_is_statement(parsed, launch) for launch in launches]
    if not all(alone):
        return []
    return [
        Option(
            f"{kernel.name.value} in two launches, one for {tensor}",
            partial(_build, parsed, kernel, launches, tensor, traffic.writes),
        )
        for tensor in sorted(traffic.writes)
    ]


def _is_statement(parsed: TritonSource, launch: Launch) -> bool:
    lines = m.findall(parsed.tree, m.SimpleStatementLine(body=[m.Expr(m.Call())]))
    return any(launch.call is _expression(line) for line in lines)


def _expression(line: cst.CSTNode) -> cst.BaseExpression:
    statement = cst.ensure_type(line, cst.SimpleStatementLine)
    return cst.ensure_type(statement.body[0], cst.Expr).value


def _build(
    parsed: TritonSource,
    kernel: cst.FunctionDef,
    launches: Sequence[Launch],
    tensor: str,
    writes: frozenset[str],
) -> str:
    name = fresh_name(f"{kernel.name.value}_{tensor.removesuffix('_ptr')}", names_in(parsed.tree))
    part = _keeping(kernel, frozenset({tensor})).with_changes(name=cst.Name(name))
    rest = _keeping(kernel, writes - {tensor})
    both = cst.FlattenSentinel[cst.CSTNode]([rest, part])
    edits: dict[cst.CSTNode, NodeEdit] = {kernel: lambda _: both}
    for line in m.findall(parsed.tree, m.SimpleStatementLine(body=[m.Expr(m.Call())])):
        if any(_expression(line) is launch.call for launch in launches):
            edits[line] = partial(_twice, name)
    return parsed.replace(edits)


def _twice(name: str, line: cst.CSTNode) -> cst.FlattenSentinel[cst.CSTNode]:
    call = cst.ensure_type(_expression(line), cst.Call)
    subscript = cst.ensure_type(call.func, cst.Subscript)
    other = call.with_changes(func=subscript.with_changes(value=cst.Name(name)))
    second = cst.SimpleStatementLine([cst.Expr(other)])
    return cst.FlattenSentinel([line, second])


def _keeping(kernel: cst.FunctionDef, tensors: frozenset[str]) -> cst.FunctionDef:
    """Return ``kernel`` with the stores to ``tensors`` alone, and what these need."""
    stores = find_tl_calls(kernel, "store")
    gone = {id(c) for c in stores if base_of(c.args[0].value, kernel) not in tensors}
    new = cst.ensure_type(kernel.visit(_Without(gone)), cst.FunctionDef)
    while True:
        swept = cst.ensure_type(new.visit(_Sweep(new)), cst.FunctionDef)
        if swept.deep_equals(new):
            return new
        new = swept


class _Without(cst.CSTTransformer):
    """Takes away the store statements whose calls are given by identity."""

    def __init__(self, calls: set[int]) -> None:
        super().__init__()
        self._calls = calls

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.SimpleStatementLine | cst.RemovalSentinel:
        """Remove one of the stores."""
        plain = m.matches(original_node, m.SimpleStatementLine(body=[m.Expr(m.Call())]))
        gone = plain and id(_expression(original_node)) in self._calls
        return cst.RemoveFromParent() if gone else updated_node


class _Sweep(cst.CSTTransformer):
    """Takes away assignments that nothing reads, and loops and branches that hold nothing."""

    def __init__(self, kernel: cst.FunctionDef) -> None:
        super().__init__()
        self._kernel = kernel

    def on_leave(
        self, original_node: cst.CSTNodeT, updated_node: cst.CSTNodeT
    ) -> cst.CSTNodeT | cst.RemovalSentinel | cst.FlattenSentinel[cst.CSTNodeT]:
        """Remove ``n = E`` where each mention of n lies in an assignment to n; empty blocks."""
        if isinstance(original_node, cst.SimpleStatementLine) and self._is_unused(original_node):
            return cst.RemoveFromParent()
        if not isinstance(updated_node, cst.For | cst.If | cst.Else):
            return updated_node
        if cst.ensure_type(updated_node.body, cst.IndentedBlock).body:
            return updated_node
        if isinstance(updated_node, cst.If) and updated_node.orelse is not None:
            return cast(cst.CSTNodeT, updated_node.with_changes(body=_PASS))
        return cst.RemoveFromParent()

    def _is_unused(self, statement: cst.SimpleStatementLine) -> bool:
        assign = single_assignment(statement)
        if assign is None:
            return False
        mentions = m.Name(assign[0])
        own = m.findall(self._kernel.body, m.Assign(targets=[m.AssignTarget(mentions)]))
        inside = sum(len(m.findall(a, mentions)) for a in own)
        return len(m.findall(self._kernel.body, mentions)) == inside


_PASS = cst.IndentedBlock([cst.SimpleStatementLine([cst.Pass()])])
