"""What the hook sees of a function, whatever it is called by, and what it never tells."""

from __future__ import annotations

import importlib
import itertools
import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from integrations.capture.seen import Form, Process, read_processes
from integrations.probe.startup import capturing, sitecustomize

Watch = Callable[..., tuple[ModuleType, Callable[[], Process]]]
_NUMBERS = itertools.count()


@pytest.fixture
def watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Watch:
    """Import a module's text with a function of it watched; return it and what was seen."""

    def start(
        text: str, qualname: str, **settings: Any
    ) -> tuple[ModuleType, Callable[[], Process]]:
        monkeypatch.setattr(capturing.atexit, "register", lambda _: None)
        monkeypatch.setattr(capturing.os, "register_at_fork", lambda **_: None)
        name = f"watched_{next(_NUMBERS)}"
        (tmp_path / f"{name}.py").write_text(text)
        given = {"out": str(tmp_path), "method": "." in qualname, "state": [], "constructor": False}
        capture = capturing.Capture({**given, "target": f"{name}.py::{qualname}", **settings})
        finder = sitecustomize.AfterImport({}, capture.places())
        monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
        monkeypatch.syspath_prepend(str(tmp_path))
        module = importlib.import_module(name)

        def seen() -> Process:
            capture.close()
            (process,) = read_processes(tmp_path)
            return process

        return module, seen

    return start


NAMES = """import functools
import torch


def traced(f):
    @functools.wraps(f)
    def inner(*args, **kwargs):
        return f(*args, **kwargs)
    return inner


if True:
    @traced
    def scale(x, by=2):
        return x * by if x.ndim == 1 else torch.stack([scale(row, by) for row in x])


TABLE = {"a": scale}


def indirectly(x):
    return scale(x)
"""


def test_every_name_of_a_decorated_function_is_seen_and_recursion_counts_once(watch: Watch) -> None:
    module, seen = watch(NAMES, "scale")
    alias, x = module.scale, torch.ones(3)
    for call in (alias, module.TABLE["a"], module.indirectly):
        call(x)
    thread = threading.Thread(target=module.scale, args=(x,))
    thread.start()
    thread.join()
    assert torch.equal(module.scale(torch.ones(4, 3), by=5), torch.full((4, 3), 5.0))
    process = seen()
    assert (process.calls, process.nested, process.error) == (5, 4, None)
    assert [(f.calls, f.values["by"].scalar) for f in process.forms] == [(4, 2), (1, 5)]


SECRETS = """def send(x, mode, token, config, **options):
    if mode == "fast":
        raise ValueError(mode)
    return x
"""


def test_unknown_strings_and_objects_are_told_by_type_alone(watch: Watch, tmp_path: Path) -> None:
    module, seen = watch(SECRETS, "send")
    with pytest.raises(ValueError, match="fast"):
        module.send(torch.ones(1), "fast", "sk-live-123", {"key": "sk-live-123"}, k="sk-live-123")
    with pytest.raises(TypeError):
        module.send()
    (form,) = seen().forms
    told = {n: v.scalar if v.other is None else v.other for n, v in form.values.items()}
    assert told == {
        "x": None, "mode": "fast", "token": "str", "config": "dict", "options": "variadic argument",
    }  # fmt: skip
    assert form.raised == {"ValueError": 1}
    assert all("sk-live" not in p.read_text() for p in tmp_path.glob("*.json"))


WRITES = """def rotate(q, k, v, table, out=None):
    q.mul_(2)
    v[0, 0] = 7
    return q, table + 1
"""


def test_writes_and_overlaps_are_seen_and_neighbours_in_one_storage_are_none(watch: Watch) -> None:
    module, seen = watch(WRITES, "rotate")
    qkv, table = torch.randn(2, 12), torch.arange(6)
    q, k, v = qkv.split(4, dim=1)
    module.rotate(q, k, v, table)
    module.rotate(q, q, qkv[:, 1:5], table[1:], out=q[:1])
    first, second = seen().forms
    assert (first.overlaps, first.writes, first.returns) == ({}, ("q", "v"), ("q", None))
    assert first.values["q"].tensor is not None
    assert first.values["q"].tensor.strides == (12, 1)
    assert first.values["table"].tensor is not None
    assert first.values["table"].tensor.data == (0, 1, 2, 3, 4, 5)
    assert second.overlaps == {"k": ("q", "whole"), "v": ("q", "part"), "out": ("q", "whole")}
    assert second.writes == ("k", "out", "q", "v")


def test_the_random_numbers_of_the_command_stay_what_they_are(watch: Watch) -> None:
    module, seen = watch("def f(x):\n    return x\n", "f")
    torch.manual_seed(3)
    wanted = torch.rand(2)
    torch.manual_seed(3)
    module.f(torch.ones(5000).cumsum(0))
    assert torch.equal(torch.rand(2), wanted)
    assert seen().error is None


def test_too_many_different_calls_are_counted_but_not_told(watch: Watch) -> None:
    module, seen = watch("def f(x, n):\n    return x\n", "f")
    for n in range(300):
        module.f(None, n)
    process = seen()
    assert (process.calls, len(process.forms), process.beyond) == (300, 256, 44)


MODULES = """from torch import nn


class Mlp(nn.Module):
    def __init__(self, width, act="relu", *, scale=None):
        super().__init__()
        self.up, self.act = nn.Linear(width, 8), act

    def forward(self, x):
        return self.up(x)
"""


def test_a_module_tells_how_it_was_made_and_its_parameters(watch: Watch) -> None:
    module, seen = watch(MODULES, "Mlp.forward", constructor=True)
    module.Mlp(4, scale=object())(torch.ones(1, 4))
    module.Mlp(width=4, act="relu")(torch.ones(1, 4))
    opaque, plain = seen().forms
    assert opaque.constructor is not None
    assert opaque.constructor["scale"].other == "object"
    assert plain.constructor is not None
    assert {n: a.value for n, a in plain.constructor.items()} == {"width": 4, "act": "relu"}
    assert list(tensor_names(plain)) == ["x", "self.up.weight", "self.up.bias"]


def tensor_names(form: Form) -> list[str]:
    return list(form.tensors)


def test_a_killed_process_has_told_what_it_saw_by_then(watch: Watch, tmp_path: Path) -> None:
    module, _ = watch("def f(x):\n    return x\n", "f")
    for _ in range(5):
        module.f(1)
    (path,) = tmp_path.glob("*.json")
    assert json.loads(path.read_text())["forms"][0]["calls"] == 4
