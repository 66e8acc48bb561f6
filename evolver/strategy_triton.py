"""Reads the strategy of a Triton candidate from its syntax tree.

What decides is the flow of values through the loops of its kernels: a loop *gathers* where
a value is carried from one round to the next and takes in what the round has loaded; it is
*online* where one carried value corrects another. Pointers that are moved on carry nothing
of what was loaded, so they do not count.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from evaluator.normal_form import nodes_in
from evolver.descriptors import jit_functions
from evolver.strategy_kinds import (
    Grid,
    Launches,
    Reduction,
    Strategy,
    host_launches,
    launches_of,
    most_in_a_row,
    plainest_last,
)

_REDUCERS = frozenset(
    {"sum", "max", "min", "argmax", "argmin", "reduce", "xor_sum", "softmax", "sort", "topk",
     "cumsum", "cumprod", "associative_scan", "dot", "dot_scaled"}
)  # fmt: skip
_ATOMICS = frozenset({"atomic_add", "atomic_max", "atomic_min", "atomic_and", "atomic_or"})
_LOADED = "<loaded>"
_CORRECTS = "<corrects>"

_Loop = ast.For | ast.While
_Words = Mapping[str, frozenset[str]]


def triton_strategy(tree: ast.Module) -> Strategy:
    """Return the strategy of the kernels in a module."""
    functions = {f.name: f for f in jit_functions(tree)}
    words = _words_by_function(functions)
    kernels = [_read(function, words) for function in functions.values()]
    said = frozenset().union(*words.values()) if words else frozenset()
    launches = launches_of(host_launches(tree, _is_launch, device=functions.values()))
    return Strategy(
        launches=launches,
        reduction=_reduction(kernels, launches),
        grid=max((k.grid for k in kernels), key=list(Grid).index, default=Grid.TILED),
        tensor_cores=bool(said & {"dot", "dot_scaled"}),
    )


@dataclass(frozen=True)
class _Kernel:
    """What was found in one Triton function, a kernel or a helper."""

    reduction: Reduction
    grid: Grid
    axes: int
    """Axes of the grid that it asks for."""


def _reduction(kernels: list[_Kernel], launches: Launches) -> Reduction:
    found = plainest_last(k.reduction for k in kernels)
    reducing = [k for k in kernels if k.reduction is not Reduction.NONE]
    is_shared_out = any(k.axes > 1 for k in reducing)
    if launches is Launches.SPLIT and len(reducing) > 1 and is_shared_out:
        return Reduction.SPLIT  # the second kernel gathers what the programs of the first found
    return found


def _is_launch(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Subscript)


def _read(function: ast.FunctionDef, words: _Words) -> _Kernel:
    derived = _derived_from_program(function)
    grids: list[Grid] = []
    gathering: list[_Flow] = []

    def pass_of(statement: ast.stmt) -> int | None:
        if not isinstance(statement, ast.For | ast.While):
            return None if hasattr(statement, "body") else 0
        grid = _grid_of_loop(statement, derived, words)
        if grid is not None:
            grids.append(grid)
            return None
        flow = _Flow.through(statement, words)
        if flow.carried:
            gathering.append(flow)
        return int("load" in _said_in(statement, words))

    passes = most_in_a_row(function.body, pass_of)
    return _Kernel(
        reduction=_form(words[function.name], passes, gathering),
        grid=max(grids, key=list(Grid).index, default=Grid.TILED),
        axes=_grid_axes(function),
    )


def _form(said: frozenset[str], passes: int, gathering: list[_Flow]) -> Reduction:
    if said & _ATOMICS:
        return Reduction.SPLIT
    if any(flow.corrects for flow in gathering):
        return Reduction.ONLINE
    if gathering:
        return Reduction.TWO_PASS if passes > 1 else Reduction.LOOPED
    return Reduction.SINGLE_BLOCK if said & _REDUCERS else Reduction.NONE


def _grid_of_loop(loop: _Loop, derived: frozenset[str], words: _Words) -> Grid | None:
    """Return how a loop deals out tiles; None where it goes over one tile's data.

    It begins at the program's own number, and finishes a tile in each round.
    """
    if not any(word == "store" or word in _ATOMICS for word in _said_in(loop, words)):
        return None
    if isinstance(loop, ast.While):
        return Grid.PERSISTENT if _names(loop.test) & derived else None
    bounds = loop.iter.args if isinstance(loop.iter, ast.Call) else []
    begins_at_program = len(bounds) > 1 and (
        bool(_names(bounds[0]) & derived) or _asks_for_program(bounds[0])
    )
    if not begins_at_program:
        return None
    return Grid.PERSISTENT if len(bounds) > 2 else Grid.CHUNKED


def _derived_from_program(function: ast.FunctionDef) -> frozenset[str]:
    """Return the names that are computed from the program's number, at the function's level."""
    derived: set[str] = set()
    for node in function.body:
        if isinstance(node, ast.Assign) and (
            _asks_for_program(node.value) or _names(node.value) & derived
        ):
            derived |= {n for target in node.targets for n in _names(target)}
    return frozenset(derived)


def _asks_for_program(node: ast.AST) -> bool:
    return any(_called(n) == "program_id" for n in nodes_in(node))


def _grid_axes(function: ast.FunctionDef) -> int:
    asked = {
        ast.dump(axis)
        for n in nodes_in(function)
        if isinstance(n, ast.Call) and _called(n) == "program_id"
        for axis in [*n.args, *(k.value for k in n.keywords)]
    }
    return len(asked)


class _Flow(ast.NodeVisitor):
    """What flows through one round of a loop."""

    def __init__(self, words: _Words) -> None:
        self._words = words
        self._written: set[str] = set()
        self._read_first: set[str] = set()
        self._sources: dict[str, set[str]] = {}
        self.carried: set[str] = set()
        self.corrects = False

    @classmethod
    def through(cls, loop: _Loop, words: _Words) -> _Flow:
        """Follow the statements of ``loop``."""
        flow = cls(words)
        for statement in loop.body:
            flow.visit(statement)
        flow._close()
        flow.carried = {
            name
            for name in flow._read_first & flow._written
            if {name, _LOADED} <= flow._sources.get(name, set())
        }
        flow.corrects = len(flow.carried) > 1 and flow._has_correction(loop)
        return flow

    def visit_Assign(self, node: ast.Assign) -> None:
        """Read the value, then write the targets."""
        self._assign(node.value, node.targets)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """Read the value, then write the target."""
        if node.value is not None:
            self._assign(node.value, [node.target])

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        """Read target and value, then write the target."""
        self._read(_names(node.target))
        self._assign(node.value, [node.target])
        for name in _names(node.target):
            self._sources.setdefault(name, set()).add(name)

    def visit_Name(self, node: ast.Name) -> None:
        """Note a read or a write elsewhere."""
        if isinstance(node.ctx, ast.Store):
            self._written.add(node.id)
        else:
            self._read({node.id})

    def _read(self, names: set[str]) -> None:
        self._read_first |= names - self._written

    def _assign(self, value: ast.expr, targets: list[ast.expr]) -> None:
        self.visit(value)
        sources = _names(value)
        if "load" in _said_in(value, self._words):
            sources = sources | {_LOADED}
        for name in {n for target in targets for n in _names(target)}:
            self._written.add(name)
            self._sources.setdefault(name, set()).update(sources)

    def _close(self) -> None:
        """Follow every name back to all that it is made of."""
        changed = True
        while changed:
            changed = False
            for found in self._sources.values():
                more = set().union(*(self._sources.get(name, set()) for name in found))
                changed |= not more <= found
                found |= more

    def _has_correction(self, loop: _Loop) -> bool:
        return any(self._is_correction(node) for s in loop.body for node in nodes_in(s))

    def _is_correction(self, node: ast.AST) -> bool:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub | ast.Mult | ast.Div):
            return bool(_names(node) & self.carried)
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            return False
        given = set().union(*(_names(a) for a in node.args)) & self.carried
        return len(given) > 1 and _CORRECTS in self._words.get(node.func.id, frozenset())


def _words_by_function(functions: Mapping[str, ast.FunctionDef]) -> _Words:
    """Return which functions each function calls, what its helpers call included."""
    said = {name: set(_own_words(f)) for name, f in functions.items()}
    for _ in said:
        for words in said.values():
            for helper in words & said.keys():
                words |= said[helper]
    return {name: frozenset(words) for name, words in said.items()}


def _own_words(node: ast.AST) -> Iterator[str]:
    for n in nodes_in(node):
        called = _called(n)
        if called is not None:
            yield called
        if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Sub | ast.Mult | ast.Div):
            yield _CORRECTS


def _said_in(node: ast.AST, words: _Words) -> set[str]:
    own = set(_own_words(node))
    return own.union(*(words[helper] for helper in own & words.keys()))


def _called(node: ast.AST) -> str | None:
    """Return the last name of what is called: ``load`` of ``tl.load(...)``."""
    if not isinstance(node, ast.Call):
        return None
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else None


def _names(node: ast.AST) -> set[str]:
    return {n.id for n in nodes_in(node) if isinstance(n, ast.Name)}
