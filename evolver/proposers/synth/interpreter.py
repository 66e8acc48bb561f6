"""Row programs in plain torch, one call per node: what emitted kernels are compared with.

It is an oracle, not a fast path: it runs on the CPU, in the order of the nodes, and each result
is checked against the node's type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from evolver.proposers.synth import ir


@dataclass(frozen=True)
class Outcome:
    """What a program gives for some inputs."""

    returned: tuple[Any, ...]
    written: Mapping[str, torch.Tensor]
    """By argument, all of its new elements; the inputs themselves stay as they are."""


def run(program: ir.Program, inputs: Mapping[str, torch.Tensor]) -> Outcome:
    """Run ``program``.

    Raises:
        ValueError: the inputs' shapes do not agree with the program's.
    """
    sizes = sizes_of(program, inputs)
    values: list[torch.Tensor] = []
    for number, node in enumerate(program.nodes):
        operands = [values[i] for i in node.operands]
        value = evaluate(node.op, operands, inputs, sizes)
        shape = tuple(extent.at(sizes) for extent in node.type.shape)
        if tuple(value.shape) != shape or value.dtype != torch_dtype(node.type.dtype):
            raise ValueError(f"%{number} is {value.dtype} {tuple(value.shape)}, not {node.type}")
        values.append(value)
    written = {parameter: values[node] for parameter, node in program.writes}
    returned = tuple(_returned(r, values, {**inputs, **written}) for r in program.returns)
    return Outcome(returned, written)


def sizes_of(program: ir.Program, inputs: Mapping[str, torch.Tensor]) -> dict[str, int]:
    """Return what the symbols are for these inputs."""
    found: dict[str, int] = {}
    for node in program.nodes:
        if isinstance(node.op, ir.Input):
            for extent, size in zip(node.type.shape, inputs[node.op.parameter].shape, strict=True):
                if extent.terms and len(extent.symbols) == 1 and str(extent) in extent.symbols:
                    found[str(extent)] = size
    return found


def torch_dtype(dtype: ir.ElementType) -> torch.dtype:
    """The element type of the same name."""
    found = getattr(torch, dtype.value)
    assert isinstance(found, torch.dtype)
    return found


def _returned(value: ir.Returned, values: Sequence[torch.Tensor], named: Mapping[str, Any]) -> Any:
    if value.node is not None:
        return values[value.node]
    return named[value.argument] if value.argument is not None else value.constant


def evaluate(
    op: ir.Op,
    operands: Sequence[torch.Tensor],
    inputs: Mapping[str, torch.Tensor],
    sizes: Mapping[str, int],
) -> torch.Tensor:
    """Return what one operation gives for its operands."""
    match op:
        case ir.Input(parameter):
            return inputs[parameter]
        case ir.Constant(value, dtype):
            number = value.at(sizes) if isinstance(value, ir.Extent) else value
            return torch.tensor(number, dtype=torch_dtype(dtype))
        case ir.Iota(length, dtype):
            return torch.arange(length.at(sizes), dtype=torch_dtype(dtype))
        case ir.Pointwise(function):
            return _POINTWISE[function](*operands)
        case ir.Select():
            return torch.where(operands[0], operands[1], operands[2])
        case ir.Cast(dtype):
            return operands[0].to(torch_dtype(dtype))
        case ir.Reduce() | ir.Scan() | ir.Matmul() | ir.Convolution():
            return _computed(op, operands)
        case ir.TopK() | ir.ArgSort() | ir.Gather() | ir.Scatter() | ir.Take() | ir.Put():
            return _selected(op, operands)
    return _moved(op, operands, sizes)


def _computed(op: ir.Op, operands: Sequence[torch.Tensor]) -> torch.Tensor:
    x = operands[0]
    match op:
        case ir.Reduce(kind, axes) if kind.startswith("arg"):
            return _first_extreme(x, kind, axes[0])
        case ir.Reduce("sum", axes):
            return x.sum(axes, dtype=x.dtype)
        case ir.Reduce("prod", axes):
            for axis in sorted(axes, reverse=True):
                x = x.prod(axis, dtype=x.dtype)
            return x
        case ir.Reduce(kind, axes):
            function = {"max": "amax", "min": "amin"}.get(kind, kind)
            return getattr(x, function)(dim=axes)  # type: ignore[no-any-return]
        case ir.Scan(kind, axis):
            return _SCANS[kind](x, axis)
        case ir.Matmul():
            return torch.matmul(*operands)
        case ir.Convolution():
            function = getattr(torch.nn.functional, f"conv{len(op.stride)}d")
            return function(  # type: ignore[no-any-return]
                x, operands[1], None, op.stride, op.padding, op.dilation, op.groups
            )
    raise AssertionError(op)


def _first_extreme(x: torch.Tensor, kind: str, axis: int) -> torch.Tensor:
    """The first position of the extreme, or of a NaN."""
    extreme = (x.amax if kind == "argmax" else x.amin)(axis, keepdim=True)
    hit = torch.isnan(x) if x.is_floating_point() else torch.zeros_like(x, dtype=torch.bool)
    return ((x == extreme) | hit).to(torch.int8).argmax(axis)


_SCANS: Mapping[str, Callable[[torch.Tensor, int], torch.Tensor]] = {
    "sum": lambda x, axis: x.cumsum(axis, dtype=x.dtype),
    "prod": lambda x, axis: x.cumprod(axis, dtype=x.dtype),
    "max": lambda x, axis: x.cummax(axis).values,
    "min": lambda x, axis: x.cummin(axis).values,
    "logsumexp": lambda x, axis: x.logcumsumexp(axis),
}


def _selected(op: ir.Op, operands: Sequence[torch.Tensor]) -> torch.Tensor:
    x = operands[0]
    match op:
        case ir.TopK(k, axis, largest):
            order = torch.sort(x, dim=axis, descending=largest, stable=True).indices
            return order.narrow(axis, 0, k)
        case ir.ArgSort(axis, descending):
            return torch.sort(x, dim=axis, descending=descending, stable=True).indices
        case ir.Gather(axis):
            return torch.gather(x, axis, operands[1].long())
        case ir.Scatter(axis, "store"):
            return x.scatter(axis, operands[1].long(), operands[2])
        case ir.Scatter(axis, combine):
            name = _COMBINED.get(combine, combine)
            return x.scatter_reduce(axis, operands[1].long(), operands[2], name)
        case ir.Take():
            return x[tuple(o.long() for o in operands[1:])]
        case ir.Put(combine):
            return _put(combine, x, operands[1], [o.long() for o in operands[2:]])
    raise AssertionError(op)


_COMBINED = {"max": "amax", "min": "amin"}


def _put(
    combine: str, base: torch.Tensor, source: torch.Tensor, indices: Sequence[torch.Tensor]
) -> torch.Tensor:
    """Over the flattened leading axes, where it is a scatter of whole rows."""
    count = len(indices)
    place = torch.zeros_like(indices[0])
    for extent, index in zip(base.shape[:count], indices, strict=True):
        place = place * extent + index
    flat = base.reshape(-1, *base.shape[count:]).clone()
    rows = source.reshape(-1, *base.shape[count:])
    place = place.reshape(-1)
    if combine == "store":
        flat[place] = rows
    elif combine == "sum":
        flat.index_add_(0, place, rows)
    else:
        flat.index_reduce_(0, place, rows, _COMBINED.get(combine, combine))
    return flat.reshape(base.shape)


def _moved(op: ir.Op, operands: Sequence[torch.Tensor], sizes: Mapping[str, int]) -> torch.Tensor:
    x = operands[0]
    match op:
        case ir.Reshape(shape):
            return x.reshape([e.at(sizes) for e in shape])
        case ir.Permute(order):
            return x.permute(order)
        case ir.Expand(shape):
            return x.expand([e.at(sizes) for e in shape])
        case ir.Slice(axis, start, length, step):
            places = start.at(sizes) + step * torch.arange(length.at(sizes))
            return x.index_select(axis, places)
        case ir.Concat(axis):
            return torch.cat(list(operands), axis)
        case ir.Pad(axis, before, after):
            ends = [
                operands[1].expand([*x.shape[:axis], amount.at(sizes), *x.shape[axis + 1 :]])
                for amount in (before, after)
            ]
            return torch.cat([ends[0], x, ends[1]], axis)
        case ir.Update(axis, start, step):
            region = operands[1]
            places = start.at(sizes) + step * torch.arange(region.shape[axis])
            return x.index_copy(axis, places, region)
    raise AssertionError(op)


def _divided(mode: str) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    return lambda a, b: torch.div(a, b, rounding_mode=mode)


_POINTWISE: Mapping[str, Callable[..., torch.Tensor]] = {
    **{
        name: getattr(torch, name)
        for name in (
            *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt"),
            *("reciprocal", "sin", "cos", "tan", "sinh", "cosh", "tanh", "asin", "acos", "atan"),
            *("sigmoid", "erf", "erfc", "floor", "ceil", "trunc", "round", "neg", "abs", "sign"),
            *("isnan", "isinf", "add", "sub", "mul", "div", "remainder", "fmod", "pow", "atan2"),
            *("maximum", "minimum", "eq", "ne", "lt", "le", "gt", "ge"),
        )
    },
    "floor_div": _divided("floor"),
    "trunc_div": _divided("trunc"),
    "not": torch.bitwise_not,
    "and": torch.bitwise_and,
    "or": torch.bitwise_or,
    "xor": torch.bitwise_xor,
    "shift_left": torch.bitwise_left_shift,
    "shift_right": torch.bitwise_right_shift,
}
