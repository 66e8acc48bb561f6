"""Pragmas as values: the words and clauses of an OpenMP directive, and writing them back."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Self

from tree_sitter import Node

from evolver.proposers.mutate.cpp_source import CppSource, Splice, text_of

_DIRECTIVE_WORDS = ("parallel", "for", "simd")
_CLAUSE = re.compile(r"([A-Za-z_]+)\s*(\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\))?")
"""A name and, if any, its arguments in parentheses, nested up to three deep."""


@dataclass(frozen=True)
class OmpDirective:
    """``#pragma omp WORDS CLAUSES``; a clause's argument is None where it has none."""

    words: tuple[str, ...]
    clauses: tuple[tuple[str, str | None], ...]

    def clause(self, name: str) -> str | None:
        """Return the argument of clause ``name``, without its parentheses."""
        return next((argument for n, argument in self.clauses if n == name), None)

    def with_clause(self, name: str, argument: str | None) -> Self:
        """Return the directive with the clause set, or dropped where ``argument`` is None."""
        kept = tuple(c for c in self.clauses if c[0] != name)
        return replace(self, clauses=kept if argument is None else (*kept, (name, argument)))

    def with_word(self, word: str) -> Self:
        """Return the directive with ``word`` as its last word."""
        return replace(self, words=(*(w for w in self.words if w != word), word))

    def __str__(self) -> str:
        clauses = [n if a is None else f"{n}({a})" for n, a in self.clauses]
        return " ".join(["#pragma omp", *self.words, *clauses])


def parse_omp(pragma: Node) -> OmpDirective | None:
    """Return the directive of a pragma of the kinds parallel, for and simd, else None."""
    text = " ".join(text_of(pragma).replace("\\\n", " ").split())
    if not text.startswith("#pragma omp "):
        return None
    words: list[str] = []
    clauses: list[tuple[str, str | None]] = []
    for name, arguments in _CLAUSE.findall(text.removeprefix("#pragma omp ")):
        if not clauses and not arguments and name in _DIRECTIVE_WORDS:
            words.append(name)
        else:
            clauses.append((name, arguments[1:-1].strip() if arguments else None))
    return OmpDirective(tuple(words), tuple(clauses)) if words else None


def rewrite(pragma: Node, line: str) -> Splice:
    """Return the splice that puts ``line`` in the place of ``pragma``, its line break kept."""
    tail = "\n" if text_of(pragma).endswith("\n") else ""
    return Splice(pragma.start_byte, pragma.end_byte, line + tail)


def remove(source: CppSource, pragma: Node) -> Splice:
    """Return the splice that takes ``pragma`` and its line away."""
    start = pragma.start_byte - (len(source.indent(pragma)) if _opens_line(source, pragma) else 0)
    return Splice(start, pragma.end_byte, "")


def _opens_line(source: CppSource, node: Node) -> bool:
    line_start = source.cpp.rfind(b"\n", 0, node.start_byte) + 1
    return not source.cpp[line_start : node.start_byte].strip()
