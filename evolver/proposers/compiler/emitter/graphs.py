"""The traced graphs themselves, for a lowering of our own: ATen nodes as JSON.

Every node says which operator it is, its arguments, the types that it gives, and the line of
the reference that it comes from. Nothing here decides what can be lowered.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import sys
import traceback
from typing import Any

import torch
from torch.fx.traceback import set_stack_trace
from torch.overrides import TorchFunctionMode
from torch.utils._sympy.printers import PythonPrinter

from .fake_cuda import DEVICE, cuda_target
from .plan import Traces, groups_to_trace
from .reference import REFERENCE_FILE, FlatFunction, flat_function
from .tracing import TracedGraph
from .workloads import EmissionFailed, Request, group_workloads

LONGEST_CONSTANT = 64
"""Elements of a tensor that the reference makes from numbers; more is data, not code."""


def emit_graphs(request: Request) -> list[dict[str, Any]]:
    """The graph of each group of workloads.

    Raises:
        EmissionFailed: the reference cannot be loaded or captured; with the line, where one is
            to blame.
    """
    function = _with_lines(flat_function(request))
    on_cpu = request.backend == "cpp"
    with contextlib.nullcontext() if on_cpu else cuda_target():
        traces = Traces(function, "cpu" if on_cpu else DEVICE)
        plan = groups_to_trace(traces, group_workloads(request.workloads, request.varying))
        graphs = [traces.get(group) for group in plan]
        return [_graph(traced, traces.conditions(traced)) for traced in graphs]


class _Lines(TorchFunctionMode):
    """Attaches to what is traced the line of the reference that runs."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        frame = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename != REFERENCE_FILE:
            frame = frame.f_back  # type: ignore[assignment]
        if frame is not None:
            set_stack_trace([str(frame.f_lineno)])
        if func is torch.nn.functional.linear:
            func = _linear
        return func(*args, **(kwargs or {}))


def _linear(x: Any, weight: Any, bias: Any = None) -> Any:
    """Torch's own flattens many axes with their sizes as numbers, which burns them in."""
    if x.dim() <= 2:
        return torch._C._nn.linear(x, weight, bias)
    flat = torch._C._nn.linear(x.reshape(-1, x.shape[-1]), weight, bias)
    return flat.reshape(*x.shape[:-1], weight.shape[0])


def _with_lines(function: FlatFunction) -> FlatFunction:
    def call(*values: Any) -> Any:
        try:
            with _Lines():
                return function(*values)
        except EmissionFailed:
            raise
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)
            mine = [f for f in frames if f.filename == REFERENCE_FILE]
            if not mine:
                raise
            text = " ".join(str(error).split())[:400]
            raise EmissionFailed(
                f"line {mine[-1].lineno}: `{mine[-1].line}` cannot be captured: "
                f"{type(error).__name__}: {text}"
            ) from error

    return call


def _graph(traced: TracedGraph, conditions: list[str]) -> dict[str, Any]:
    writer = _Writer(traced)
    group = dataclasses.asdict(traced.group)
    group["conditions"] = conditions
    group["workloads"] = [w.name for w in traced.group.workloads]
    nodes, outputs = writer.nodes()
    return {
        "group": group,
        "inputs": list(traced.input_names),
        "nodes": nodes,
        "outputs": outputs,
        "returns": [dataclasses.asdict(r) for r in traced.returns],
        "returns_tuple": traced.returns_tuple,
    }


class _Writer:
    def __init__(self, traced: TracedGraph) -> None:
        self._module = traced.module
        self._names = {str(symbol): name for name, symbol in traced.symbols.items()}

    def nodes(self) -> tuple[list[dict[str, Any]], list[Any]]:
        """All nodes that give tensors, and the graph's outputs."""
        found: list[dict[str, Any]] = []
        outputs: list[Any] = []
        for node in self._module.graph.nodes:
            if node.op == "output":
                outputs = self._value(list(node.args[0]))
            elif not isinstance(node.meta.get("val"), torch.SymInt | int):
                found.append(self._node(node))
        return found, outputs

    def _node(self, node: torch.fx.Node) -> dict[str, Any]:
        value = node.meta.get("val")
        arguments: Any = node.args
        if node.op == "get_attr":
            value = getattr(self._module, str(node.target))
            arguments = [self._constant(value)]
        line = node.stack_trace
        return {
            "name": node.name,
            "target": self._target(node),
            "args": self._value(list(arguments)),
            "kwargs": {k: self._value(v) for k, v in node.kwargs.items()},
            "types": [self._type(v) for v in _each(value)],
            "line": int(line) if line is not None and line.isdigit() else None,
        }

    def _target(self, node: torch.fx.Node) -> str:
        if node.op in ("placeholder", "get_attr"):
            return {"placeholder": "input", "get_attr": "constant"}[node.op]
        if isinstance(node.target, torch._ops.OpOverload):
            return str(node.target)
        return getattr(node.target, "__name__", str(node.target))

    def _constant(self, value: torch.Tensor) -> Any:
        if value.numel() > LONGEST_CONSTANT:
            raise EmissionFailed(
                f"the reference holds a tensor of {value.numel()} numbers; make it an argument"
            )
        with torch.utils._python_dispatch._disable_current_modes():
            return value.tolist()

    def _type(self, value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, torch.Tensor):
            raise EmissionFailed(f"the reference computes a {type(value).__name__} from tensors")
        shape = [self._size(extent) for extent in value.shape]
        return {"shape": shape, "dtype": str(value.dtype).removeprefix("torch.")}

    def _value(self, value: Any) -> Any:
        if isinstance(value, torch.fx.Node):
            held = value.meta.get("val")
            if isinstance(held, torch.SymInt | int):
                return {"size": self._size(held)}
            return {"node": value.name}
        if isinstance(value, list | tuple):
            return [self._value(v) for v in value]
        if isinstance(value, torch.SymInt):
            return {"size": self._size(value)}
        if isinstance(value, torch.dtype):
            return {"dtype": str(value).removeprefix("torch.")}
        if value is None or isinstance(value, bool | int | float | str):
            return value
        return {"other": str(value)[:100]}

    def _size(self, value: Any) -> str:
        if not isinstance(value, torch.SymInt):
            return str(int(value))
        text = PythonPrinter().doprint(value.node.expr)
        return re.sub(r"[A-Za-z_]\w*", lambda m: self._names.get(m[0], m[0]), text)


def _each(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]
