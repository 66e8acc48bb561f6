"""The clocks that others use."""

from __future__ import annotations

import pytest
import torch

from evaluator import machine
from evaluator.worker.yardsticks import yardsticks_us


def test_without_a_gpu_there_is_the_mean_of_a_hundred_calls() -> None:
    calls = []
    found = yardsticks_us(lambda: calls.append(1), "cpu")
    assert list(found) == ["wall_100"]
    assert found["wall_100"] > 0
    assert len(calls) == 103  # three warm it up


def test_only_the_named_clocks_are_read() -> None:
    assert yardsticks_us(lambda: None, "cpu", ["cuda_event_100"]) == {}


@pytest.mark.gpu
@pytest.mark.skipif(not machine.gpus(), reason="there is no GPU")
def test_on_a_gpu_every_clock_reads_a_plausible_time() -> None:
    x = torch.rand(1 << 22, device="cuda")
    every = yardsticks_us(lambda: x + 1, "cuda:0")
    assert set(every) == {"one_shot", "do_bench", "do_bench_cudagraph", "cuda_event_100"}
    assert all(1 < us < 10_000 for us in every.values())
    assert list(yardsticks_us(lambda: x + 1, "cuda:0", ["cuda_event_100"])) == ["cuda_event_100"]
