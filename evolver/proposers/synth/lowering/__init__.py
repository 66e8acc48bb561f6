"""From ATen graphs to row programs, operator by operator, by one table of rules.

Every result is compared with the type that the trace recorded, so a rule that misreads an
operator is a refusal, not a wrong kernel. Whatever cannot be lowered is gathered with its line
and the reason; there is a program only where nothing is left over.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from evaluator.candidate import BackendName
from evaluator.problem import LoadedProblem
from evaluator.sandbox import Sandbox
from evolver.proposers.synth import ir
from evolver.proposers.synth.aten import AtenGraph, AtenNode, nodes_in, trace
from evolver.proposers.synth.extents import ExtentError
from evolver.proposers.synth.lowering import (
    movements,
    pointwise,
    products,
    reductions,
    selections,
)
from evolver.proposers.synth.lowering.context import Call, NotLowered, Value, type_of
from evolver.proposers.synth.types import IrError

Rule = Callable[[Call], int] | Callable[[Call], tuple[int, ...]]

TABLE: Mapping[str, tuple[Rule, tuple[str, ...]]] = {
    **pointwise.RULES,
    **reductions.RULES,
    **selections.RULES,
    **movements.RULES,
    **products.RULES,
}
_CHECKS = ("aten._assert_async", "aten._assert_scalar", "aten.sym_constrain_range")
"""Of values, by which the reference refuses inputs; what it refuses, anything may be given for."""

_OVERLOADED = (pointwise.overloaded, reductions.overloaded, selections.overloaded)


@dataclass(frozen=True)
class Refusal:
    """What cannot be lowered, where it stands, and why."""

    operator: str
    line: int | None
    reason: str

    def __str__(self) -> str:
        place = "" if self.line is None else f"line {self.line}: "
        return f"{place}{self.operator}: {self.reason}"


@dataclass(frozen=True)
class Lowered:
    """A graph's program, or all reasons why there is none."""

    graph: AtenGraph
    program: ir.Program | None
    refusals: tuple[Refusal, ...] = ()


def lower(graph: AtenGraph, source: str = "") -> Lowered:
    """Lower ``graph``; names of values are taken from the reference's ``source``."""
    return _Lowering(graph, source).run()


def lower_problem(
    loaded: LoadedProblem, backend: BackendName, sandbox: Sandbox | None = None
) -> tuple[Lowered, ...]:
    """Capture the problem's reference in the sandbox and lower it, per group of workloads.

    Raises:
        TraceFailed: it cannot be captured.
        SandboxUnavailable: nothing can be isolated here.
    """
    graphs = trace(loaded, backend, sandbox)
    return tuple(lower(graph, loaded.reference_source) for graph in graphs)


