"""Runs Triton candidates for the tests, in a process of its own, without a GPU.

    python triton_runner.py compile     each launch is compiled for sm_90, nothing runs
    python triton_runner.py interpret   each launch runs under Triton's interpreter

Standard input is a JSON list of ``{"source", "entry", "shapes"}``; standard output a list
with, for each, the cubins' sizes in bytes, or the largest absolute difference from torch.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any, ClassVar

REFERENCES = {
    "rms_norm": lambda x, w: x * (x.pow(2).mean(-1, keepdim=True) + 1e-6).rsqrt() * w,
    "silu": lambda x: x * x.sigmoid(),
    "row_max": lambda x: x.amax(-1),
    "double": lambda x: 2 * x,
}


class CompilingLauncher:
    """Stands in for ``kernel[grid]``: compiles for sm_90 what would have been launched."""

    sizes: ClassVar[list[int]] = []

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel

    def __call__(self, *args: Any, **keywords: Any) -> None:
        import triton
        from triton.backends.compiler import GPUTarget
        from triton.compiler import ASTSource

        options = {k: keywords.pop(k) for k in ("num_warps", "num_stages") if k in keywords}
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


def main() -> None:
    """See the module's docstring."""
    interpret = sys.argv[1] == "interpret"
    if interpret:
        os.environ["TRITON_INTERPRET"] = "1"
    import torch
    import triton

    if not interpret:
        triton.runtime.jit.JITFunction.__getitem__ = lambda kernel, grid: CompilingLauncher(kernel)
    results: list[Any] = []
    for job in json.load(sys.stdin):
        torch.manual_seed(0)
        arguments = [torch.randn(*shape) for shape in job["shapes"]]
        CompilingLauncher.sizes = []
        with tempfile.TemporaryDirectory() as folder:
            output = load(job["source"], job["entry"], Path(folder))(*arguments)
        if interpret:
            expected = REFERENCES[job["entry"]](*arguments)
            results.append(float((output - expected).abs().max()))
        else:
            results.append(CompilingLauncher.sizes)
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
