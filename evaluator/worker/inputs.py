"""Tensors from a description and a seed: the same bytes in every process.

The supervisor and every worker draw inputs with this code, on the CPU, one generator per
argument seeded by (seed, name), so that adding an argument changes no other. ``arguments``
maps names to scalars or to the fields of ``evaluator.workload.TensorSpec``, to which the
supervisor may add a ``twist`` (``evaluator.workload.Twist``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import torch

_LARGE = {torch.float16: 2.0**6}
_TINY = {torch.float16: 2.0**-10}
"""What squares and sums of float16 bear; other types bear 2^10 and 2^-20."""
_TIED_VALUES = 4
_INFINITE_SHARE = 8

Place = Callable[[str, torch.Tensor], torch.Tensor]


def generate(
    arguments: Mapping[str, Any], *, seed: int, device: str = "cpu", place: Place | None = None
) -> dict[str, Any]:
    """Return a value for each argument; tensors lie on ``device`` with the strides asked for.

    ``place`` moves each tensor that is no alias to where it shall lie, before aliases are made.

    Raises:
        ValueError: strides overlap in a way that ``expand`` cannot make, or an alias does
            not fit in the storage of the argument that it names.
    """
    values: dict[str, Any] = {}
    for name, spec in arguments.items():
        if not isinstance(spec, Mapping):
            values[name] = spec
        elif spec.get("alias_of") is not None:
            values[name] = _alias(values[spec["alias_of"]], spec)
        else:
            made = _tensor(spec, seed, name, device)
            values[name] = made if place is None else place(name, made)
    return values


def _generator(seed: int, name: str) -> torch.Generator:
    digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:7], "little"))


def _alias(owner: torch.Tensor, spec: Mapping[str, Any]) -> torch.Tensor:
    shape, strides = tuple(spec["shape"]), spec.get("strides")
    if shape == tuple(owner.shape) and strides in (None, owner.stride()):
        return owner
    if strides is None:
        return owner.view(shape)
    return owner.as_strided(shape, tuple(strides))


def _tensor(spec: Mapping[str, Any], seed: int, name: str, device: str) -> torch.Tensor:
    shape, strides = tuple(spec["shape"]), spec.get("strides")
    dtype = getattr(torch, spec["dtype"])
    once = shape
    if strides is not None:
        once = tuple(1 if step == 0 else s for s, step in zip(shape, strides, strict=True))
    drawn = _draw(once, dtype, spec["values"], _generator(seed, name))
    if spec.get("twist") is not None and drawn.numel():
        chance = _generator(seed, f"{name}:{spec['twist']}")
        drawn = _twisted(drawn, spec["twist"], spec["values"], chance)
    if strides is None:
        return drawn.to(device)
    return _strided(drawn, shape, tuple(strides), device)


def _strided(
    drawn: torch.Tensor, shape: tuple[int, ...], strides: tuple[int, ...], device: str
) -> torch.Tensor:
    """``drawn`` with ``strides``; gaps hold zeros; a stride of 0 repeats one element."""
    if 0 in shape:
        return torch.empty_strided(shape, strides, dtype=drawn.dtype, device=device)
    extent = 1 + sum((s - 1) * step for s, step in zip(shape, strides, strict=True))
    storage = torch.zeros(extent, dtype=drawn.dtype)
    storage.as_strided(drawn.shape, strides).copy_(drawn)
    return storage.to(device).as_strided(shape, strides)


def _draw(
    shape: tuple[int, ...],
    dtype: torch.dtype,
    values: Mapping[str, Any],
    generator: torch.Generator,
) -> torch.Tensor:
    """Contiguous elements of ``shape`` as ``evaluator.workload.Values`` describes them."""
    kind, low, high = str(values["kind"]), values["low"], values["high"]
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    match kind:
        case "normal":
            drawn = torch.randn(shape, generator=generator, dtype=wide)
            drawn = drawn.mul_(values["std"]).add_(values["mean"])
        case "uniform":
            drawn = torch.rand(shape, generator=generator, dtype=wide).mul_(high - low).add_(low)
        case "integers":
            top = 2 if dtype == torch.bool else int(high)
            bottom = 0 if dtype == torch.bool else int(low)
            drawn = torch.randint(bottom, top, shape, generator=generator)
        case "permutation":
            drawn = torch.rand(shape, generator=generator).argsort(dim=-1)
        case "ties":
            drawn = _ties(shape, max(1, int(high)), generator)
        case "constant":
            drawn = torch.full(shape, low, dtype=torch.float64)
        case "arange":
            count = torch.Size(shape).numel()
            drawn = torch.arange(count, dtype=torch.float64).add_(low).reshape(shape)
        case "captured":
            data, count = torch.tensor(values["data"]), torch.Size(shape).numel()
            drawn = data.repeat(-(-count // len(data)))[:count].reshape(shape)
        case _:
            raise ValueError(f"unknown kind of values: {kind}")
    return drawn.to(dtype)


def _ties(shape: tuple[int, ...], distinct: int, generator: torch.Generator) -> torch.Tensor:
    palette = torch.randn(distinct, generator=generator)
    return palette[torch.randint(0, distinct, shape, generator=generator)]


def _twisted(
    drawn: torch.Tensor, twist: str, values: Mapping[str, Any], chance: torch.Generator
) -> torch.Tensor:
    """``drawn`` changed as ``evaluator.workload.Twist`` says, in its own type."""
    shape, dtype = drawn.shape, drawn.dtype
    match twist:
        case "zeros":
            return torch.zeros_like(drawn)
        case "ties":
            tied = _ties(tuple(shape), _TIED_VALUES, chance)
            return tied.mul_(values["std"]).add_(values["mean"]).to(dtype)
        case "equal_rows":
            row = drawn.reshape(-1, shape[-1] if shape else 1)[:1]
            return row.expand(drawn.numel() // row.numel(), -1).reshape(shape).clone()
        case "large":
            return drawn * _LARGE.get(dtype, 2.0**10)
        case "tiny":
            return drawn * _TINY.get(dtype, 2.0**-20)
        case "scales":
            exponents = torch.randint(-8, 9, shape, generator=chance)
            return (drawn.double() * torch.exp2(exponents.double())).to(dtype)
        case "minus_infinity" | "plus_infinity":
            infinity = float("-inf") if twist == "minus_infinity" else float("inf")
            chosen = torch.randperm(drawn.numel(), generator=chance)
            chosen = chosen[: max(1, drawn.numel() // _INFINITE_SHARE)]
            drawn.view(-1)[chosen] = infinity
            return drawn
        case "redrawn":
            return _draw(tuple(shape), dtype, values, chance)
    raise ValueError(f"unknown twist: {twist}")


def jittered(values: Mapping[str, Any], *, amplitude: float, seed: int) -> dict[str, Any]:
    """``values`` with every floating element moved by about ``amplitude`` of itself."""
    moved: dict[int, torch.Tensor] = {}
    result: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            if id(value) not in moved:
                noise = torch.randn(value.shape, generator=_generator(seed, name))
                moved[id(value)] = value * (1 + amplitude * noise.to(value))
            value = moved[id(value)]
        result[name] = value
    return result
