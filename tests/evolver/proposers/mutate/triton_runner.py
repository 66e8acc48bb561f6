"""Runs Triton candidates for the tests, in a process of its own, without a GPU.

    python triton_runner.py compile     each launch is compiled for sm_90, nothing runs
    python triton_runner.py interpret   each launch runs under Triton's interpreter

Standard input is a JSON list of ``{"source", "parent", "entry", "arguments"}``, an argument
being a shape or a number; standard output a list with, for each, the cubins' sizes in bytes,
or the largest difference from what the parent returns and leaves in its arguments.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any, ClassVar

OPTIONS = ("num_warps", "num_stages", "maxnreg")


class CompilingLauncher:
    """Stands in for ``kernel[grid]``: compiles for sm_90 what would have been launched."""

    sizes: ClassVar[list[int]] = []

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel

    def __call__(self, *args: Any, **keywords: Any) -> None:
        import triton
        from triton.backends.compiler import GPUTarget
        from triton.compiler import ASTSource

        options = {k: keywords.pop(k) for k in OPTIONS if k in keywords}
        names = [p.name for p in self.kernel.params]
        values = {**dict(zip(names, args, strict=False)), **keywords}
        constexprs = {p.name: values[p.name] for p in self.kernel.params if p.is_constexpr}
        signature = {n: "constexpr" if n in constexprs else type_name(values[n]) for n in names}
        source = ASTSource(self.kernel, signature, constexprs)
        compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
        self.sizes.append(len(compiled.asm["cubin"]))


def type_name(value: Any) -> str:
    """Triton's name for the type of an argument."""
    return "i32" if isinstance(value, int) else "*fp32"


def load(source: str, entry: str, folder: Path) -> Any:
    """Import a candidate and return its entry function."""
    path = folder / "candidate.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location("candidate", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, entry)


def outcome(source: str, entry: str, arguments: list[Any]) -> list[Any]:
    """Return what a candidate gives back, and its arguments as it leaves them."""
    import torch

    torch.manual_seed(0)
    values = [torch.randn(*a) if isinstance(a, list) else a for a in arguments]
    with tempfile.TemporaryDirectory() as folder:
        output = load(source, entry, Path(folder))(*values)
    outputs = list(output) if isinstance(output, tuple) else [output]
    return [v for v in (*outputs, *values) if isinstance(v, torch.Tensor)]


def difference(expected: list[Any], found: list[Any]) -> float:
    """Return the largest difference of two lists of tensors, infinite for a new NaN."""
    import torch

    return max(
        float(torch.nan_to_num(a - b, nan=torch.inf).abs().max())
        for a, b in zip(expected, found, strict=True)
    )


def main() -> None:
    """See the module's docstring."""
    interpret = sys.argv[1] == "interpret"
    if interpret:
        os.environ["TRITON_INTERPRET"] = "1"
    import triton

    if not interpret:
        triton.runtime.jit.JITFunction.__getitem__ = lambda kernel, grid: CompilingLauncher(kernel)
    results: list[Any] = []
    parents: dict[str, list[Any]] = {}
    for job in json.load(sys.stdin):
        CompilingLauncher.sizes = []
        found = outcome(job["source"], job["entry"], job["arguments"])
        if not interpret:
            results.append(CompilingLauncher.sizes)
            continue
        if job["parent"] not in parents:
            parents[job["parent"]] = outcome(job["parent"], job["entry"], job["arguments"])
        results.append(difference(parents[job["parent"]], found))
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
