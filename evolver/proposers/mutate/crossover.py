"""Crossover: a kernel of one candidate, as another candidate has it.

Two candidates can be crossed where they differ in nothing but their kernels and how these are
launched: the same wrapper passes the same arguments to kernels of the same names. A Triton
kernel moves together with its launches, since its grid, its tile sizes and its body belong
together; the number of warps and of stages also move alone. A C++ function moves with the
headers that it needs. What gives back one of the two parents is not offered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import libcst as cst
import libcst.matchers as m

from evaluator.candidate import BackendName
from evolver.proposers.mutate.cpp_source import CppSource, Function, Splice, parse_cpp, text_of
from evolver.proposers.mutate.operators import Option
from evolver.proposers.mutate.triton_source import (
    Launch,
    NodeEdit,
    TritonSource,
    parse_triton,
    set_keywords,
)

_KNOBS = ("num_warps", "num_stages", "maxnreg")


def triton_crossover(source: str, mate: str) -> list[Option]:
    """Return the ways to give ``source`` one kernel, or one launch's settings, of ``mate``."""
    ours, theirs = parse_triton(source), parse_triton(mate)
    if source == mate or _wrappers(ours) != _wrappers(theirs):
        return []
    options: list[Option] = []
    for name, kernel in ours.kernels.items():
        pairs = list(zip(_launches(ours, name), _launches(theirs, name), strict=True))
        if not pairs or not _has_what_it_needs(ours, theirs, theirs.kernels[name]):
            continue
        moves: dict[cst.CSTNode, NodeEdit] = {kernel: partial(_swapped, theirs.kernels[name])}
        moves |= {a.call: partial(_swapped, b.call) for a, b in pairs}
        knobs: dict[cst.CSTNode, NodeEdit] = {
            a.call: partial(_with_knobs, theirs, b) for a, b in pairs
        }
        options += _option(ours, f"{name} and its launch of another parent", moves, mate)
        options += _option(ours, f"warps and stages of {name} of another parent", knobs, mate)
    return options


def _wrappers(parsed: TritonSource) -> str:
    """Return the module with empty kernels, and launches without grids and keywords."""
    edits: dict[cst.CSTNode, NodeEdit] = {
        kernel: lambda _: cst.RemoveFromParent()
        for name, kernel in parsed.kernels.items()
        if _launches(parsed, name)
    }
    edits |= {launch.call: partial(_bare, launch.kernel) for launch in parsed.launches}
    return "\n".join(line.strip() for line in parsed.replace(edits).splitlines() if line.strip())


def _bare(kernel: str, node: cst.CSTNode) -> cst.BaseExpression:
    call = cst.ensure_type(node, cst.Call)
    code = cst.Module([]).code_for_node
    given = ["".join(code(a.value).split()) for a in call.args if a.keyword is None]
    return cst.parse_expression(f"{kernel}({', '.join(given)})")


def _launches(parsed: TritonSource, kernel: str) -> list[Launch]:
    return [launch for launch in parsed.launches if launch.kernel == kernel]


def _has_what_it_needs(ours: TritonSource, theirs: TritonSource, kernel: cst.FunctionDef) -> bool:
    """Whether the helpers that ``kernel`` calls are the same here (imports are, by the wrapper)."""
    called = {
        cst.ensure_type(n, cst.Name).value
        for n in m.findall(kernel.body, m.Name())
        if cst.ensure_type(n, cst.Name).value in theirs.kernels
    }
    return all(
        name in ours.kernels
        and ours.text(ours.kernels[name]).strip() == theirs.text(theirs.kernels[name]).strip()
        for name in called
    )


def _swapped(new: cst.CSTNode, _: cst.CSTNode) -> cst.CSTNode:
    return new.deep_clone()


def _with_knobs(theirs: TritonSource, launch: Launch, node: cst.CSTNode) -> cst.CSTNode:
    found = {knob: launch.keyword(knob) for knob in _KNOBS}
    values = {k: None if a is None else theirs.text(a.value) for k, a in found.items()}
    return set_keywords(node, **values)


def _option(
    parsed: TritonSource, description: str, edits: Mapping[cst.CSTNode, NodeEdit], mate: str
) -> list[Option]:
    child = parsed.replace(edits)
    is_new = child not in (parsed.tree.code, mate)
    return [Option(description, lambda: child)] if is_new else []


def cpp_crossover(source: str, mate: str) -> list[Option]:
    """Return the ways to give ``source`` one function of ``mate``."""
    ours, theirs = parse_cpp(source), parse_cpp(mate)
    if ours is None or theirs is None or _around(ours) != _around(theirs):
        return []
    mine, other = ({_signature(f): f for f in p.functions} for p in (ours, theirs))
    if mine.keys() != other.keys() or len(mine) != len(ours.functions):
        return []
    options: list[Option] = []
    for signature, function in mine.items():
        if text_of(function.node) != text_of(other[signature].node):
            child = ours.splice(_moved(ours, theirs, function, other[signature]))
            if child not in (source, mate):
                description = f"{function.name} of another parent"
                options.append(Option(description, partial(str, child)))
    return options


def _signature(function: Function) -> tuple[str, ...]:
    return (function.name, *(" ".join(text_of(p).split()) for p in function.parameters))


def _around(parsed: CppSource) -> str:
    start, end = parsed.literal
    return parsed.python[:start] + parsed.python[end:]


def _moved(ours: CppSource, theirs: CppSource, old: Function, new: Function) -> list[Splice]:
    headers = [text_of(n).strip() for n in theirs.root.children if n.type == "preproc_include"]
    missing = [h for h in headers if h.encode() not in ours.cpp]
    splice = Splice(old.node.start_byte, old.node.end_byte, text_of(new.node))
    return [splice, *(ours.at_the_top(header) for header in missing)]


CROSSOVERS: Mapping[BackendName, Callable[[str, str], list[Option]]] = {
    BackendName.TRITON: triton_crossover,
    BackendName.CPP: cpp_crossover,
}
