"""When two generated modules are the same program: equal trees, whatever their comments say."""

from __future__ import annotations

import ast


def normal_form(source: str) -> str:
    """A text that is equal for programs that differ in docstrings and layout alone."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [s for s in body if not _is_text(s)]  # type: ignore[attr-defined]
    return ast.dump(tree)


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
