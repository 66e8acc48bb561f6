"""Reading the module that Inductor generated: its kernels, and the body of its ``call``.

The outer text is parsed, never executed. A kernel's inner text is executed to run Inductor's
own launch heuristics over it, which is pure Python and starts nothing.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .workloads import EmissionFailed


@dataclass(frozen=True)
class LaunchConfig:
    """One choice of block sizes, warps and pipeline stages."""

    blocks: Mapping[str, int]
    num_warps: int
    num_stages: int


@dataclass(frozen=True)
class KernelMeta:
    """What Inductor knows about a kernel beside its text."""

    grid_type: str
    signature: Mapping[str, str]
    """Triton type of each argument, ``*bf16``, ``i32`` or ``constexpr``, in order."""
    configs: tuple[LaunchConfig, ...]
    """The launch configurations that Inductor would time, its own first choice first."""


@dataclass(frozen=True)
class InductorKernel:
    """One kernel as Inductor wrote it."""

    name: str
    text: str
    """The inner module: imports, decorators, helpers and the function."""

    def functions(self) -> list[ast.FunctionDef]:
        """Fresh trees of the kernel and of the combine functions beside it."""
        return [n for n in ast.parse(self.text).body if isinstance(n, ast.FunctionDef)]


@dataclass(frozen=True)
class InductorModule:
    """One generated module, taken apart."""

    kernels: tuple[InductorKernel, ...]
    call_body: tuple[ast.stmt, ...]
    """Statements of ``call(args)``, device guards unwrapped."""


def parse_module(source: str) -> InductorModule:
    """Take Inductor's generated ``source`` apart.

    Raises:
        EmissionFailed: there is no ``call``, or a kernel is neither Triton nor known.
    """
    tree = ast.parse(source)
    kernels = [k for n in tree.body if (k := _kernel(n)) is not None]
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == "call"]
    if not calls:
        raise EmissionFailed("Inductor's module has no function 'call'")
    return InductorModule(tuple(kernels), tuple(_unwrapped(calls[0].body)))


def _kernel(node: ast.stmt) -> InductorKernel | None:
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
        return None
    maker = ast.unparse(node.value.func)
    if not maker.startswith("async_compile."):
        return None
    if maker != "async_compile.triton":
        raise EmissionFailed(f"Inductor's module builds a kernel by {maker}, which is not Triton")
    name, text = (ast.literal_eval(a) for a in node.value.args[:2])
    return InductorKernel(name, text)


def _unwrapped(body: list[ast.stmt]) -> list[ast.stmt]:
    statements: list[ast.stmt] = []
    for statement in body:
        if isinstance(statement, ast.With):
            statements.extend(_unwrapped(statement.body))
        else:
            statements.append(statement)
    return statements


def kernel_meta(kernel: InductorKernel) -> KernelMeta:
    """Run Inductor's launch heuristics over ``kernel``.

    Raises:
        EmissionFailed: Inductor offers no configuration.
    """
    text = kernel.text.replace("triton_helpers.set_driver_to_gpu()", "")
    filename = f"<{kernel.name}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    namespace: dict[str, Any] = {"__name__": kernel.name, "__file__": filename}
    exec(compile(text, filename, "exec"), namespace)  # noqa: S102
    tuner = namespace[kernel.name]
    configs = tuple(
        LaunchConfig(dict(c.kwargs), int(c.num_warps), int(c.num_stages)) for c in tuner.configs
    )
    if not configs:
        raise EmissionFailed(f"Inductor has no launch configuration for {kernel.name}")
    return KernelMeta(
        grid_type=str(tuner.inductor_meta.get("grid_type", "Grid1D")),
        signature={k: str(v) for k, v in tuner.triton_meta["signature"].items()},
        configs=configs,
    )
