"""Which tensors share elements, and which of them a call wrote."""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Iterator, Mapping

import torch

_MOST_HASHED_BYTES = 256 << 20
_MOST_COMPARED = 1 << 24


class Before:
    """Tensors as they were before a call; large ones by their version, which views share.

    Parameters too go by their version: to hash a model's weights at each call would take minutes.
    """

    def __init__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        self._tensors = tensors
        weights = {n for n, t in tensors.items() if isinstance(t, torch.nn.Parameter)}
        self._digests = {n: None if n in weights else _digest(t) for n, t in tensors.items()}
        self._large = [n for n, d in self._digests.items() if d is None and n not in weights]
        self._versions = {n: _version(t) for n, t in tensors.items()}

    def written(self) -> Iterator[str]:
        """Names of the tensors that are no longer what they were."""
        for name, tensor in self._tensors.items():
            before = self._digests[name]
            changed = before != _digest(tensor) if before else _version(tensor) != (
                self._versions[name]
            )  # fmt: skip
            if changed:
                yield name

    def unread(self) -> Iterator[str]:
        """Names of the tensors that were too large to hash."""
        return iter(self._large)


def is_plain(value: object) -> bool:
    """Whether it is a tensor that shape, type and strides describe."""
    if not isinstance(value, torch.Tensor) or type(value) not in (torch.Tensor, torch.nn.Parameter):
        return False
    return value.layout == torch.strided and not value.is_complex() and not value.is_quantized


def overlaps(tensors: Mapping[str, torch.Tensor]) -> dict[str, list[str]]:
    """For each tensor that shares elements with an earlier one: which, and how.

    ``whole``: it begins where that one begins and lies within it, of the same type; ``part``:
    otherwise. Views side by side in one storage, such as q, k and v of one matrix, share none.
    """
    found: dict[str, list[str]] = {}
    earlier: list[tuple[str, torch.Tensor]] = []
    for name, tensor in tensors.items():
        owner = next((o for o in earlier if _share(o[1], tensor)), None)
        if owner is None:
            earlier.append((name, tensor))
            continue
        (begin, end), (low, high) = _span(tensor), _span(owner[1])
        within = begin == low and end <= high and tensor.dtype == owner[1].dtype
        found[name] = [owner[0], "whole" if within else "part"]
    return found


def owners(result: object, tensors: Mapping[str, torch.Tensor]) -> list[str | None]:
    """For each returned tensor the argument whose elements it has, None for its own."""
    members = list(result) if isinstance(result, (list, tuple)) else [result]
    return [
        next((n for n, t in tensors.items() if _share(t, member)), None)
        for member in members
        if isinstance(member, torch.Tensor) and is_plain(member)
    ]


def _share(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors have an element's byte in common; False beyond what can be compared."""
    if "meta" in (one.device.type, other.device.type) or not (one.numel() and other.numel()):
        return False
    if one.untyped_storage().data_ptr() != other.untyped_storage().data_ptr():
        return False
    (begin, end), (low, high) = _span(one), _span(other)
    if end <= low or high <= begin:
        return False
    if begin == low or one.dtype != other.dtype:
        return True
    first, size = min(begin, low), one.element_size()
    extent = (max(end, high) - first) // size
    if extent > _MOST_COMPARED:
        return False
    marks = torch.zeros(extent, dtype=torch.bool, device="cpu")
    marks.as_strided(one.shape, one.stride(), (begin - first) // size).fill_(True)
    return bool(marks.as_strided(other.shape, other.stride(), (low - first) // size).any())


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    """The first byte and the one behind the last."""
    steps = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
    begin = tensor.data_ptr()
    return begin, begin + (steps + 1) * tensor.element_size()


def _digest(tensor: torch.Tensor) -> str | None:
    """A hash of the elements; None where they are too many, or not there."""
    size = tensor.numel() * tensor.element_size()
    if tensor.device.type == "meta" or size > _MOST_HASHED_BYTES:
        return None
    flat = tensor.detach().cpu().contiguous()
    content = (ctypes.c_char * size).from_address(flat.data_ptr()) if size else b""
    return hashlib.blake2b(content).hexdigest()


def _version(tensor: torch.Tensor) -> int | None:
    return None if tensor.is_inference() else tensor._version
