"""A Triton candidate as libcst sees it: its kernels, their launches, and replacing nodes.

Every operator parses the source anew: an edit gives text, so that operators compose in any
order and none depends on what another left behind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar, cast

import libcst as cst
import libcst.matchers as m

_Item = TypeVar("_Item", bound=cst.Arg | cst.Param)
NodeEdit = Callable[
    [cst.CSTNode], cst.CSTNode | cst.RemovalSentinel | cst.FlattenSentinel[cst.CSTNode]
]


@dataclass(frozen=True, eq=False)
class Launch:
    """One ``kernel[grid](...)`` call."""

    call: cst.Call
    kernel: str
    grid: cst.BaseExpression

    def keyword(self, name: str) -> cst.Arg | None:
        """Return the argument passed as ``name=``."""
        return next((a for a in self.call.args if a.keyword and a.keyword.value == name), None)


@dataclass(frozen=True, eq=False)
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


@lru_cache(maxsize=4)
def parse_triton(source: str) -> TritonSource:
    """Parse ``source``; the last few are kept, since every operator asks for the same.

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


def find_tl_calls(node: cst.CSTNode, *names: str) -> tuple[cst.Call, ...]:
    """Return the ``tl.NAME(...)`` calls in ``node``, in source order."""
    return tuple(c for c in calls_in(node) if is_tl_call(c, *names))


@lru_cache(maxsize=4096)
def calls_in(node: cst.CSTNode) -> tuple[cst.Call, ...]:
    """Return every call in ``node``, in source order."""
    return tuple(cst.ensure_type(c, cst.Call) for c in m.findall(node, m.Call()))


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
    return node.with_changes(args=laid_out([*kept, *added], like=node.args))


def keyword_argument(name: str, expression: str) -> cst.Arg:
    """Return ``name=expression`` as an argument."""
    tight = cst.SimpleWhitespace("")
    return cst.Arg(
        keyword=cst.Name(name),
        value=cst.parse_expression(expression),
        equal=cst.AssignEqual(whitespace_before=tight, whitespace_after=tight),
    )


def laid_out(new: Sequence[_Item], *, like: Sequence[_Item]) -> list[_Item]:
    """Return ``new`` arguments or parameters with commas laid out as those of ``like``.

    What was there keeps its comma and line break; what is added takes those of the first;
    the last ends as the last did.
    """
    space = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
    between = like[0].comma if len(like) > 1 else space
    trailing = like[-1].comma if like else cst.MaybeSentinel.DEFAULT
    kept = [
        item
        if isinstance(item.comma, cst.Comma) and item is not like[-1]
        else item.with_changes(comma=between)
        for item in new[:-1]
    ]
    last = [item.with_changes(comma=trailing) for item in new[-1:]]
    return cast(list[_Item], [*kept, *last])


@lru_cache(maxsize=4096)
def names_in(node: cst.CSTNode) -> frozenset[str]:
    """Return the identifiers that occur in ``node``, attribute names and keywords included."""
    return frozenset(cst.ensure_type(n, cst.Name).value for n in m.findall(node, m.Name()))
