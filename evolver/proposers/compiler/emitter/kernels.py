"""One Inductor kernel to one plain ``@triton.jit`` function, with what a launch of it needs."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .helpers import HelperLibrary
from .inductor_module import InductorKernel, KernelMeta, LaunchConfig
from .naming import name_temporaries, rename
from .simplify import simplify
from .workloads import EmissionFailed

_EXTRA_GRID_ARGUMENTS = {"FixedGrid": 3}


@dataclass
class CleanKernel:
    """A kernel ready to be printed."""

    function: ast.FunctionDef
    combines: list[ast.FunctionDef]
    """Combine functions of scans and reductions that Inductor wrote beside the kernel."""
    meta: KernelMeta
    runtime_arguments: tuple[str, ...]
    """Inductor's names of the arguments that a launch passes, blocks excluded."""
    dropped: frozenset[str]
    """Those of them that the kernel holds as constants, so that a launch leaves them out."""


def clean_kernel(kernel: InductorKernel, meta: KernelMeta, library: HelperLibrary) -> CleanKernel:
    """Turn ``kernel`` into plain Triton; names are left to ``name_kernel``.

    Raises:
        EmissionFailed: it uses something that has no place in a standalone module.
    """
    functions = kernel.functions()
    function = next(f for f in functions if f.name == kernel.name)
    combines = [f for f in functions if f is not function]
    for each in functions:
        each.decorator_list = [ast.parse("triton.jit", mode="eval").body]
    runtime = tuple(a.arg for a in function.args.args if a.annotation is None)
    dropped = _constant_arguments(function, set(runtime))
    function.args.args = [a for a in function.args.args if a.arg not in dropped]
    simplify(function, meta.signature)
    for each in functions:
        library.rewrite(each)
    return CleanKernel(function, combines, meta, runtime, dropped)


def _constant_arguments(function: ast.FunctionDef, arguments: set[str]) -> frozenset[str]:
    """Arguments that the body overwrites with a literal at once (``xnumel = 4096``)."""
    return frozenset(
        s.targets[0].id
        for s in function.body
        if isinstance(s, ast.Assign)
        and isinstance(s.targets[0], ast.Name)
        and s.targets[0].id in arguments
        and isinstance(s.value, ast.Constant)
    )


def name_kernel(kernel: CleanKernel, name: str, pointers: Mapping[str, str]) -> None:
    """Give the kernel its name, its pointer arguments theirs, and temporaries words."""
    function = kernel.function
    function.name = name
    for combine in kernel.combines:
        shown = f"{name.removesuffix('_kernel')}_{combine.name.removeprefix('_triton_helper_fn_')}"
        rename(function, {combine.name: shown})
        combine.name = shown
    rename(function, pointers)
    name_temporaries(function)


@dataclass(frozen=True)
class Launch:
    """Grid and keyword arguments of a launch, as source text."""

    grid: str
    keywords: str


def launch(
    kernel: CleanKernel, config: LaunchConfig, arguments: Mapping[str, str], grid: Sequence[str]
) -> Launch:
    """The launch of ``kernel`` with ``config``.

    ``arguments`` maps Inductor's names of the runtime arguments to expressions of the caller;
    ``grid`` holds the extents of a fixed grid.

    Raises:
        EmissionFailed: the kernel's grid has a form that is not known here.
    """
    declared = {a.arg for a in kernel.function.args.args}
    blocks = {k: v for k, v in config.blocks.items() if k in declared}
    missing = [
        a.arg for a in kernel.function.args.args if a.annotation is not None and a.arg not in blocks
    ]
    if missing:
        raise EmissionFailed(f"Inductor's configuration lacks {', '.join(missing)}")
    words = [f"{k}={v}" for k, v in blocks.items()]
    words += [f"num_warps={config.num_warps}", f"num_stages={config.num_stages}"]
    if _rounds_between(kernel.function):
        # LLVM would join a rounded product and a sum into one 16-bit FMA that rounds once.
        words.append("enable_fp_fusion=False")
    return Launch(_grid(kernel.meta.grid_type, blocks, arguments, grid), ", ".join(words))


def _rounds_between(function: ast.FunctionDef) -> bool:
    """Whether intermediates are rounded to 16 bits, as eager rounds what it stores."""
    rounded = {"tl.bfloat16", "tl.float16"}
    return any(
        isinstance(n, ast.Call)
        and isinstance(n.func, ast.Attribute)
        and n.func.attr == "to"
        and any(ast.unparse(a) in rounded for a in n.args)
        for n in ast.walk(function)
    )


def _grid(
    kind: str, blocks: Mapping[str, int], arguments: Mapping[str, str], fixed: Sequence[str]
) -> str:
    def programs(numel: str, block: str) -> str:
        extent = arguments[numel]
        return f"triton.cdiv({extent}, {blocks[block]})" if block in blocks else extent

    if kind == "FixedGrid":
        return f"({', '.join(fixed)})"
    if kind == "Grid1D":
        return f"({programs('xnumel', 'XBLOCK')},)"
    if kind == "Grid2D":
        return f"({programs('xnumel', 'XBLOCK')}, {programs('ynumel', 'YBLOCK')})"
    if kind == "Grid2DWithYZOverflow":
        # CUDA allows 65535 programs along y; the kernel folds z back in and masks the rest.
        columns, rows = programs("xnumel", "XBLOCK"), programs("ynumel", "YBLOCK")
        return f"({columns}, min({rows}, 65535), triton.cdiv({rows}, 65535))"
    if kind == "Grid3D":
        extents = [programs(f"{d}numel", f"{d.upper()}BLOCK") for d in "xyz"]
        return f"({', '.join(extents)})"
    raise EmissionFailed(f"a launch over Inductor's {kind} is not supported")


def extra_arguments(meta: KernelMeta) -> int:
    """How many extents of the grid Inductor passes after the kernel's own arguments."""
    return _EXTRA_GRID_ARGUMENTS.get(meta.grid_type, 0)


def pointer_names(kernel: CleanKernel, launches: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Names for pointer arguments from the variables that every launch passes there.

    Where launches pass different variables, or one variable twice, the pointer keeps
    Inductor's name.
    """
    names: dict[str, str] = {}
    for argument in kernel.runtime_arguments:
        if not kernel.meta.signature.get(argument, "").startswith("*"):
            continue
        passed = {launch[argument] for launch in launches}
        variable = passed.pop() if len(passed) == 1 else ""
        wanted = f"{variable}_ptr"
        if re.fullmatch(r"[A-Za-z_]\w*", variable) and wanted not in names.values():
            names[argument] = wanted
    return names
