"""How long a perfect kernel would take for what a call did, where shapes were recorded.

An estimate for ranking, never a claim. What a call has to touch is taken to be the inputs of
its matrix products and attentions, all of them, and of its other operators the largest only:
what lies between fused operators need not go through memory. Time follows from the memory's
bandwidth or from the arithmetic, whichever takes longer, and no kernel is done at once.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from evaluator.timing.gpu_limits import GPU_LIMITS

_SIZES = {
    "float": 4, "double": 8, "int": 4, "long": 8, "long int": 8, "long long": 8, "short": 2,
    "bool": 1, "unsigned char": 1, "signed char": 1, "char": 1, "half": 2, "bfloat16": 2,
    "unsigned short": 2, "unsigned int": 4, "unsigned long": 8,
}  # fmt: skip
_MATRIX = re.compile(r"(?:addmm|mm|linear|matmul|gemm\w*|::_?conv\w*)$", re.IGNORECASE)
_ATTENTION = re.compile(r"scaled_dot_product|flash_attn|attention")

# Memory bandwidth (GB/s) and dense 16-bit matrix rate (TFLOP/s), from the vendors' data sheets.
_AMD_GB_PER_S = {
    "AMD Instinct MI250X": 1638, "AMD Instinct MI300X": 5325, "AMD Instinct MI325X": 6000,
    "AMD Instinct MI355X": 8000,
}  # fmt: skip
_TERA_FLOPS = {
    "V100": 125, "T4": 65, "A100": 312, "A10": 125, "L40S": 362, "L4": 121, "H100": 990,
    "H200": 990, "3090": 142, "4090": 330, "MI250X": 191, "MI300X": 1307, "MI325X": 1307,
    "MI355X": 2500,
}  # fmt: skip

LEAST_KERNEL_US = 1.5
"""What a kernel takes that does next to nothing, on any of these devices, about."""


@dataclass(frozen=True)
class Device:
    """What a device can do at most."""

    name: str
    bytes_per_us: float
    flops_per_us: float


@dataclass(frozen=True)
class Touched:
    """What one operator reads, and computes."""

    count_bytes: int
    flops: float
    essential: bool
    """Whether it counts beside the others, as the inputs of matrix products do."""


def device_named(name: str) -> Device | None:
    """Return the limits of a device by the driver's name, None where they are not known."""
    if name in _AMD_GB_PER_S:
        bytes_per_us = _AMD_GB_PER_S[name] * 1e3
    elif name in GPU_LIMITS:
        bytes_per_us = GPU_LIMITS[name].dram_bytes_per_us
    else:
        return None
    rates = [rate for part, rate in _TERA_FLOPS.items() if part in re.split(r"[\s-]", name)]
    return Device(name, bytes_per_us, max(rates, default=math.inf) * 1e6)


def perfect_us(device: Device, operators: Iterable[Touched]) -> float:
    """Return the least time for one call that runs ``operators``."""
    listed = list(operators)
    essential = sum(o.count_bytes for o in listed if o.essential)
    other = max((o.count_bytes for o in listed if not o.essential), default=0)
    flops = sum(o.flops for o in listed)
    moving, computing = (essential + other) / device.bytes_per_us, flops / device.flops_per_us
    return max(moving, computing, LEAST_KERNEL_US)


@lru_cache(maxsize=1 << 16)
def touched(operator: str, dims: bytes, types: bytes) -> Touched | None:
    """Return what an operator with these recorded inputs touches, None without tensors."""
    tensors = tensors_of(dims, types)
    if not tensors:
        return None
    count = sum(math.prod(shape) * _element_bytes(kind) for shape, kind in tensors)
    matrix, attention = _MATRIX.search(operator), _ATTENTION.search(operator)
    flops = _flops([shape for shape, _ in tensors], operator) if matrix else 0.0
    if attention and len(tensors) > 1 and len(tensors[1][0]) >= 2:
        flops = 4.0 * math.prod(tensors[0][0]) * tensors[1][0][-2]
    return Touched(count, flops, bool(matrix or attention))


def tensors_of(dims: bytes, types: bytes) -> list[tuple[tuple[int, ...], str]]:
    """Return (shape, element type) of the tensors among recorded inputs."""
    try:
        shapes: Any = json.loads(dims)
        kinds: Any = json.loads(types) if types else []
    except ValueError:
        return []
    if not isinstance(shapes, list) or not isinstance(kinds, list):
        return []
    found = []
    for shape, kind in zip(shapes, kinds, strict=False):
        plain = isinstance(shape, list) and all(type(n) is int and n >= 0 for n in shape)
        if plain and isinstance(kind, str) and _element_bytes(kind):
            found.append((tuple(shape), kind))
    return found


def _element_bytes(kind: str) -> int:
    """Bytes of an element, 0 for what is no tensor."""
    plain = kind.removeprefix("c10::").lower()
    return 1 if plain.startswith("float8") else _SIZES.get(plain, 0)


def _flops(shapes: list[tuple[int, ...]], operator: str) -> float:
    matrices = [s for s in shapes if len(s) >= 2]
    if len(matrices) < 2 or "conv" in operator:
        return 0.0
    first, second = matrices[-2:] if "addmm" in operator else matrices[:2]
    # Weights lie either way round: what the shared dimension leaves is the result's.
    columns = math.prod(second[-2:]) / max(1, first[-1])
    return 2.0 * math.prod(first) * columns
