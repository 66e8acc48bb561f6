"""A looped sum keeps one value a row instead of one a lane: each tile is summed in the loop.

The block of partial sums, one for each element of the tile, costs registers and is summed
once; one value a row costs a reduction in each step. Which is better depends on the tile.
Offered for ``acc = tl.where(mask, acc + e, acc)`` over a two-dimensional block that starts
at zero and is summed along axis 1 right after the loop, where nothing else reads it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import libcst as cst
import libcst.matchers as m

from evolver.proposers.mutate.operators import Option
from evolver.proposers.mutate.triton_forward import single_assignment
from evolver.proposers.mutate.triton_source import (
    NodeEdit,
    TritonSource,
    find_tl_calls,
    names_in,
    parse_triton,
)

_ZERO = m.Integer("0") | m.Float("0.0")
_SUM = m.Call(
    func=m.Attribute(m.Name("tl"), m.Name("sum")),
    args=[m.Arg(m.Name()), m.Arg(m.Integer("1"))],
)
_COLUMN = m.Subscript(
    value=_SUM,
    slice=[
        m.SubscriptElement(m.Slice(lower=None, upper=None)),
        m.SubscriptElement(m.Index(m.Name("None"))),
    ],
)


@dataclass(frozen=True)
class _Line:
    """The statement ``name = value``."""

    statement: cst.BaseStatement
    name: str
    value: cst.BaseExpression


def accumulate_options(source: str) -> list[Option]:
    """Sum each tile in the loop, for one sum of one kernel."""
    parsed = parse_triton(source)
    options: list[Option] = []
    for name, kernel in parsed.kernels.items():
        lines = _lines(kernel)
        for total in (line for line in lines if m.matches(line.value, _COLUMN)):
            edits = _edits(parsed, kernel, lines, total)
            if edits:
                description = f"{total.name} grows by whole tiles in {name}"
                options.append(Option(description, partial(parsed.replace, edits)))
    return options


def _lines(kernel: cst.FunctionDef) -> list[_Line]:
    found: list[_Line] = []
    for node in m.findall(kernel.body, m.SimpleStatementLine()):
        statement = cst.ensure_type(node, cst.SimpleStatementLine)
        assign = single_assignment(statement)
        found += [_Line(statement, *assign)] if assign is not None else []
    return found


def _edits(
    parsed: TritonSource, kernel: cst.FunctionDef, lines: list[_Line], total: _Line
) -> dict[cst.CSTNode, NodeEdit]:
    acc = cst.ensure_type(find_tl_calls(total.value, "sum")[0].args[0].value, cst.Name).value
    bound = [line for line in lines if line.name == acc]
    if len(bound) != 2 or m.findall(kernel.body, m.AugAssign(target=m.Name(acc))):
        return {}
    start, step = bound
    block = start.value
    if not m.matches(block, _BLOCK) or not isinstance(block, cst.Call):
        return {}
    if not m.matches(step.value, _kept(acc)) or not isinstance(step.value, cst.Call):
        return {}
    mask, grown, _ = (a.value for a in step.value.args)
    named = [line for line in lines if m.matches(grown, m.Name(line.name))]
    sum_of = named[0].value if len(named) == 1 else grown
    # Bound twice; read by the addition, by the branch that keeps it, and by the sum.
    mentions = len(m.findall(kernel.body, m.Name(acc)))
    used_once = not named or len(m.findall(kernel.body, m.Name(named[0].name))) == 2
    plus = m.BinaryOperation(left=m.Name(acc), operator=m.Add())
    loops = m.findall(kernel.body, m.For())
    inside = [lo for lo in loops if step.statement in m.findall(lo, m.SimpleStatementLine())]
    if mentions != 5 or not used_once or not m.matches(sum_of, plus) or len(inside) != 1:
        return {}
    added = cst.ensure_type(sum_of, cst.BinaryOperation).right
    if not names_in(added):
        return {}
    rows, columns = _shape(parsed, block)
    dtype = parsed.text(block.args[-1].value)
    tile = f"tl.broadcast_to(({parsed.text(added)}).to({dtype}), [{rows}, {columns}])"
    new = f"{acc} + tl.sum(tl.where({parsed.text(mask)}, {tile}, 0), 1)[:, None]"
    edits: dict[cst.CSTNode, NodeEdit] = {
        block: lambda _: cst.parse_expression(f"tl.full([{rows}, 1], 0, {dtype})"),
        step.value: lambda _: cst.parse_expression(new),
        total.value: lambda _: cst.Name(acc),
    }
    if named:
        edits[named[0].statement] = lambda _: cst.RemoveFromParent()
    return edits


_DTYPE = m.Arg(m.Attribute(m.Name("tl"), m.Name("float32")), keyword=None)
_BLOCK = m.Call(
    func=m.Attribute(m.Name("tl"), m.Name("full") | m.Name("zeros")),
    args=[m.Arg(m.List([m.Element(), m.Element()])), m.ZeroOrMore(m.Arg(_ZERO)), _DTYPE],
)


def _kept(acc: str) -> m.Call:
    """Match ``tl.where(mask, GROWN, acc)``."""
    args = [m.Arg(), m.Arg(), m.Arg(m.Name(acc))]
    return m.Call(func=m.Attribute(m.Name("tl"), m.Name("where")), args=args)


def _shape(parsed: TritonSource, block: cst.Call) -> tuple[str, str]:
    elements = cst.ensure_type(block.args[0].value, cst.List).elements
    rows, columns = (parsed.text(e.value) for e in elements)
    return rows, columns
