"""Reference and workloads to one functional ATen graph per group of workloads.

The trace runs on fake tensors: no memory, no kernels, no device. In-place writes become
``copy_`` onto the inputs at the end of the graph; a returned argument is recorded as that
argument rather than as an output of the graph. Dimensions that differ between workloads
are symbols whose range starts at one; what the trace had to assume about them is in
``TracedGraph.guards``.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv
from torch.fx.traceback import preserve_node_meta
from torch.utils._sympy.value_ranges import ValueRanges

from .reference import FlatFunction
from .workloads import Dimension, EmissionFailed, Group, Scalar


@dataclass(frozen=True)
class ReturnedValue:
    """One value that the reference returns: an output of the graph, an argument, or a scalar."""

    graph_output: int | None = None
    argument: str | None = None
    constant: Scalar = None


@dataclass
class TracedGraph:
    """A functional graph over the group's tensors (aliases of earlier arguments left out)."""

    module: torch.fx.GraphModule
    group: Group
    input_names: tuple[str, ...]
    """The parameter behind each placeholder, in order."""
    examples: tuple[torch.Tensor, ...]
    """Fake tensors on the target device, one per placeholder."""
    returns: tuple[ReturnedValue, ...]
    returns_tuple: bool
    written: tuple[str, ...]
    """Parameters that the graph writes by ``copy_``."""
    fake_mode: FakeTensorMode
    shape_env: ShapeEnv
    symbols: dict[str, Any]
    """The shape environment's symbol for each of the group's symbols."""

    def copy_module(self) -> torch.fx.GraphModule:
        """A copy for a compiler that rewrites its graph in place."""
        return copy.deepcopy(self.module)

    def guards(self) -> list[str]:
        """What was assumed so far about the group's symbols, by the trace and by later lowering.

        Each is a Python expression over the symbols.
        """
        from torch.utils._sympy.printers import PythonPrinter

        renamed = {str(symbol): name for name, symbol in self.symbols.items()}
        printed = [PythonPrinter().doprint(guard.expr) for guard in self.shape_env.guards]
        return [re.sub(r"[A-Za-z_]\w*", lambda m: renamed.get(m[0], m[0]), p) for p in printed]


def trace_group(
    function: FlatFunction, group: Group, device: str, *, eager_rounding: bool = True
) -> TracedGraph:
    """Trace ``function`` over ``group`` for ``device`` ("cpu" or "cuda:0").

    With ``eager_rounding`` the graph records where eager rounds to a 16-bit type.
    For CUDA this runs inside ``fake_cuda.cuda_target()``.

    Raises:
        EmissionFailed: the reference cannot be traced; the message has torch's reason.
    """
    from torch._dispatch.python import enable_python_dispatcher
    from torch._inductor import config
    from torch._inductor.decomposition import select_decomp_table

    shape_env = ShapeEnv()
    fake_mode = FakeTensorMode(allow_non_fake_inputs=True, shape_env=shape_env)
    sizes, symbols = _make_symbols(group, shape_env)
    with fake_mode:
        inputs = _fake_inputs(group, sizes, device)
    names = tuple(t.name for t in group.tensors if t.alias_of is None)
    examples = tuple(inputs[n] for n in names)
    flat = _Flattened(function, group, names)
    # Preserved metadata carries the name of the ATen operator, from which kernels get theirs.
    with (
        torch.no_grad(),
        fake_mode,
        enable_python_dispatcher(),
        preserve_node_meta(),
        config.patch(emulate_precision_casts=eager_rounding),
        _default_device(device),
    ):
        try:
            functional = torch.func.functionalize(flat, remove="mutations")
            module = make_fx(functional, decomposition_table=select_decomp_table())(*examples)
        except EmissionFailed:
            raise
        except Exception as error:
            raise EmissionFailed(
                f"the reference cannot be traced: {type(error).__name__}: {error}"
            ) from error
    module.graph.eliminate_dead_code()
    module.recompile()
    return TracedGraph(
        module=module,
        group=group,
        input_names=names,
        examples=examples,
        returns=flat.returns,
        returns_tuple=flat.returns_tuple,
        written=_written(module, names),
        fake_mode=fake_mode,
        shape_env=shape_env,
        symbols=symbols,
    )


@contextlib.contextmanager
def _default_device(device: str) -> Iterator[None]:
    """References that call ``torch.arange(n)`` without a device mean their inputs' device."""
    if device == "cpu":
        yield
        return
    with torch.device(device):
        yield


def _make_symbols(group: Group, shape_env: ShapeEnv) -> tuple[dict[str, Any], dict[str, Any]]:
    from torch._dynamo.source import ConstantSource

    hints = {d.symbol: d.size for t in group.tensors for d in t.dimensions if d.symbol is not None}
    sizes: dict[str, Any] = {}
    symbols: dict[str, Any] = {}
    for name, hint in hints.items():
        # An unspecified symbol is neither specialised to 0 or 1 nor merged with an equal one.
        size = shape_env.create_unspecified_symint_and_symbol(
            hint, ConstantSource(name), DimDynamic.DYNAMIC
        )
        symbol = size.node.expr  # type: ignore[union-attr]
        shape_env.var_to_range[symbol] = ValueRanges(1, 2**31 - 1)
        sizes[name], symbols[name] = size, symbol
    return sizes, symbols


