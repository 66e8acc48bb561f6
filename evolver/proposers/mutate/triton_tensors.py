"""Which tensors a kernel reads and writes, and which of a wrapper's tensors overlap no other.

Edits that move or drop memory accesses ask here first. Whatever is not understood (atomics,
descriptors, pointers handed to helpers, views) makes the answer None, so that the edit is not
offered. Different arguments of the caller are taken not to overlap, as TorchInductor does;
the evaluator finds out where they do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import libcst as cst
import libcst.matchers as m

from evolver.proposers.mutate.triton_source import (
    Launch,
    TritonSource,
    calls_in,
    find_tl_calls,
    names_in,
)

_UNCLEAR = (
    "atomic_add", "atomic_max", "atomic_min", "atomic_and", "atomic_or", "atomic_xor",
    "atomic_cas", "atomic_xchg", "make_block_ptr", "make_tensor_descriptor",
    "load_tensor_descriptor", "advance", "debug_barrier",
)  # fmt: skip
_ALLOCATORS = ("empty", "empty_like", "empty_strided", "zeros", "zeros_like", "full", "full_like")
_METADATA = (
    "shape", "device", "dtype", "size", "stride", "numel", "dim", "ndim", "element_size",
    "is_contiguous",
)  # fmt: skip


@dataclass(frozen=True)
class Traffic:
    """The pointer parameters that a kernel loads from and stores to."""

    reads: frozenset[str]
    writes: frozenset[str]


@lru_cache(maxsize=256)
def traffic_of(parsed: TritonSource, kernel: cst.FunctionDef) -> Traffic | None:
    """Return what ``kernel`` reads and writes, None where that cannot be read from its text."""
    if find_tl_calls(kernel, *_UNCLEAR):
        return None
    reads = [base_of(c.args[0].value, kernel) for c in find_tl_calls(kernel, "load")]
    writes = [base_of(c.args[0].value, kernel) for c in find_tl_calls(kernel, "store")]
    pointers = {*reads, *writes}
    if None in pointers or _are_handed_on(parsed, kernel, pointers):
        return None
    return Traffic(frozenset(r for r in reads if r), frozenset(w for w in writes if w))


def base_of(pointer: cst.BaseExpression, kernel: cst.FunctionDef) -> str | None:
    """Return the parameter of ``kernel`` that ``pointer`` is an offset from (``p + i``)."""
    while isinstance(pointer, cst.BinaryOperation) and isinstance(pointer.operator, cst.Add):
        pointer = pointer.left
    if not isinstance(pointer, cst.Name):
        return None
    return pointer.value if pointer.value in _unchanged_parameters(kernel) else None


@lru_cache(maxsize=256)
def _unchanged_parameters(kernel: cst.FunctionDef) -> frozenset[str]:
    """Return the parameters that the body does not bind anew."""
    bound: set[str] = set()
    for place in m.findall(kernel.body, m.AssignTarget() | m.AugAssign() | m.AnnAssign()):
        if isinstance(place, cst.AssignTarget | cst.AugAssign | cst.AnnAssign):
            bound |= names_in(place.target)
    return frozenset(p.name.value for p in kernel.params.params) - bound


def _are_handed_on(
    parsed: TritonSource, kernel: cst.FunctionDef, pointers: set[str | None]
) -> bool:
    helpers = [
        c
        for c in calls_in(kernel.body)
        if isinstance(c.func, cst.Name) and c.func.value in parsed.kernels
    ]
    handed = {name for c in helpers for a in c.args for name in names_in(a.value)}
    return bool(handed & pointers)


def arguments_of(launch: Launch, kernel: cst.FunctionDef) -> Mapping[str, cst.Arg] | None:
    """Return the launch's arguments by parameter; None where they do not pair up plainly."""
    parameters = [p.name.value for p in kernel.params.params]
    found: dict[str, cst.Arg] = {}
    for position, argument in enumerate(launch.call.args):
        if argument.star or (argument.keyword is None and position >= len(parameters)):
            return None
        name = parameters[position] if argument.keyword is None else argument.keyword.value
        found[name] = argument
    return found if found.keys() >= set(parameters) else None


