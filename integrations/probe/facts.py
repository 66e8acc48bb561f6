"""What a tensor looks like, told without it: layout, moments and a sample of its elements.

Whether these are those of a known generator is decided outside the sandbox.
"""

from __future__ import annotations

import torch

_SAMPLE = 4096
_ROWS = 64


def tensor_facts(
    tensor: torch.Tensor, generator: torch.Generator | None = None, sample: int = _SAMPLE
) -> dict[str, object]:
    """Facts of one tensor.

    ``generator`` (of the CPU) chooses the ``sample`` elements, torch's own where it is None.
    """
    facts = layout_facts(tensor)
    if facts["plain"] and tensor.numel() and tensor.layout == torch.strided:
        facts |= _content(tensor, generator, sample)
    return facts


def layout_facts(tensor: torch.Tensor) -> dict[str, object]:
    """What is known without reading an element."""
    return {
        "shape": list(tensor.shape),
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "strides": None if tensor.is_contiguous() else list(tensor.stride()),
        "device": tensor.device.type,
        "plain": type(tensor) in (torch.Tensor, torch.nn.Parameter) and not tensor.is_complex(),
    }


def _content(
    tensor: torch.Tensor, generator: torch.Generator | None, sample: int
) -> dict[str, object]:
    """The moments are those of the sample's finite elements."""
    flat = tensor.reshape(-1)
    low, high = (float(x) for x in flat.aminmax()) if flat.dtype != torch.bool else (0.0, 1.0)
    head = flat[:sample].double()
    whole = flat.numel() <= sample
    drawn = head
    if not whole:
        chosen = torch.randint(flat.numel(), (sample,), generator=generator, device="cpu")
        drawn = flat[chosen].double()
    return {
        "low": low if torch.isfinite(torch.tensor(low)) else 0.0,
        "high": high if torch.isfinite(torch.tensor(high)) else 0.0,
        "finite": bool(torch.isfinite(drawn).all()),
        "sample": drawn.nan_to_num().tolist(),
        "ascends": flat.numel() > 2 and bool((head[1:] > head[:-1]).all()),
        "row_sums": _row_sums(tensor),
    }


def _row_sums(tensor: torch.Tensor) -> list[float]:
    """Sums over the last dimension of some rows; equal ones tell of a normalisation."""
    if tensor.ndim < 2 or tensor.shape[-1] < 2:
        return []
    rows = tensor.reshape(-1, tensor.shape[-1])[:_ROWS]
    return [float(x) for x in rows.double().sum(-1).nan_to_num()]