class _Lowering:
    def __init__(self, graph: AtenGraph, source: str) -> None:
        self._graph = graph
        symbols = [ir.Symbol(name, values) for name, values in graph.group.symbols.items()]
        self._builder = ir.Builder(symbols)
        self._values: dict[str, Value] = {}
        self._refusals: list[Refusal] = []
        self._writes: dict[str, int] = {}
        self._inputs = iter(graph.inputs)
        self._parameters: dict[str, str] = {}
        self._names = assigned_names(source)
        self._labels: dict[str, int] = {}

    def run(self) -> Lowered:
        for node in self._graph.nodes:
            self._builder.line = node.line
            try:
                self._values[node.name] = self._value(node)
            except (NotLowered, IrError, ExtentError) as error:
                self._refuse(node, str(error))
            except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
                self._refuse(node, f"its arguments are not what the rule expects ({error!r})")
        program = None if self._refusals else self._finish()
        return Lowered(self._graph, program, tuple(self._refusals))

    def _refuse(self, node: AtenNode, reason: str) -> None:
        self._values[node.name] = None
        self._refusals.append(Refusal(node.target, node.line, reason))

    def _value(self, node: AtenNode) -> Value:
        if node.target == "input":
            return self._input(node)
        if any(self._values[name] is None for name in nodes_in([node.args, node.kwargs])):
            return None
        if node.target.startswith(_CHECKS):
            return None
        if node.target == "getitem":
            return self._item(node)
        if node.target == "aten.copy_.default":
            return self._write(node)
        found = rule_for(node.target)
        if found is None:
            raise NotLowered("no row program does this")
        rule, names = found
        value = rule(Call(node, names, self._builder, self._values))
        self._check(node, value)
        self._label(node, value)
        return value

    def _input(self, node: AtenNode) -> int:
        parameter, type_ = next(self._inputs), node.types[0]
        if type_ is None:
            raise NotLowered("an argument without a type")
        self._parameters[node.name] = parameter
        return self._builder.add(ir.Input(parameter, type_of(type_)))

    def _item(self, node: AtenNode) -> Value:
        values = self._values[node.args[0]["node"]]
        if not isinstance(values, tuple):
            raise NotLowered("one of several results of what has one")
        return values[int(node.args[1])]

    def _write(self, node: AtenNode) -> int:
        """``copy_`` onto an argument, at the end of a functional graph."""
        target, source = (str(a["node"]) for a in node.args[:2])
        value = self._values[source]
        if target not in self._parameters or not isinstance(value, int):
            raise NotLowered("a copy onto what is no argument")
        own = self._values[target]
        assert isinstance(own, int)
        wanted = self._builder.type(own)
        if self._builder.type(value).dtype is not wanted.dtype:
            value = self._builder.add(ir.Cast(wanted.dtype), value)
        if self._builder.type(value) != wanted:
            value = self._builder.add(ir.Expand(wanted.shape), value)
        self._writes[self._parameters[target]] = value
        return value

    def _check(self, node: AtenNode, value: int | tuple[int, ...]) -> None:
        values = value if isinstance(value, tuple) else (value,)
        for number, recorded in zip(values, node.types, strict=True):
            if recorded is None:
                continue
            wanted, found = type_of(recorded), self._builder.type(number)
            if wanted != found:
                raise NotLowered(f"the trace has {wanted} where the rule gives {found}")

    def _label(self, node: AtenNode, value: int | tuple[int, ...]) -> None:
        name = self._names.get(node.line or 0)
        if name is not None and isinstance(value, int):
            self._labels[name] = value

    def _finish(self) -> ir.Program | None:
        outputs = [self._output(raw) for raw in self._graph.outputs]
        returns = [
            ir.Returned(
                node=None if r.graph_output is None else outputs[r.graph_output],
                argument=r.argument,
                constant=r.constant,
            )
            for r in self._graph.returns
        ]
        labels = {number: name for name, number in self._labels.items()}
        writes = [(p, n) for p, n in self._writes.items() if not self._is_itself(p, n)]
        try:
            return self._builder.finish(
                returns, writes, returns_tuple=self._graph.returns_tuple, labels=labels
            )
        except IrError as error:
            self._refusals.append(Refusal("aten.copy_.default", None, str(error)))
            return None

    def _is_itself(self, parameter: str, number: int) -> bool:
        op = self._builder.node(number).op
        return isinstance(op, ir.Input) and op.parameter == parameter

    def _output(self, raw: Any) -> int | None:
        value = self._values[raw["node"]] if isinstance(raw, dict) and "node" in raw else None
        return value if isinstance(value, int) else None


def rule_for(target: str) -> tuple[Rule, tuple[str, ...]] | None:
    """The rule for an operator and its arguments' names in order, None where there is none."""
    for overloaded in _OVERLOADED:
        found = overloaded(target)
        if found is not None:
            return found
    return TABLE.get(target) or TABLE.get(target.rpartition(".")[0])


def assigned_names(source: str) -> dict[int, str]:
    """For each line of ``source`` within an assignment to one name, that name."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return {}
    found: dict[int, str] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Assign([ast.Name(name)]) | ast.AugAssign(ast.Name(name)):
                found |= dict.fromkeys(range(node.lineno, (node.end_lineno or 0) + 1), name)
    return found