def _fake_inputs(group: Group, sizes: dict[str, Any], device: str) -> dict[str, torch.Tensor]:
    inputs: dict[str, torch.Tensor] = {}
    for tensor in group.tensors:
        if tensor.alias_of is not None:
            continue
        shape = [_extent(d, sizes) for d in tensor.dimensions]
        dtype = getattr(torch, tensor.dtype)
        if tensor.strides is None:
            inputs[tensor.name] = torch.empty(shape, dtype=dtype, device=device)
        else:
            inputs[tensor.name] = torch.empty_strided(
                shape, tensor.strides, dtype=dtype, device=device
            )
    return inputs


def _extent(dimension: Dimension, sizes: dict[str, Any]) -> Any:
    return dimension.size if dimension.symbol is None else sizes[dimension.symbol]


class _Flattened:
    """The reference as a function from the group's tensors to a tuple of tensors.

    After the call it knows what the reference returned and in which form.
    """

    def __init__(self, function: FlatFunction, group: Group, names: Sequence[str]) -> None:
        self._function = function
        self._group = group
        self._names = names
        self.returns: tuple[ReturnedValue, ...] = ()
        self.returns_tuple = False

    def __call__(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        by_name: dict[str, Any] = dict(zip(self._names, tensors, strict=True))
        for tensor in self._group.tensors:
            if tensor.alias_of is not None:
                by_name[tensor.name] = by_name[tensor.alias_of]
        by_name.update(self._group.scalars)
        order = self._group.workloads[0].values
        result = self._function(*(by_name[name] for name in order))
        self.returns_tuple = isinstance(result, tuple | list)
        values = tuple(result) if isinstance(result, tuple | list) else (result,)
        return self._split(values, {id(t): n for n, t in zip(self._names, tensors, strict=True)})

    def _split(self, values: tuple[Any, ...], arguments: dict[int, str]) -> tuple[Any, ...]:
        outputs: list[torch.Tensor] = []
        returns: list[ReturnedValue] = []
        for value in values:
            if id(value) in arguments:
                returns.append(ReturnedValue(argument=arguments[id(value)]))
            elif isinstance(value, torch.Tensor):
                returns.append(ReturnedValue(graph_output=len(outputs)))
                outputs.append(value)
            elif value is None or isinstance(value, bool | int | float | str):
                returns.append(ReturnedValue(constant=value))
            else:
                raise EmissionFailed(
                    f"the reference returns a {type(value).__name__}; "
                    "only tensors, and tuples of tensors, can be compiled"
                )
        self.returns = tuple(returns)
        return tuple(outputs)


def _written(module: torch.fx.GraphModule, names: Sequence[str]) -> tuple[str, ...]:
    placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
    by_node = dict(zip(placeholders, names, strict=True))
    targets = [n.args[0] for n in module.graph.nodes if n.target is torch.ops.aten.copy_.default]
    return tuple(dict.fromkeys(by_node[t] for t in targets if t in by_node))


_SHAPE_ONLY = frozenset(
    {"sym_size", "expand", "view", "reshape", "_reshape_copy", "slice", "unsqueeze", "squeeze"}
)


def holds_for_one(function: FlatFunction, traced: TracedGraph, device: str) -> bool:
    """Whether ``traced`` also computes what the reference does where a symbol's size is one.

    A trace with each symbol set to one must perform the same operations: a reference that
    branches on size one does not. A symbol that the trace found to follow from others (one
    more than the batch) takes the value that it then has.
    """
    for name, symbol in traced.symbols.items():
        if symbol in traced.shape_env.replacements:
            continue
        try:
            static = trace_group(function, _with_size_one(traced, name), device)
        except EmissionFailed:
            return False
        if _operations(static.module) != _operations(traced.module):
            return False
    return True


def _with_size_one(traced: TracedGraph, symbol: str) -> Group:
    group, one = traced.group, traced.symbols[symbol]
    sizes = {symbol: 1}
    for name, other in traced.symbols.items():
        follows = traced.shape_env.replacements.get(other)
        if follows is not None and follows.free_symbols == {one}:
            sizes[name] = int(follows.subs({one: 1}))

    def fixed(dimension: Dimension) -> Dimension:
        size = sizes.get(dimension.symbol or "")
        return dimension if size is None else Dimension(size)

    tensors = tuple(
        dataclasses.replace(t, dimensions=tuple(fixed(d) for d in t.dimensions))
        for t in group.tensors
    )
    remaining = {k: v for k, v in group.symbols.items() if k not in sizes}
    return dataclasses.replace(group, tensors=tensors, symbols=remaining)


def _operations(module: torch.fx.GraphModule) -> list[str]:
    names: list[str] = []
    for node in module.graph.nodes:
        if node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload):
            name = node.target._schema.name.split("::")[-1]
            if name not in _SHAPE_ONLY:
                names.append(name)
    return names
