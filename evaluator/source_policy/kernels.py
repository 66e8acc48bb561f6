"""Which kernels the entry function can reach, and which are there for show."""

from __future__ import annotations

import ast

from evaluator.source_policy.names import Names
from evaluator.source_policy.rules import Findings


def check_kernels(names: Names, findings: Findings, entry: ast.AST) -> None:
    """Add kernels that ``entry`` cannot reach, and the lack of one that it can.

    A function is reached when a reached one names it, or when it is handed on in any way.
    """
    kernels = [f for f in names.scopes.nodes if names.is_jit(f)]
    reached = _reached(names, entry)
    for kernel in kernels:
        if kernel not in reached and not _gives_a_value(kernel):
            assert isinstance(kernel, ast.FunctionDef | ast.AsyncFunctionDef)
            findings.add("decoy", kernel.lineno, f"@triton.jit {kernel.name}")
    if not any(kernel in reached for kernel in kernels):
        findings.add("no-kernel", getattr(entry, "lineno", 1), "no @triton.jit kernel")


def _gives_a_value(function: ast.AST) -> bool:
    """Whether it is a helper of kernels: nobody launches what returns a value."""
    return any(isinstance(n, ast.Return) and n.value is not None for n in ast.walk(function))


def _reached(names: Names, entry: ast.AST) -> set[ast.AST]:
    reached: set[ast.AST] = set()
    waiting: list[ast.AST] = [entry]
    while waiting:
        node = waiting.pop()
        if node in reached:
            continue
        reached.add(node)
        for part in ast.walk(node):
            if isinstance(part, (ast.Name, ast.Attribute)) and isinstance(part.ctx, ast.Load):
                waiting += names.definitions(part)
    return reached
