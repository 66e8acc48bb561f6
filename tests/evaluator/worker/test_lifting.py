from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from evaluator.worker.lifting import CannotLift, Float64Mode  # noqa: E402 (needs torch)


@pytest.mark.parametrize(
    "code",
    [
        lambda x: x.to(torch.float32),
        lambda x: x.float(),
        lambda x: x.half(),
        lambda x: x.bfloat16() * 3,
        lambda x: x.type(torch.float16),
        lambda x: x.type("torch.FloatTensor"),
        lambda x: torch.softmax(x, -1, dtype=torch.float32),
        lambda x: x.sum(-1, dtype=torch.float32),
        lambda x: torch.zeros(4, dtype=torch.float32) + x,
        lambda x: torch.arange(4.0) + x,
        lambda x: torch.tensor([1.0, 2, 3, 4], dtype=torch.bfloat16) * x,
        lambda x: torch.empty_like(x, dtype=torch.float16).copy_(x),
    ],
)
def test_casts_and_creations_stay_in_float64(code: Any) -> None:
    third = torch.full((4,), 1 / 3, dtype=torch.float64)
    with Float64Mode():
        result = code(third)
    assert result.dtype is torch.float64
    assert torch.get_default_dtype() is torch.float32


def test_integers_stay_integers_and_become_float64_when_cast() -> None:
    with Float64Mode():
        counts = torch.arange(4)
        assert counts.dtype is torch.int64
        assert counts.float().dtype is torch.float64


def test_reinterpreting_bits_cannot_be_lifted() -> None:
    with pytest.raises(CannotLift), Float64Mode():
        torch.zeros(4, dtype=torch.float64).view(torch.int64)
    assert torch.get_default_dtype() is torch.float32
