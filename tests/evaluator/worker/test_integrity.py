"""The guard names what a module changed in the process that measures it."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from evaluator.worker import calls, main, timing
from evaluator.worker.integrity import Guard, Tampered


@pytest.fixture
def guard() -> Iterator[Guard]:
    traced = sys.gettrace()  # a debugger or coverage that watches the tests
    sys.settrace(None)
    yield Guard()
    sys.settrace(traced)


def test_nothing_changed_is_nothing_to_say(guard: Guard) -> None:
    torch.softmax(torch.randn(4, 4), -1).detach().cpu().numpy()
    guard.check()


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (time, "perf_counter_ns"),
        (json, "dumps"),
        (torch, "randn"),
        (torch.Tensor, "detach"),
        (torch.Tensor, "copy_"),
        (torch.cuda, "synchronize"),
        (torch.cuda.Event, "elapsed_time"),
        (calls, "describe_call"),
        (main.Worker, "_block"),
        (timing.TimedTarget, "block"),
    ],
)
def test_a_replaced_function_is_named(
    guard: Guard, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str
) -> None:
    monkeypatch.setattr(owner, name, lambda *_: None)
    with pytest.raises(Tampered, match=rf"{name} was replaced"):
        guard.check()


def test_a_replaced_module_within_a_module_is_named(
    guard: Guard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "time", ModuleType("time"))
    with pytest.raises(Tampered, match=r"timing\.time was replaced"):
        guard.check()


def test_a_profile_hook_is_told(guard: Guard) -> None:
    before = sys.getprofile()
    sys.setprofile(lambda *_: None)
    try:
        with pytest.raises(Tampered, match="hook"):
            guard.check()
    finally:
        sys.setprofile(before)


@pytest.mark.parametrize("mode", [TorchFunctionMode, TorchDispatchMode])
def test_a_mode_that_is_left_on_is_told(guard: Guard, mode: type[Any]) -> None:
    with mode(), pytest.raises(Tampered, match="mode"):
        guard.check()


def test_a_handler_of_faults_or_timers_is_told(guard: Guard) -> None:
    before = signal.signal(signal.SIGVTALRM, lambda *_: None)
    try:
        with pytest.raises(Tampered, match="SIGVTALRM"):
            guard.check()
    finally:
        signal.signal(signal.SIGVTALRM, before)
