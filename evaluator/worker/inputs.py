"""Tensors from a description and a seed: the same bytes in every process.

The supervisor and every worker draw inputs with this code, on the CPU, one generator per
argument seeded by (seed, name), so that adding an argument changes no other. ``arguments``
maps names to scalars or to the fields of ``evaluator.workload.TensorSpec``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import torch


def generate(arguments: Mapping[str, Any], *, seed: int, device: str = "cpu") -> dict[str, Any]:
    """Return a value for each argument; tensors lie on ``device`` with the strides asked for.

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
            values[name] = _tensor(spec, _generator(seed, name), device)
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


def _tensor(spec: Mapping[str, Any], generator: torch.Generator, device: str) -> torch.Tensor:
    shape, strides = tuple(spec["shape"]), spec.get("strides")
    dtype = getattr(torch, spec["dtype"])
    if strides is None:
        return _draw(shape, dtype, spec["values"], generator).to(device)
    once = tuple(1 if step == 0 else s for s, step in zip(shape, strides, strict=True))
    return _strided(_draw(once, dtype, spec["values"], generator), shape, tuple(strides), device)


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
        case _:
            raise ValueError(f"unknown kind of values: {kind}")
    return drawn.to(dtype)


def _ties(shape: tuple[int, ...], distinct: int, generator: torch.Generator) -> torch.Tensor:
    palette = torch.randn(distinct, generator=generator)
    return palette[torch.randint(0, distinct, shape, generator=generator)]
