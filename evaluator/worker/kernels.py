"""Compiling recorded Triton launches for a GPU that need not be here.

Triton's own compilers need no device: they lower a kernel for an NVIDIA target down to PTX,
and the ``ptxas`` in its wheel says how many registers, spilled bytes and how much shared
memory the kernel takes; for an AMD target they make the whole code object, whose metadata
says the same. The worker that does this runs without ``TRITON_INTERPRET``.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

_ENTRY = re.compile(r"Compiling entry function '([^']+)' for '(\w+)'")
_REGISTERS = re.compile(r"Used (\d+) registers")
_SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
_SHARED = re.compile(r"(\d+) bytes smem")
_PTXAS_SECONDS = 120
_AMD_REGISTERS = re.compile(r"\.vgpr_count:\s+(\d+)")
_AMD_SCRATCH = re.compile(r"\.private_segment_fixed_size:\s+(\d+)")


@dataclass(frozen=True)
class Resources:
    """What one compiled kernel takes."""

    kernel: str
    target: str
    registers: int
    spill_bytes: int
    shared_bytes: int


def compile_launches(
    module: Mapping[str, Any], launches: Sequence[Mapping[str, Any]], target: Mapping[str, Any]
) -> list[Resources]:
    """Compile every launch for ``target`` (``evaluator.backends.KernelTarget``).

    Raises:
        Exception: whatever triton's compiler raises; its message names kernel and line.
    """
    return [_compile_launch(module[launch["kernel"]], launch, target) for launch in launches]


def read_ptxas(said: str) -> list[Resources]:
    """Read what ``ptxas -v`` (and ``nvcc -Xptxas -v``) says of each kernel; ``[]`` without it."""
    starts = [*_ENTRY.finditer(said)]
    ends = [m.start() for m in starts[1:]] + [len(said)] * bool(starts)
    return [
        _read_entry(start.group(1), start.group(2), said[start.end() : end])
        for start, end in zip(starts, ends, strict=True)
    ]


def _read_entry(symbol: str, target: str, said: str) -> Resources:
    registers, spills, shared = (p.search(said) for p in (_REGISTERS, _SPILLS, _SHARED))
    return Resources(
        kernel=_unmangled(symbol),
        target=target,
        registers=int(registers.group(1)) if registers else 0,
        spill_bytes=sum(map(int, spills.groups())) if spills else 0,
        shared_bytes=int(shared.group(1)) if shared else 0,
    )


def _unmangled(symbol: str) -> str:
    """The C++ name without its parameters, or the symbol where nothing can tell it."""
    try:
        done = subprocess.run(
            ["c++filt", "-p", symbol], capture_output=True, text=True, timeout=_PTXAS_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return symbol
    return done.stdout.strip() or symbol


def _compile_launch(kernel: Any, launch: Mapping[str, Any], target: Mapping[str, Any]) -> Resources:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    parameters = launch["parameters"]
    source = ASTSource(
        fn=kernel,
        signature={p["name"]: p["type"] for p in parameters},
        constexprs={
            p["name"]: _constant(p["value"]) for p in parameters if p["type"] == "constexpr"
        },
        attrs={
            (i,): [["tt.divisibility", 16]] for i, p in enumerate(parameters) if p.get("aligned")
        },
    )
    compiled = triton.compile(
        source,
        target=GPUTarget(target["backend"], target["arch"], target["warp_size"]),
        options=dict(launch["options"]),
    )
    nvidia = target["backend"] == "cuda"
    found = _assembled(compiled, target) if nvidia else _read_amdgcn(compiled.asm["amdgcn"])
    return replace(
        found,
        kernel=launch["kernel"],
        target=target["name"],
        shared_bytes=int(compiled.metadata.shared),
    )


def _assembled(compiled: Any, target: Mapping[str, Any]) -> Resources:
    """Let the bundled ptxas assemble the PTX, and return what it reports."""
    ptx = compiled.asm["ptx"]
    named = re.search(r"^\.target\s+(sm_\w+)", ptx, re.MULTILINE)  # such as sm_90a
    architecture = named.group(1) if named else target["name"]
    folder = Path(tempfile.mkdtemp(prefix="ksmith-ptx-"))
    (folder / "kernel.ptx").write_text(ptx, encoding="utf-8")
    options = ["-v", f"--gpu-name={architecture}", "-o", "kernel.cubin", "kernel.ptx"]
    done = subprocess.run(
        [_ptxas(architecture), *options],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=_PTXAS_SECONDS,
    )
    if done.returncode != 0:
        raise RuntimeError(f"ptxas failed: {done.stderr.strip()}")
    entries = [r for r in read_ptxas(done.stderr) if r.registers]
    if not entries:
        raise RuntimeError(f"ptxas reported no registers: {done.stderr.strip()}")
    return entries[0]


def _read_amdgcn(assembly: str) -> Resources:
    """Read the metadata at the end of AMD assembly: vector registers, and scratch as spills."""
    registers, scratch = (p.search(assembly) for p in (_AMD_REGISTERS, _AMD_SCRATCH))
    if registers is None:
        raise RuntimeError("the AMD code object does not tell its registers")
    return Resources(
        kernel="",
        target="",
        registers=int(registers.group(1)),
        spill_bytes=int(scratch.group(1)) if scratch else 0,
        shared_bytes=0,
    )


def _ptxas(architecture: str) -> str:
    """The assembler that Triton itself takes for this architecture; its wheel has several."""
    from triton.backends.nvidia.compiler import get_ptxas

    number = re.sub(r"\D", "", architecture)  # of sm_90a as of sm_90
    return str(get_ptxas(int(number)).path)


def _constant(value: Any) -> Any:
    """Undo ``interpreter._plain``: ``{"triton": "fp32"}`` is a triton type."""
    if isinstance(value, dict):
        import triton.language as tl

        return tl.core.str_to_ty(value["triton"], None)
    return value
