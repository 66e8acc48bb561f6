"""Loops of a C++ candidate: unrolling, tiling and prefetching."""

from __future__ import annotations

from collections.abc import Iterator

from tree_sitter import Node

from evolver.proposers.mutate.cpp_pragmas import parse_omp, remove, rewrite
from evolver.proposers.mutate.cpp_source import (
    CppSource,
    Function,
    Loop,
    Splice,
    describe,
    identifiers,
    parse_cpp,
    text_of,
    walk,
)
from evolver.proposers.mutate.operators import Option, fresh_name

UNROLLS = (2, 4, 8, 16)
TILES = (16, 64, 256, 1024)
PREFETCH_ROWS = (1, 2, 4)
_UNROLL = "#pragma GCC unroll"


def unroll_options(source: str) -> list[Option]:
    """Unroll one innermost loop by another factor, or leave that to the compiler again."""
    parsed = parse_cpp(source)
    if parsed is None:
        return []
    return [
        option
        for function in parsed.functions
        for loop in function.loops
        if loop.is_innermost and loop.takes_pragmas and not any(parse_omp(p) for p in loop.pragmas)
        for option in _unrolls(parsed, function, loop)
    ]


def _unrolls(parsed: CppSource, function: Function, loop: Loop) -> Iterator[Option]:
    where = describe(function, loop)
    old = next((p for p in loop.pragmas if text_of(p).startswith(_UNROLL)), None)
    for factor in UNROLLS:
        line = f"{_UNROLL} {factor}"
        if old is not None and text_of(old).strip() == line:
            continue
        splice = rewrite(old, line) if old is not None else parsed.before(loop.node, line)
        yield _option(parsed, f"unroll {where} {factor} times", [splice])
    if old is not None:
        yield _option(parsed, f"no unrolling asked for {where}", [remove(parsed, old)])


def tile_options(source: str) -> list[Option]:
    """Split one loop into tiles; a tiled loop is not split again.

    The order of the iterations stays as it was. It pays together with ``collapse``, with a
    schedule over tiles, and with vectorising the loop inside.
    """
    parsed = parse_cpp(source)
    if parsed is None:
        return []
    return [
        _tiled(parsed, function, loop, size)
        for function in parsed.functions
        for loop in function.loops
        if _can_tile(loop)
        for size in TILES
    ]


def _can_tile(loop: Loop) -> bool:
    shared = [d for p in loop.pragmas if (d := parse_omp(p)) is not None and "for" in d.words]
    is_bound_up = any("simd" in d.words or d.clause("collapse") for d in shared)
    is_tiled = "std::min" in loop.upper or loop.step != "1"
    return loop.takes_pragmas and not is_bound_up and not is_tiled


def _tiled(parsed: CppSource, function: Function, loop: Loop, size: int) -> Option:
    """Split ``loop``: what shares out its iterations stays outside, all other pragmas go in."""
    hints = [p for p in loop.pragmas if (d := parse_omp(p)) is None or "for" not in d.words]
    tile = fresh_name(f"{loop.variable}_tile", identifiers(parsed.root))
    t, v, upper, indent = loop.ctype, loop.variable, loop.upper, parsed.indent(loop.node)
    inner = f"for ({t} {v} = {tile}; {v} < std::min<{t}>({tile} + {size}, {upper}); ++{v})"
    lines = [
        f"for ({t} {tile} = {loop.lower}; {tile} < {upper}; {tile} += {size}) {{",
        *(f"{indent}    {text_of(p).strip()}" for p in hints),
        f"{indent}    {inner} {text_of(loop.body)}".replace("\n", "\n    "),
        f"{indent}}}",
    ]
    splices = [Splice(loop.node.start_byte, loop.node.end_byte, "\n".join(lines))]
    splices += [remove(parsed, p) for p in hints] + _include(parsed, "algorithm")
    place = describe(function, loop)
    return _option(parsed, f"tile {place} by {size}", splices)


def _include(parsed: CppSource, header: str) -> list[Splice]:
    line = f"#include <{header}>"
    return [] if line.encode() in parsed.cpp else [parsed.at_the_top(line)]


def prefetch_options(source: str) -> list[Option]:
    """Ask for the start of a later row while this one is worked on; not done twice.

    Prefetching past the end of an array does not fault.
    """
    parsed = parse_cpp(source)
    if parsed is None:
        return []
    return [
        option
        for function in parsed.functions
        for outer in function.loops
        if outer.body.type == "compound_statement" and b"__builtin_prefetch" not in _bytes(outer)
        for inner in function.loops
        if inner.is_innermost and _lies_in(inner.node, outer)
        for option in _prefetches(parsed, function, outer, inner)
    ]


def _bytes(loop: Loop) -> bytes:
    return loop.body.text or b""


def _lies_in(node: Node, outer: Loop) -> bool:
    return outer.body.start_byte < node.start_byte and node.end_byte <= outer.body.end_byte


def _prefetches(
    parsed: CppSource, function: Function, outer: Loop, inner: Loop
) -> Iterator[Option]:
    known = {n for p in function.parameters for n in identifiers(p)} | {"static_cast"}
    if not inner.names_in_lower <= known:
        return
    reads = {
        text_of(n): n
        for n in walk(inner.body)
        if n.type == "subscript_expression" and _is_row_read(n, function, outer)
    }
    for read in reads.values():
        if not identifiers(read) <= known | {outer.variable, inner.variable}:
            continue
        for rows in PREFETCH_ROWS:
            later = _substitute(
                read, {outer.variable: f"({outer.variable} + {rows})", inner.variable: inner.lower}
            )
            start, indent = outer.body.start_byte + 1, parsed.indent(outer.node)
            line = f"\n{indent}    __builtin_prefetch(&{later});"
            what = f"prefetch {_array(read)} {rows} ahead in the loop over {outer.variable}"
            yield _option(parsed, f"{what} in {function.name}", [Splice(start, start, line)])


def _array(read: Node) -> str:
    return text_of(read.child_by_field_name("argument"))


def _is_row_read(read: Node, function: Function, outer: Loop) -> bool:
    constant = {
        name
        for p in function.parameters
        if text_of(p).startswith("const ") and "*" in text_of(p)
        for name in identifiers(p)
    }
    return _array(read) in constant and outer.variable in identifiers(read)


def _substitute(node: Node, names: dict[str, str]) -> str:
    code, base = text_of(node).encode(), node.start_byte
    places = [n for n in walk(node) if n.type == "identifier" and text_of(n) in names]
    for place in reversed(places):
        new = names[text_of(place)].encode()
        code = code[: place.start_byte - base] + new + code[place.end_byte - base :]
    return code.decode()


def _option(parsed: CppSource, description: str, splices: list[Splice]) -> Option:
    return Option(description, lambda: parsed.splice(splices))
