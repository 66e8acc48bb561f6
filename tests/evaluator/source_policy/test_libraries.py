"""The lists of library names, held against the versions that are installed."""

from __future__ import annotations

import importlib
import types

import pytest

from evaluator.source_policy.libraries import NAMESPACES, verdict_of_name

IMPORTABLE = sorted(n for n in NAMESPACES if n.partition(".")[0] in ("torch", "triton", "math"))


def resolve(full: str) -> object:
    try:
        return importlib.import_module(full)
    except ImportError:
        parent, _, last = full.rpartition(".")
        return getattr(resolve(parent), last, None)


@pytest.mark.parametrize("namespace", IMPORTABLE)
def test_no_module_is_reached_through_one_that_is_allowed(namespace: str) -> None:
    held = vars(resolve(namespace)) if namespace != "torch.ops" else {}
    open_modules = [
        name
        for name, value in held.items()
        if isinstance(value, types.ModuleType)
        and f"{namespace}.{name}" not in NAMESPACES
        and verdict_of_name(f"{namespace}.{name}") is None
        and not (name.startswith("__") and name.endswith("__"))
    ]
    assert open_modules == []


@pytest.mark.parametrize(
    ("full", "rule"),
    [
        ("torch.matmul", "library-compute"),
        ("torch.nn.functional.softmax", "library-compute"),
        ("torch.ops.aten.mm", "library-compute"),
        ("torch.Tensor.matmul", "library-compute"),
        ("torch.linalg.qr", "library-compute"),
        ("torch.empty", None),
        ("torch.float8_e4m3fn", None),
        ("torch.cuda.current_stream", None),
        ("torch.cuda.memory", "forbidden-name"),
        ("torch.set_default_device", "forbidden-name"),
        ("triton.language.dot", None),
        ("triton.runtime", "forbidden-name"),
    ],
)
def test_names_are_allocation_computation_or_none_of_a_kernels_business(
    full: str, rule: str | None
) -> None:
    verdict = verdict_of_name(full)
    assert (verdict[0] if verdict else None) == rule
