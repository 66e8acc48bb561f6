"""What comes back from the sandbox is checked before anything is made of it."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from evolver.proposers.synth.aten import AtenGraph
from evolver.proposers.synth.lowering import lower


def graph(**changes: Any) -> dict[str, Any]:
    """``return x + x`` as the sandbox would send it."""
    kind = {"shape": ["s0", "8"], "dtype": "float32"}
    add = {"args": [{"node": "x"}, {"node": "x"}], "kwargs": {}, "types": [kind], "line": 3}
    made = {
        "group": {
            "tensors": [
                {
                    "name": "x",
                    "dtype": "float32",
                    "dimensions": [{"size": 4, "symbol": "s0"}, {"size": 8}],
                    "strides": None,
                    "alias_of": None,
                }
            ],
            "scalars": {},
            "symbols": {"s0": [4, 6]},
            "workloads": ["small", "large"],
        },
        "inputs": ["x"],
        "nodes": [
            {"name": "x", "target": "input", "args": [], "kwargs": {}, "types": [kind]},
            {"name": "add", "target": "aten.add.Tensor", **add},
        ],
        "outputs": [{"node": "add"}],
        "returns": [{"graph_output": 0}],
        "returns_tuple": False,
    }
    return {**made, **changes}


def with_node(**changes: Any) -> dict[str, Any]:
    nodes = graph()["nodes"]
    return graph(nodes=[nodes[0], {**nodes[1], **changes}])


def test_a_well_formed_graph_is_lowered_with_its_lines() -> None:
    program = lower(
        AtenGraph.model_validate(graph()), "def f(x):\n    return (\n    x + x)"
    ).program
    assert program is not None
    assert program.text().splitlines() == [
        "s0 in {4, 6}",
        "%0 = input x : float32[s0, 8]",
        "%1 = add %0 %0 : float32[s0, 8]  # line 3",
        "return %1",
    ]


@pytest.mark.parametrize(
    "raw",
    [
        graph(inputs=["x; import os"]),
        graph(inputs=[]),
        graph(outputs=[{"node": "nowhere"}]),
        graph(returns=[{"graph_output": 3}]),
        graph(extra=1),
        with_node(name="x"),
        with_node(name="a b"),
        with_node(args=[{"node": "later"}, {"node": "x"}]),
        with_node(types=[{"shape": ["8"] * 99, "dtype": "float32"}]),
    ],
)
def test_a_malformed_graph_is_refused(raw: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        AtenGraph.model_validate(raw)


@pytest.mark.parametrize(
    "raw",
    [
        with_node(types=[{"shape": ["s0", "9"], "dtype": "float32"}]),
        with_node(types=[{"shape": ["s0", "8"], "dtype": "complex64"}]),
        with_node(types=[{"shape": ["s0//2", "8"], "dtype": "float32"}]),
        with_node(types=[None]),
        with_node(types=[]),
        with_node(args=[]),
        with_node(args=[{"node": "x"}, "8"]),
        with_node(args=[{"node": "x"}, {"size": "open('/etc/passwd')"}]),
        with_node(target="aten.no_such_operator.default"),
        with_node(target="getitem"),
        with_node(target="aten.copy_.default", args=[{"node": "x"}]),
    ],
)
def test_a_graph_that_lies_about_its_operators_has_no_program(raw: dict[str, Any]) -> None:
    found = lower(AtenGraph.model_validate(raw))
    assert found.program is None
    assert [refusal.line for refusal in found.refusals] == [3]
