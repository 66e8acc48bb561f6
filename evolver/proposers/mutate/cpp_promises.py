"""What the compiler may assume: its options for the whole source, and facts about pointers.

Options are ``#pragma GCC`` lines at the top. Facts are stated only where the wrapper
proves them: an output that the wrapper has just allocated overlaps nothing and lies on a
64-byte boundary (torch's CPU allocator), an argument of the caller need not.
"""

from __future__ import annotations

import ast
import platform
from collections.abc import Iterator
from functools import partial
from typing import TypeGuard

from tree_sitter import Node

from evolver.proposers.mutate.cpp_source import (
    CppSource,
    Function,
    Splice,
    identifiers,
    parse_cpp,
    text_of,
    walk,
)
from evolver.proposers.mutate.operators import Option

# No finite-math-only among them: candidates are checked on infinities and NaN.
_OPTIMIZE = (
    'optimize("unroll-loops")',
    'optimize("vect-cost-model=unlimited")',
    'optimize("associative-math", "no-signed-zeros", "no-trapping-math")',
    'optimize("reciprocal-math")',
    'optimize("prefetch-loop-arrays")',
)
_X86_TARGETS = ('target("prefer-vector-width=256")', 'target("prefer-vector-width=512")')
_ALLOCATORS = (
    "empty", "zeros", "ones", "full", "empty_like", "zeros_like", "ones_like", "full_like",
    "empty_strided",
)  # fmt: skip
ALIGNMENT_BYTES = 64


def compiler_options(source: str) -> list[Option]:
    """Add one option of GCC to the whole source, or take away one that is there."""
    parsed = parse_cpp(source)
    if parsed is None:
        return []
    x86 = platform.machine() in ("x86_64", "AMD64")
    return [_toggle(parsed, o) for o in (*_OPTIMIZE, *(_X86_TARGETS if x86 else ()))]


def _toggle(parsed: CppSource, option: str) -> Option:
    line = f"#pragma GCC {option}\n"
    position = parsed.cpp.find(line.encode())
    if position >= 0:
        gone = Splice(position, position + len(line), "")
        return Option(f"without GCC {option}", lambda: parsed.splice([gone]))
    if "target" in option:
        other = [line for line in parsed.cpp.decode().splitlines(True) if "GCC target" in line]
        splices = [_cut(parsed, o) for o in other]
    else:
        splices = []
    splices.append(parsed.at_the_top(f"#pragma GCC {option}"))
    return Option(f"with GCC {option}", lambda: parsed.splice(splices))


def _cut(parsed: CppSource, line: str) -> Splice:
    position = parsed.cpp.find(line.encode())
    return Splice(position, position + len(line.encode()), "")


def pointer_options(source: str) -> list[Option]:
    """State that outputs do not overlap (``__restrict__``) or are aligned, where it is true."""
    parsed = parse_cpp(source)
    if parsed is None:
        return []
    return [
        option
        for function in parsed.functions
        if (fresh := _fresh_parameters(parsed, function))
        for option in (*_restrict(parsed, function, fresh), *_aligned(parsed, function, fresh))
    ]


def _restrict(parsed: CppSource, function: Function, fresh: set[str]) -> Iterator[Option]:
    pointers = [p for p in function.parameters if _is_pointer(p)]
    written = {_parameter_name(p) for p in pointers if not text_of(p).startswith("const ")}
    plain = [p for p in pointers if "__restrict" not in text_of(p)]
    if plain and written <= fresh:
        names = [_name_node(p) for p in plain]
        splices = [Splice(n.start_byte, n.start_byte, "__restrict__ ") for n in names]
        yield Option(
            f"__restrict__ on the pointers of {function.name}", lambda: parsed.splice(splices)
        )


def _aligned(parsed: CppSource, function: Function, fresh: set[str]) -> Iterator[Option]:
    body = function.node.child_by_field_name("body")
    if body is None:
        return
    for parameter in function.parameters:
        name, pragma = _parameter_name(parameter), b"__builtin_assume_aligned(" + _bytes(parameter)
        if name not in fresh or pragma in parsed.cpp:
            continue
        ctype = text_of(parameter.child_by_field_name("type"))
        cast = f"static_cast<{ctype}*>(__builtin_assume_aligned({name}, {ALIGNMENT_BYTES}))"
        splice = Splice(body.start_byte + 1, body.start_byte + 1, f"\n    {name} = {cast};")
        what = f"{name} is aligned to {ALIGNMENT_BYTES} bytes in {function.name}"
        yield Option(what, partial(parsed.splice, [splice]))


def _bytes(parameter: Node) -> bytes:
    return _parameter_name(parameter).encode()


def _is_pointer(parameter: Node) -> bool:
    return any(n.type == "pointer_declarator" for n in walk(parameter))


def _name_node(parameter: Node) -> Node:
    return [n for n in walk(parameter) if n.type == "identifier"][-1]


def _parameter_name(parameter: Node) -> str:
    names = identifiers(parameter)
    return text_of(_name_node(parameter)) if names else ""


def _fresh_parameters(parsed: CppSource, function: Function) -> set[str]:
    """Return the pointers that get a tensor of the wrapper's own in every call."""
    calls = calls_of(parsed, function)
    return set.intersection(*(_fresh_in(w, c, function) for w, c in calls)) if calls else set()


def calls_of(parsed: CppSource, function: Function) -> list[tuple[ast.FunctionDef, ast.Call]]:
    """Return the wrapper's calls of ``function``, each with the Python function it is in."""
    tree = ast.parse(parsed.python)
    wrappers = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)]
    return [(w, c) for w in wrappers for c in ast.walk(w) if _is_call_of(c, function.name)]


def _is_call_of(node: ast.AST, name: str) -> TypeGuard[ast.Call]:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and (node.func.value.id, node.func.attr) == ("native", name)
    )


def _fresh_in(wrapper: ast.FunctionDef, call: ast.Call, function: Function) -> set[str]:
    passed = [a.id if isinstance(a, ast.Name) else None for a in call.args]
    if len(passed) != len(function.parameters):
        return set()
    fresh = allocated(wrapper)
    pairs = zip(function.parameters, passed, strict=True)
    return {
        _parameter_name(p)
        for p, name in pairs
        if _is_pointer(p) and name in fresh and passed.count(name) == 1
    }


def allocated(wrapper: ast.FunctionDef) -> set[str]:
    """Return the names that are assigned once, from an allocation by torch."""
    assigned: dict[str, list[ast.expr]] = {}
    for node in ast.walk(wrapper):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                for name in (n.id for n in ast.walk(target) if isinstance(n, ast.Name)):
                    assigned.setdefault(name, []).append(node.value)
    return {n for n, values in assigned.items() if len(values) == 1 and _allocates(values[0])}


def _allocates(value: ast.expr) -> bool:
    return (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Attribute)
        and isinstance(value.func.value, ast.Name)
        and value.func.value.id == "torch"
        and value.func.attr in _ALLOCATORS
    )
