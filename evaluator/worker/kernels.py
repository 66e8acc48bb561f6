"""Compiling recorded Triton launches for a GPU that need not be here.

Triton's own compiler needs no device: it lowers a kernel for ``sm_90`` down to PTX, and the
``ptxas`` in its wheel says how many registers, spilled bytes and how much shared memory the
kernel takes. The worker that does this runs without ``TRITON_INTERPRET``.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_REGISTERS = re.compile(r"Used (\d+) registers")
_SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
_PTXAS_SECONDS = 120


@dataclass(frozen=True)
class Resources:
    """What one compiled kernel takes."""

    kernel: str
    target: str
    registers: int
    spill_bytes: int
    shared_bytes: int


def compile_launches(
    module: Mapping[str, Any], launches: Sequence[Mapping[str, Any]], *, capability: int
) -> list[Resources]:
    """Compile every launch for compute capability ``capability`` (90 is sm_90).

    Raises:
        Exception: whatever triton's compiler raises; its message names kernel and line.
    """
    return [_compile_launch(module[launch["kernel"]], launch, capability) for launch in launches]


def _compile_launch(kernel: Any, launch: Mapping[str, Any], capability: int) -> Resources:
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
        source, target=GPUTarget("cuda", capability, 32), options=dict(launch["options"])
    )
    registers, spills = _assemble(compiled.asm["ptx"], _architecture(compiled, capability))
    return Resources(
        kernel=launch["kernel"],
        target=f"sm_{capability}",
        registers=registers,
        spill_bytes=spills,
        shared_bytes=int(compiled.metadata.shared),
    )


def _architecture(compiled: Any, capability: int) -> str:
    """The ``.target`` of the PTX, such as ``sm_90a``."""
    found = re.search(r"^\.target\s+(sm_\w+)", compiled.asm["ptx"], re.MULTILINE)
    return found.group(1) if found else f"sm_{capability}"


def _assemble(ptx: str, architecture: str) -> tuple[int, int]:
    """Return (registers, spilled bytes) as the bundled ptxas reports them."""
    folder = Path(tempfile.mkdtemp(prefix="ksmith-ptx-"))
    (folder / "kernel.ptx").write_text(ptx, encoding="utf-8")
    command = [
        _ptxas(architecture),
        "-v",
        f"--gpu-name={architecture}",
        "-o",
        "kernel.cubin",
        "kernel.ptx",
    ]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=_PTXAS_SECONDS
    )
    if done.returncode != 0:
        raise RuntimeError(f"ptxas failed: {done.stderr.strip()}")
    registers = _REGISTERS.search(done.stderr)
    spills = _SPILLS.search(done.stderr)
    if registers is None:
        raise RuntimeError(f"ptxas reported no registers: {done.stderr.strip()}")
    return int(registers.group(1)), sum(int(g) for g in spills.groups()) if spills else 0


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
