"""A Triton candidate as libcst sees it: its kernels, their launches, and replacing nodes.

Every operator parses the source anew: an edit gives text, so that operators compose in any
order and none depends on what another left behind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast

import libcst as cst
import libcst.matchers as m

NodeEdit = Callable[[cst.CSTNode], cst.CSTNode]


@dataclass(frozen=True)
class Launch:
    """One ``kernel[grid](...)`` call."""

    call: cst.Call
    kernel: str
    grid: cst.BaseExpression

    def keyword(self, name: str) -> cst.Arg | None:
        """Return the argument passed as ``name=``."""
        return next((a for a in self.call.args if a.keyword and a.keyword.value == name), None)


@dataclass(frozen=True)
class TritonSource:
    """A parsed candidate: ``kernels`` are its jitted functions by name."""

    tree: cst.Module
    kernels: Mapping[str, cst.FunctionDef]
    launches: tuple[Launch, ...]

    def text(self, node: cst.CSTNode) -> str:
        """Return the source text of ``node``."""
        return self.tree.code_for_node(node)

    def replace(self, edits: Mapping[cst.CSTNode, NodeEdit]) -> str:
        """Return the source with each node of ``edits`` replaced by what its edit returns."""
        return self.tree.visit(_Replacer(edits)).code


class _Replacer(cst.CSTTransformer):
    def __init__(self, edits: Mapping[cst.CSTNode, NodeEdit]) -> None:
        super().__init__()
        self._edits = edits

    def on_leave(
        self, original_node: cst.CSTNodeT, updated_node: cst.CSTNodeT
    ) -> cst.CSTNodeT | cst.RemovalSentinel | cst.FlattenSentinel[cst.CSTNodeT]:
        edit = self._edits.get(original_node)
        return updated_node if edit is None else cast(cst.CSTNodeT, edit(updated_node))


def parse_triton(source: str) -> TritonSource:
    """Parse ``source``.

    Raises:
        libcst.ParserSyntaxError: it is not Python.
    """
    tree = cst.parse_module(source)
    functions = [cst.ensure_type(f, cst.FunctionDef) for f in m.findall(tree, m.FunctionDef())]
    kernels = {f.name.value: f for f in functions if _is_jitted(f)}
    launches: list[Launch] = []
    for node in m.findall(tree, m.Call(func=m.Subscript(value=m.Name()))):
        call = cst.ensure_type(node, cst.Call)
        subscript = cst.ensure_type(call.func, cst.Subscript)
        name = cst.ensure_type(subscript.value, cst.Name).value
        grid = subscript.slice[0].slice
        if name in kernels and len(subscript.slice) == 1 and isinstance(grid, cst.Index):
            launches.append(Launch(call, name, grid.value))
    return TritonSource(tree, kernels, tuple(launches))


def _is_jitted(function: cst.FunctionDef) -> bool:
    jit = m.Attribute(value=m.Name("triton"), attr=m.Name("jit")) | m.Name("jit")
    return any(m.matches(d.decorator, jit | m.Call(func=jit)) for d in function.decorators)


def is_tl_call(node: cst.CSTNode, *names: str) -> bool:
    """Whether ``node`` is ``tl.NAME(...)`` for one of ``names``."""
    return (
        isinstance(node, cst.Call)
        and isinstance(node.func, cst.Attribute)
        and m.matches(node.func.value, m.Name("tl"))
        and node.func.attr.value in names
    )


def find_tl_calls(node: cst.CSTNode, *names: str) -> list[cst.Call]:
    """Return the ``tl.NAME(...)`` calls in ``node``, in source order."""
    return [
        cst.ensure_type(c, cst.Call) for c in m.findall(node, m.Call()) if is_tl_call(c, *names)
    ]


def integer(node: cst.CSTNode | None) -> int | None:
    """Return the value of an integer literal, or None for anything else."""
    return int(node.value, 0) if isinstance(node, cst.Integer) else None


def set_integer(value: int) -> NodeEdit:
    """Return an edit that makes an integer literal ``value``."""
    return lambda node: cst.ensure_type(node, cst.Integer).with_changes(value=str(value))


def set_keywords(call: cst.CSTNode, **keywords: str | None) -> cst.Call:
    """Return ``call`` with keyword arguments set to expressions, or dropped where None."""
    node = cst.ensure_type(call, cst.Call)
    kept = [a for a in node.args if a.keyword is None or a.keyword.value not in keywords]
    added = [keyword_argument(n, v) for n, v in keywords.items() if v is not None]
    return node.with_changes(args=spaced([*kept, *added]))


def keyword_argument(name: str, expression: str) -> cst.Arg:
    """Return ``name=expression`` as an argument."""
    tight = cst.SimpleWhitespace("")
    return cst.Arg(
        keyword=cst.Name(name),
        value=cst.parse_expression(expression),
        equal=cst.AssignEqual(whitespace_before=tight, whitespace_after=tight),
    )


def spaced(args: list[cst.Arg]) -> list[cst.Arg]:
    """Return ``args`` with a comma after each but the last, keeping line breaks that exist."""
    comma = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
    separated = [
        a if isinstance(a.comma, cst.Comma) else a.with_changes(comma=comma) for a in args[:-1]
    ]
    return [*separated, args[-1]] if args else []


def names_in(node: cst.CSTNode) -> set[str]:
    """Return the identifiers that occur in ``node``, attribute names and keywords included."""
    return {cst.ensure_type(n, cst.Name).value for n in m.findall(node, m.Name())}
