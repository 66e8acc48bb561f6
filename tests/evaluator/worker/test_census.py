"""What one call's products multiply and add, as the dispatcher shows them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from evaluator.worker.census import DispatchLog, Log


def zeros(*shape: int) -> torch.Tensor:
    return torch.zeros(shape)


CALLS: dict[str, Callable[[], Any]] = {
    "a product": lambda: zeros(4, 6) @ zeros(6, 9),
    "a linear layer": lambda: F.linear(zeros(5, 7), zeros(3, 7), zeros(3)),
    "a batch": lambda: zeros(2, 4, 6) @ zeros(2, 6, 9),
    "groups": lambda: F.conv2d(zeros(2, 4, 9, 9), zeros(6, 2, 3, 3), groups=2, padding=1),
    "strides": lambda: F.conv1d(zeros(2, 4, 9), zeros(6, 4, 3), stride=2),
    "transposed": lambda: F.conv_transpose2d(zeros(2, 4, 9, 9), zeros(4, 6, 3, 3), stride=2),
    "none": lambda: torch.softmax(zeros(4, 6), -1),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_the_flops_are_those_that_torch_counts(call: Callable[[], Any]) -> None:
    log, theirs = Log(), FlopCounterMode(display=False)
    with DispatchLog(log):
        call()
    with theirs:
        call()
    assert sum(e.flops for e in log.entries()) == theirs.get_total_flops()


def test_attention_counts_both_of_its_products() -> None:
    log = Log()
    with DispatchLog(log):
        F.scaled_dot_product_attention(zeros(2, 3, 8, 16), zeros(2, 3, 9, 16), zeros(2, 3, 9, 4))
    assert sum(e.flops for e in log.entries()) == 2 * (2 * 3 * 8 * 9) * (16 + 4)
