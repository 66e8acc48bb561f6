"""Row programs for tests: traced in this process, as the sandbox does it."""

from __future__ import annotations

from typing import Any

from evaluator.candidate import BackendName
from evaluator.problem import Contract, Entry, LoadedProblem, Output
from evaluator.workload import Workload
from evolver.proposers.compiler.emitter.graphs import emit_graphs
from evolver.proposers.compiler.emitter.workloads import EmissionFailed, request_from_json
from evolver.proposers.compiler.process import request_of
from evolver.proposers.synth.aten import AtenGraph
from evolver.proposers.synth.lowering import Lowered, lower
from tests.builders import make_problem

__all__ = ["EmissionFailed", "lowered", "lowered_function"]


def lowered(loaded: LoadedProblem) -> list[Lowered]:
    """The programs of a problem whose reference is ours, traced without a sandbox."""
    raw = {**request_of(loaded, BackendName.CPP), "wants_graphs": True}
    graphs = [AtenGraph.model_validate(g) for g in emit_graphs(request_from_json(raw))]
    return [lower(graph, loaded.reference_source) for graph in graphs]


def function_problem(source: str, **arguments: Any) -> LoadedProblem:
    """A problem of one function ``f`` and one workload with these arguments."""
    return make_problem(
        source=f"import torch\nimport torch.nn.functional as F\n\n\n{source}",
        entry=Entry(function="f", candidate_function="f"),
        arguments=tuple(arguments),
        contract=Contract(outputs=(Output(),), returns_tuple=False),
        workloads=(Workload(name="one", arguments=arguments),),
    )


def lowered_function(source: str, **arguments: Any) -> Lowered:
    """The program of such a problem."""
    (found,) = lowered(function_problem(source, **arguments))
    return found
