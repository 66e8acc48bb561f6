"""Candidates: one Python source file each, and the identity by which duplicates are found."""

from __future__ import annotations

import ast
import hashlib
from enum import StrEnum
from typing import Self

from pydantic import model_validator

from evaluator.records import Record


class BackendName(StrEnum):
    """The languages that a candidate's kernels are written in."""

    TRITON = "triton"
    CPP = "cpp"


class Candidate(Record):
    """One proposed implementation.

    A ``triton`` candidate is plain Python with ``@triton.jit`` kernels. A ``cpp``
    candidate holds its C++ in the module constant ``SOURCE`` and one C signature per
    exported function in ``SIGNATURES``; the backend compiles the source and puts the
    bound functions into the module under the name ``native`` (see
    ``evaluator/backends/cpp.py``). Both define the problem's entry function.
    """

    id: str
    """sha256 of the normalised source; two candidates with equal ids are the same program."""
    source: str
    backend: BackendName
    proposer: str
    parents: tuple[str, ...] = ()
    description: str = ""
    """What the proposer did, in one line, for people and for the lineage."""

    @classmethod
    def create(
        cls,
        source: str,
        *,
        backend: BackendName,
        proposer: str,
        parents: tuple[str, ...] = (),
        description: str = "",
    ) -> Self:
        """Build a candidate and compute its id.

        Raises:
            SyntaxError: the source is not Python (a NUL byte counts).
        """
        return cls(
            id=candidate_id(source, backend),
            source=source,
            backend=backend,
            proposer=proposer,
            parents=parents,
            description=description,
        )

    @model_validator(mode="after")
    def _id_matches_source(self) -> Candidate:
        if self.id != candidate_id(self.source, self.backend):
            raise ValueError("the id is not the hash of the normalised source")
        return self


def candidate_id(source: str, backend: BackendName) -> str:
    """Return the identity of ``source``: sha256 over its AST without positions and docstrings.

    Comments, blank lines and formatting do not count. C++ inside a string constant does,
    apart from trailing blanks.

    Raises:
        SyntaxError: the source is not Python.
    """
    try:
        tree = ast.parse(source)
    except ValueError as error:  # source code cannot contain null bytes (before Python 3.12)
        raise SyntaxError(str(error)) from error
    normalised = ast.dump(_Normaliser().visit(tree), include_attributes=False)
    return hashlib.sha256(f"{backend.value}\n{normalised}".encode()).hexdigest()


class _Normaliser(ast.NodeTransformer):
    """Drops docstrings and the trailing blanks of string constants' lines."""

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        is_text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if is_text else self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, str) and "\n" in node.value:
            lines = [line.rstrip() for line in node.value.splitlines()]
            return ast.Constant(value="\n".join(lines))
        return node
