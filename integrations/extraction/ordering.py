"""The order of pieces: module-level values exist before they are needed.

A function may name what is defined below it; a value that is computed while its module is
imported may not. Pieces come dependencies first; where that breaks such a value (a registry
that is filled by classes which need the registry), they come as the files have them.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from integrations.extraction.piece import Piece

_LAZY = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def ordered(pieces: Sequence[Piece], needs: Mapping[ast.stmt, Sequence[ast.stmt]]) -> list[Piece]:
    """Return the pieces as they are, or as their files have them where that is needed."""
    if all(_is_ready(number, pieces, needs) for number in range(len(pieces))):
        return list(pieces)
    modules = list(dict.fromkeys(p.module.path for p in pieces))
    return sorted(pieces, key=lambda p: (modules.index(p.module.path), p.statement.lineno))


def _is_ready(
    number: int, pieces: Sequence[Piece], needs: Mapping[ast.stmt, Sequence[ast.stmt]]
) -> bool:
    """Whether all that a value may reach while it is computed was defined before it."""
    statement = pieces[number].statement
    if isinstance(statement, _LAZY):
        return True
    defined = {p.statement for p in pieces[:number]}
    reached: set[ast.stmt] = set()
    pending = list(needs.get(statement, ()))
    while pending:
        needed = pending.pop()
        if needed not in reached:
            reached.add(needed)
            pending.extend(needs.get(needed, ()))
    return reached <= defined
