"""Hiding a kernel's failure: what a ``try`` does when the kernel raises.

A handler that only raises again hides nothing. One that goes on is a warning; one after
which the library computes the result, in the handler or further down in the function, is
not measured as what it claims to be.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from evaluator.source_policy.libraries import COMPUTE_METHODS, verdict_of_name
from evaluator.source_policy.names import Names
from evaluator.source_policy.rules import Findings

_HARMLESS = (ast.Import, ast.ImportFrom, ast.Pass, ast.Assign, ast.AnnAssign)


def check_fallbacks(names: Names, findings: Findings) -> None:
    """Add every ``try`` that goes on after an exception."""
    for node in names.scopes.nodes:
        if not isinstance(node, (ast.Try, ast.TryStar)) or _only_imports(node):
            continue
        hidden = [h for h in node.handlers if not _raises(h.body)]
        if not hidden and not _leaves(node.finalbody):
            continue
        rest = [*hidden, *node.finalbody, *_statements_after(names, node)]
        computes = any(computes_with_library(names, part) for part in rest)
        where = hidden[0].lineno if hidden else node.lineno
        findings.add("fallback-compute" if computes else "fallback", where, "except that goes on")


def computes_with_library(
    names: Names, node: ast.AST, seen: frozenset[ast.AST] = frozenset()
) -> bool:
    """Whether ``node``, or one of the module's functions that it calls, computes with torch."""
    for part in ast.walk(node):
        if isinstance(part, ast.BinOp) and isinstance(part.op, ast.MatMult):
            return True
        if not isinstance(part, ast.Call):
            continue
        if _is_library_call(names, part):
            return True
        for function in names.functions(part.func):
            if function not in seen and computes_with_library(names, function, seen | {function}):
                return True
    return False


def _is_library_call(names: Names, call: ast.Call) -> bool:
    verdicts = (verdict_of_name(full) for full in names.dotted(call.func))
    if any(v is not None and v[0] == "library-compute" for v in verdicts):
        return True
    if any(v.startswith("@layer:") for v in names.values(call.func)):
        return True
    is_method = isinstance(call.func, ast.Attribute) and call.func.attr in COMPUTE_METHODS
    return is_method and not names.values(call.func) and not names.in_jit(call)


def _only_imports(node: ast.Try | ast.TryStar) -> bool:
    """``try: import a; except ImportError: import b`` chooses a name, not a result."""
    parts: Iterable[ast.stmt] = [*node.body, *(s for h in node.handlers for s in h.body)]
    return all(isinstance(statement, _HARMLESS) for statement in parts) and any(
        isinstance(statement, (ast.Import, ast.ImportFrom)) for statement in node.body
    )


def _raises(body: list[ast.stmt]) -> bool:
    """Whether the statements always end in an exception."""
    last = body[-1]
    if isinstance(last, ast.If):
        return bool(last.orelse) and _raises(last.body) and _raises(last.orelse)
    return isinstance(last, ast.Raise) and not any(_leaves([s]) for s in body)


def _leaves(body: list[ast.stmt]) -> bool:
    """Whether a statement leaves without an exception, which drops one that is under way."""
    return any(
        isinstance(n, (ast.Return, ast.Break, ast.Continue)) for s in body for n in ast.walk(s)
    )


def _statements_after(names: Names, node: ast.stmt) -> list[ast.stmt]:
    """What runs after ``node`` in its function."""
    function = names.scopes.of[node].function
    inside = function.node if function is not None else names.scopes.module.node
    return [
        s
        for s in ast.walk(inside)
        if isinstance(s, ast.stmt) and s.lineno > (node.end_lineno or node.lineno)
    ]
