"""Where tensor arguments lie during a checked call: between guard zones, elsewhere each time.

Each argument has memory of its own with a zone of one byte pattern before and behind it. The
pattern is NaN in every floating type and -1 in signed integers, so reads beyond an argument
show as well as writes. Freed memory of given sizes can be filled with the same pattern, so
that ``torch.empty`` holds no answers of earlier calls. The supervisor compares the zones.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import torch
import torch.utils.dlpack

PATTERN = 0xFF
_ZONE_BYTES = 4096
_MOST_ZONE_BYTES = 4 << 20
_STEP_BYTES = 512
"""Offsets are multiples of this, as fresh allocations are on a GPU."""
_STEPS = 64
_POISONED_BLOCKS = 3


class Arena:
    """Places tensors between guard zones; remembers where the zones are."""

    def __init__(self) -> None:
        self._zones: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}

    def place(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        """Return a copy of ``tensor``, strides included, that is the whole of its storage."""
        source = _bytes_of(tensor)
        size = source.numel()
        zone = _zone_bytes(tensor)
        start = zone + _STEP_BYTES * random.randrange(_STEPS)  # noqa: S311 (no secret)
        memory = _aligned(start + _round_up(size) + zone, tensor.device)
        memory.fill_(PATTERN)
        self._zones[name] = (memory[:start], memory[start + size :])
        if not size:
            return torch.empty_strided(
                tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device
            )
        # DLPack makes a storage that begins here, where a view would keep the whole one.
        own = torch.utils.dlpack.from_dlpack(memory[start : start + size])
        own.copy_(source)
        return own.view(tensor.dtype).as_strided(tensor.shape, tensor.stride())

    def zones(self) -> Mapping[str, bytes]:
        """The bytes around each argument, first those before it, then those behind it."""
        return {
            name: b"".join(z.cpu().numpy().tobytes() for z in zones)
            for name, zones in self._zones.items()
        }


def poison_freed_memory(sizes_bytes: Sequence[int], device: str) -> None:
    """Fill what the allocator would hand out next for blocks of these sizes."""
    blocks = [
        torch.full((size,), PATTERN, dtype=torch.uint8, device=device)
        for size in sizes_bytes
        for _ in range(_POISONED_BLOCKS)
    ]
    del blocks


def _aligned(size: int, device: torch.device) -> torch.Tensor:
    """Uninitialised bytes that begin at a multiple of the step."""
    raw = torch.empty(size + _STEP_BYTES, dtype=torch.uint8, device=device)
    ahead = -raw.data_ptr() % _STEP_BYTES
    return raw[ahead : ahead + size]


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    flat = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return flat.set_(tensor.untyped_storage())


def _zone_bytes(tensor: torch.Tensor) -> int:
    """Code that takes strided arguments for contiguous ones must not leave its memory."""
    if tensor.is_contiguous():
        return _ZONE_BYTES
    wanted = _round_up(tensor.numel() * tensor.element_size())
    return min(max(_ZONE_BYTES, wanted), _MOST_ZONE_BYTES)


def _round_up(size: int) -> int:
    return -(-size // _STEP_BYTES) * _STEP_BYTES