def enclosing_function(parsed: TritonSource, launch: Launch) -> cst.FunctionDef | None:
    """Return the module's function that makes ``launch``."""
    for statement in parsed.tree.body:
        if isinstance(statement, cst.FunctionDef) and launch.call in calls_in(statement):
            return statement
    return None


def is_allocation(statement: cst.CSTNode) -> bool:
    """Whether ``statement`` is ``name = torch.empty(...)`` or the like."""
    value = m.Call(func=m.Attribute(m.Name("torch"), m.OneOf(*map(m.Name, _ALLOCATORS))))
    assign = m.Assign(targets=[m.AssignTarget(m.Name())], value=value)
    return m.matches(statement, m.SimpleStatementLine(body=[assign]) | assign)


@lru_cache(maxsize=64)
def separate_tensors(parsed: TritonSource, function: cst.FunctionDef) -> frozenset[str]:
    """Return the names in ``function`` whose tensors overlap no other named tensor there.

    They are allocated there, or parameters, bound once and never the source of a view.
    """
    parameters = {p.name.value for p in function.params.params}
    assigned = [
        name for target in m.findall(function.body, m.AssignTarget()) for name in names_in(target)
    ]
    fresh = {
        cst.ensure_type(cst.ensure_type(a, cst.Assign).targets[0].target, cst.Name).value
        for a in m.findall(function.body, m.Assign())
        if is_allocation(a)
    }
    passed_apart = _passed_apart(parsed, function)
    candidates = {n for n in fresh if assigned.count(n) == 1 and n not in parameters}
    candidates |= {n for n in parameters if n not in assigned and passed_apart}
    uses = _Uses([launch.call for launch in parsed.launches])
    function.body.visit(uses)
    return frozenset(candidates - uses.unclear)


def _passed_apart(parsed: TritonSource, function: cst.FunctionDef) -> bool:
    """Whether no call in the module gives ``function`` two arguments made of the same name."""
    for node in m.findall(parsed.tree, m.Call(func=m.Name(function.name.value))):
        names = [n for a in cst.ensure_type(node, cst.Call).args for n in names_in(a.value)]
        if len(names) != len(set(names)):
            return False
    return True


class _Uses(cst.CSTVisitor):
    """Collects the names used in ways that could make a second name for the same memory.

    What is handed back, asserted or bound makes none, nor do metadata, launches, allocations.
    """

    def __init__(self, launches: Sequence[cst.Call]) -> None:
        super().__init__()
        self.unclear: set[str] = set()
        self._launches = launches

    def on_visit(self, node: cst.CSTNode) -> bool:
        """Note a name; say whether to look below ``node``."""
        if isinstance(node, cst.Name):
            self.unclear.add(node.value)
        if isinstance(node, cst.Call):
            allocates = is_allocation(cst.Assign([_ANY_TARGET], node))
            return not allocates and not any(node is call for call in self._launches)
        if isinstance(node, cst.Attribute):
            return node.attr.value not in _METADATA
        return not isinstance(node, cst.Return | cst.Assert | cst.AssignTarget)


_ANY_TARGET = cst.AssignTarget(cst.Name("_"))


@lru_cache(maxsize=256)
def exclusive_parameters(parsed: TritonSource, kernel: cst.FunctionDef) -> frozenset[str]:
    """Return the pointer parameters whose memory no other argument of any launch overlaps."""
    launches = [launch for launch in parsed.launches if launch.kernel == kernel.name.value]
    found = [_exclusive_in(parsed, launch, kernel) for launch in launches]
    return frozenset.intersection(*found) if found else frozenset()


def _exclusive_in(parsed: TritonSource, launch: Launch, kernel: cst.FunctionDef) -> frozenset[str]:
    function, arguments = enclosing_function(parsed, launch), arguments_of(launch, kernel)
    if function is None or arguments is None:
        return frozenset()
    separate = separate_tensors(parsed, function)
    names = {p: a.value.value for p, a in arguments.items() if isinstance(a.value, cst.Name)}
    given = [n for a in launch.call.args for n in names_in(a.value)]
    return frozenset(p for p, n in names.items() if n in separate and given.count(n) == 1)
