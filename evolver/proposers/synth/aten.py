"""Traced graphs as they come back from the sandbox: ATen nodes, checked for their form.

The sandbox runs the reference, so nothing of its reply is trusted: names are identifiers,
types are known ones, nodes read earlier nodes, and what cannot be read is a ``TraceFailed``.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, ValidationError, model_validator

from evaluator.candidate import BackendName
from evaluator.problem import Identifier, LoadedProblem
from evaluator.records import Record, complaint
from evaluator.sandbox import Sandbox
from evolver.proposers.compiler.process import EmitterProcess
from evolver.proposers.synth.types import ElementType

Text = Annotated[str, Field(max_length=200)]
Scalar = bool | int | float | str | None


class TraceFailed(Exception):
    """The reference cannot be captured as a graph; the message says why, with the line."""


class AtenType(Record):
    """Shape and element type of one result; extents are text, as ``2*s0``, types as in torch."""

    shape: tuple[Text, ...] = Field(max_length=16)
    dtype: Text


class AtenNode(Record):
    """One operator call. Arguments are JSON: ``{"node": name}``, ``{"size": text}``,
    ``{"dtype": name}``, ``{"other": text}``, numbers, text, null and lists of these."""

    name: Identifier
    target: Text
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    types: tuple[AtenType | None, ...]
    line: int | None = None


class AtenReturned(Record):
    """One returned value: an output of the graph, an argument, or a number."""

    graph_output: int | None = None
    argument: Identifier | None = None
    constant: Scalar = None


class AtenDimension(Record):
    """An extent: a number, or a symbol with the number that the trace took as its example."""

    size: int
    symbol: Identifier | None = None


class AtenTensor(Record):
    """One tensor parameter of the workloads that the graph serves."""

    name: Identifier
    dtype: ElementType
    dimensions: tuple[AtenDimension, ...]
    strides: tuple[int, ...] | None
    alias_of: Identifier | None


class AtenGroup(Record):
    """Which workloads a graph serves, and what is fixed in it."""

    tensors: tuple[AtenTensor, ...]
    scalars: dict[Identifier, Scalar]
    symbols: dict[Identifier, tuple[int, ...]]
    workloads: tuple[Text, ...]
    conditions: tuple[Text, ...] = ()
    """On the symbols, as Python, for the text of candidates; never evaluated here."""


class AtenGraph(Record):
    """A functional graph; writes are ``copy_`` onto inputs."""

    group: AtenGroup
    inputs: tuple[Identifier, ...]
    """The parameter behind each node ``input``, in order."""
    nodes: tuple[AtenNode, ...] = Field(max_length=5000)
    outputs: tuple[Any, ...]
    returns: tuple[AtenReturned, ...]
    returns_tuple: bool

    @model_validator(mode="after")
    def _is_a_graph(self) -> AtenGraph:
        known: set[str] = set()
        for node in self.nodes:
            if node.name in known or not all(
                n in known for n in nodes_in([node.args, node.kwargs])
            ):
                raise ValueError(f"node {node.name} is defined twice or reads what comes later")
            known.add(node.name)
        if not all(n in known for n in nodes_in(self.outputs)):
            raise ValueError("an output is no node")
        if sum(n.target == "input" for n in self.nodes) != len(self.inputs):
            raise ValueError("the inputs and their names differ in number")
        if len({len(v) for v in self.group.symbols.values()} | {len(self.group.workloads)}) > 1:
            raise ValueError("a symbol has not one value per workload")
        if any((r.graph_output or 0) not in range(max(1, len(self.outputs))) for r in self.returns):
            raise ValueError("a returned value is no output")
        return self


def nodes_in(value: Any) -> list[str]:
    """The names of all nodes that an argument mentions."""
    if isinstance(value, dict):
        if "node" in value:
            return [str(value["node"])]
        value = list(value.values())
    return [name for v in value for name in nodes_in(v)] if isinstance(value, list | tuple) else []


def trace(
    loaded: LoadedProblem, backend: BackendName, sandbox: Sandbox | None = None
) -> tuple[AtenGraph, ...]:
    """Capture the problem's reference in the sandbox: one graph per group of workloads.

    Raises:
        TraceFailed: it cannot be captured.
        SandboxUnavailable: nothing can be isolated here.
    """
    process = EmitterProcess(loaded, backend, sandbox, wants_graphs=True)
    try:
        reply = process.next()
    finally:
        process.close()
    if reply.failure is not None:
        raise TraceFailed(reply.failure)
    if not isinstance(reply.graphs, list) or not reply.graphs:
        raise TraceFailed("the sandbox sent no graph")
    try:
        return tuple(AtenGraph.model_validate(g) for g in reply.graphs)
    except ValidationError as error:
        raise TraceFailed(f"the traced graph cannot be read: {complaint(error)}") from error
