"""Candidates: one Python source file each, and the identity by which duplicates are found."""

from __future__ import annotations

import ast
import hashlib
import re
from functools import lru_cache
from typing import ClassVar, Self

from pydantic import GetCoreSchemaHandler, model_validator
from pydantic_core import core_schema

from evaluator.normal_form import normal_form
from evaluator.records import Record


class BackendName(str):
    """The language that a candidate's kernels are written in: an open set of names.

    ``evaluator/backends`` knows which exist here; a record from elsewhere may name another.
    One object per name, so that ``is`` compares.
    """

    TRITON: ClassVar[BackendName]
    CPP: ClassVar[BackendName]
    CUDA: ClassVar[BackendName]

    _known: ClassVar[dict[str, BackendName]] = {}

    def __new__(cls, name: str) -> BackendName:
        """Return the one object of this name.

        Raises:
            ValueError: it is no lower-case identifier of at most 30 characters.
        """
        if not re.fullmatch(r"[a-z][a-z0-9_]{0,29}", name):
            raise ValueError(f"{name!r} is no backend's name: lower-case letters, digits, _")
        return cls._known.setdefault(name, super().__new__(cls, name))

    @property
    def value(self) -> str:
        """The name as a plain string."""
        return str(self)

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: object, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        """Read from and written as a plain string."""
        return core_schema.no_info_after_validator_function(
            cls,
            core_schema.str_schema(),
            serialization=core_schema.plain_serializer_function_ser_schema(
                str, return_schema=core_schema.str_schema(), when_used="json"
            ),
        )


BackendName.TRITON = BackendName("triton")
BackendName.CPP = BackendName("cpp")
BackendName.CUDA = BackendName("cuda")


class Candidate(Record):
    """One proposed implementation.

    A ``triton`` candidate is plain Python with ``@triton.jit`` kernels. A ``cpp`` or
    ``cuda`` candidate holds its C++ in the module constant ``SOURCE`` and one C signature
    per exported function in ``SIGNATURES``; the backend compiles the source and puts the
    bound functions into the module under the name ``native`` (see
    ``evaluator/worker/native.py``). All define the problem's entry function.
    """

    id: str
    """sha256 of the source's normal form; two candidates with equal ids are the same program."""
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


def native_source(source: str) -> str | None:
    """Return the C++ or CUDA in the module constant ``SOURCE``, None where there is none.

    Raises:
        SyntaxError: ``source`` is not Python.
    """
    return native_text(ast.parse(source))


def native_text(tree: ast.Module) -> str | None:
    """Return what ``native_source`` does, of a source that was parsed."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "SOURCE":
            value = node.value
            return str(value.value) if isinstance(value, ast.Constant) else ast.unparse(value)
    return None


@lru_cache(maxsize=64)  # it is computed, then checked
def candidate_id(source: str, backend: BackendName) -> str:
    """Return the identity of ``source``: sha256 over its normal form (``normal_form.py``).

    Raises:
        SyntaxError: the source is not Python.
    """
    try:
        tree = ast.parse(source)
    except ValueError as error:  # source code cannot contain null bytes (before Python 3.12)
        raise SyntaxError(str(error)) from error
    return hashlib.sha256(f"{backend.value}\n{normal_form(tree)}".encode()).hexdigest()
