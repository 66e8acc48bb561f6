"""Two loops over the same range, one behind the other, become one.

A row is then still in the cache when the second loop comes to it, and a parallel loop is
started once instead of twice. Each iteration must keep to its own part of whatever both loops
touch and one of them writes: ``p[row]``, or ``p[row * N + col]`` with ``col`` below N. That
the arrays themselves do not overlap is read from the wrapper.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tree_sitter import Node

from evolver.proposers.mutate.cpp_dataflow import declared, independence
from evolver.proposers.mutate.cpp_promises import allocated, calls_of
from evolver.proposers.mutate.cpp_source import (
    CppSource,
    Function,
    Loop,
    Splice,
    describe,
    parse_cpp,
    text_of,
    walk,
)
from evolver.proposers.mutate.operators import Option

_METADATA = ("shape", "device", "dtype", "size", "stride", "numel", "dim", "ndim")


def fuse_options(source: str) -> list[Option]:
    """Fuse a loop with the one right behind it."""
    parsed = parse_cpp(source)
    if parsed is None:
        return []
    return [
        _option(parsed, function, first, second)
        for function in parsed.functions
        for first, second in _neighbours(function)
        if _can_fuse(parsed, function, first, second)
    ]


def _neighbours(function: Function) -> Iterator[tuple[Loop, Loop]]:
    for second in function.loops:
        start = second.pragmas[0] if second.pragmas else second.node
        before = start.prev_named_sibling
        for first in function.loops:
            if before is not None and first.node == before:
                yield first, second


def _can_fuse(parsed: CppSource, function: Function, first: Loop, second: Loop) -> bool:
    free = [independence(loop) for loop in (first, second)]
    blocks = all(loop.body.type == "compound_statement" for loop in (first, second))
    if _heading(first) != _heading(second) or not blocks:
        return False
    if any(f is None or f.reductions for f in free):
        return False
    written = _written(first) | _written(second)
    both = _used(first) & _used(second)
    if not written <= _apart(parsed, function) or _hands_on(function, first, second):
        return False
    return all(_keeps_to_its_row(lo, name) for name in written & both for lo in (first, second))


def _heading(loop: Loop) -> tuple[str, ...]:
    pragmas = tuple(" ".join(text_of(p).split()) for p in loop.pragmas)
    return (loop.ctype, loop.variable, loop.lower, loop.upper, loop.step, *pragmas)


def _is_pointer(parameter: Node) -> bool:
    return any(n.type == "pointer_declarator" for n in walk(parameter))


def _name(parameter: Node) -> str:
    return [text_of(n) for n in walk(parameter) if n.type == "identifier"][-1]


def _used(loop: Loop) -> set[str]:
    return {text_of(n) for n in walk(loop.body) if n.type == "identifier"}


def _written(loop: Loop) -> set[str]:
    """Return the arrays that outlive an iteration and are assigned to in it."""
    targets = [
        n.child_by_field_name("left") or n.child_by_field_name("argument")
        for n in walk(loop.body)
        if n.type in ("assignment_expression", "update_expression")
    ]
    arrays = [t for t in targets if t is not None and t.type == "subscript_expression"]
    return {text_of(t.child_by_field_name("argument")) for t in arrays} - declared(loop.body)


def _hands_on(function: Function, *loops: Loop) -> bool:
    """Whether a pointer that may be written is used otherwise than to index it."""
    writable = {
        _name(p)
        for p in function.parameters
        if _is_pointer(p) and not text_of(p).startswith("const ")
    }
    for loop in loops:
        for name in writable & _used(loop):
            mentions = sum(n.type == "identifier" and text_of(n) == name for n in walk(loop.body))
            if mentions != len(_accesses(loop, name)):
                return True
    return False


def _accesses(loop: Loop, name: str) -> list[Node]:
    return [
        n
        for n in walk(loop.body)
        if n.type == "subscript_expression" and text_of(n.child_by_field_name("argument")) == name
    ]


def _keeps_to_its_row(loop: Loop, name: str) -> bool:
    ends = {loop.variable: ""} | _inner_ends(loop)
    for access in _accesses(loop, name):
        index = "".join(text_of(access.child_by_field_name("indices")).split())[1:-1]
        if index != loop.variable and not _is_within(index, loop.variable, ends):
            return False
    return True


def _inner_ends(loop: Loop) -> dict[str, str]:
    """Return, for each variable of an inner loop from 0, what it stays below."""
    found: dict[str, str] = {}
    for node in walk(loop.body):
        if node.type != "for_statement":
            continue
        start, test = (node.child_by_field_name(f) for f in ("initializer", "condition"))
        declared = text_of(start).rstrip(";").split("=")
        bound = "".join(text_of(test).split()).split("<")
        if len(declared) == len(bound) == 2 and declared[1].strip() == "0":
            name = declared[0].split()[-1]
            # Two loops over one name may end at different places.
            agrees = bound[0] == name and found.get(name, bound[1]) == bound[1]
            found[name] = bound[1] if agrees else ""
    return found


def _is_within(index: str, row: str, ends: dict[str, str]) -> bool:
    """Whether ``index`` is ``row*N+col`` with col below N."""
    head, _, column = index.rpartition("+")
    if not head.startswith(f"{row}*") or not ends.get(column):
        return False
    width, end = head.removeprefix(f"{row}*"), ends[column]
    if width.isdigit() and end.isdigit():
        return int(end) <= int(width)
    return width in (end, f"std::max<int64_t>(1,{end})")


def _apart(parsed: CppSource, function: Function) -> set[str]:
    """Return the parameters whose memory no other argument overlaps, in any call."""
    names = [_name(p) for p in function.parameters]
    found: list[set[str]] = []
    for wrapper, call in calls_of(parsed, function):
        passed = [n.id for a in call.args for n in ast.walk(a) if isinstance(n, ast.Name)]
        known = (allocated(wrapper) | {a.arg for a in wrapper.args.args}) - _sources(wrapper)
        if len(call.args) != len(names):
            return set()
        found.append(
            {
                name
                for name, argument in zip(names, call.args, strict=True)
                if isinstance(argument, ast.Name)
                and argument.id in known
                and passed.count(argument.id) == 1
            }
        )
    return set.intersection(*found) if found else set()


def _sources(wrapper: ast.FunctionDef) -> set[str]:
    """Return the names that are bound again, or that another name may be a view of."""
    found: set[str] = set()
    bound: list[str] = [a.arg for a in wrapper.args.args]
    for node in ast.walk(wrapper):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound.append(node.id)
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) and node.value is not None:
            found |= _names_beside_metadata(node.value)
    return found | {name for name in bound if bound.count(name) > 1}


def _names_beside_metadata(value: ast.expr) -> set[str]:
    if isinstance(value, ast.Attribute) and value.attr in _METADATA:
        return set()
    is_call = isinstance(value, ast.Call) and ast.unparse(value.func).startswith("torch.empty")
    if is_call:
        return set()
    own = {value.id} if isinstance(value, ast.Name) else set()
    inner = (c for c in ast.iter_child_nodes(value) if isinstance(c, ast.expr))
    return own.union(*map(_names_beside_metadata, inner))


def _option(parsed: CppSource, function: Function, first: Loop, second: Loop) -> Option:
    start = first.body.start_byte
    indent = parsed.indent(first.node)
    blocks = [text_of(lo.body).replace("\n", "\n    ") for lo in (first, second)]
    bodies = "\n".join(f"{indent}    {block}" for block in blocks)
    splice = Splice(start, second.node.end_byte, f"{{\n{bodies}\n{indent}}}")
    description = f"one loop of two over {first.variable}: {describe(function, first)}"
    return Option(description, lambda: parsed.splice([splice]))
