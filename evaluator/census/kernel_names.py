"""Whose kernel is it, by its name: what a source defines, and what only vendors call theirs."""

from __future__ import annotations

import ast
import re

VENDOR_KERNEL = re.compile(
    r"^(?:void\s+)?(?:(?:at|c10|cub|thrust|cutlass|cudnn|cublasLt|pytorch_flash)::"
    r"|nvjet_|cublas|cudnn_|cutlass_|sm\d+_xmma|(?:ampere|volta|turing|maxwell)_\w*gemm)"
)
"""Names that only the vendors' kernels have; nothing tells who launched them without a hook."""
_GLOBAL = re.compile(r"__global__([^;{}]*?)\b(\w+)\s*\(")
_LAUNCH_BOUNDS = re.compile(r"__launch_bounds__\s*\([^()]*\)|__cluster_dims__\s*\([^()]*\)")


def defined_kernels(source: str) -> frozenset[str]:
    """Names that may appear as kernels of the candidate's own, read from its source.

    ``@triton.jit`` functions, ``__global__`` functions and the keys of ``SIGNATURES``.

    Raises:
        SyntaxError: the source is not Python.
    """
    names: set[str] = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef) and any(map(_is_jit, node.decorator_list)):
            names.add(node.name)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            names |= _names_in_constant(node.targets[0].id, node.value)
    return frozenset(names)


def _is_jit(decorator: ast.expr) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return ast.unparse(called).rpartition(".")[2] == "jit"


def _names_in_constant(target: str, value: ast.expr) -> set[str]:
    if target == "SIGNATURES" and isinstance(value, ast.Dict):
        return {str(k.value) for k in value.keys if isinstance(k, ast.Constant)}
    if target == "SOURCE" and isinstance(value, ast.Constant) and isinstance(value.value, str):
        return {name for _, name in _GLOBAL.findall(_LAUNCH_BOUNDS.sub("", value.value))}
    return set()


def base_name(kernel: str) -> str:
    """``void ns::fused<float>(float const*, int)`` as ``fused``."""
    name = re.sub(r"^(?:void|static)\s+", "", kernel.strip())
    depth, kept = 0, list[str]()
    for character in name:
        depth += character == "<"
        if depth == 0:
            if character == "(" and kept:
                break
            kept.append(character)
        depth -= character == ">"
    return "".join(kept).strip().rpartition("::")[2]
