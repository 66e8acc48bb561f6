"""Edits of a definition: what extraction takes out of, or changes in, the original text.

An edit names an ``ast`` node of the original file; ``reference`` carries the edits out with
libcst, which leaves every other character as it was.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from evaluator.problem import Assumption


@dataclass(frozen=True)
class TakeBranch:
    """An ``if`` gives way to the branch that is taken."""

    taken: bool


@dataclass(frozen=True)
class Drop:
    """A statement, decorator or annotation goes."""


@dataclass(frozen=True)
class Replace:
    """An expression gives way to other text."""

    text: str


Edit = TakeBranch | Drop | Replace


@dataclass
class Edits:
    """The edits of one definition, the nodes that they hide, and what they assume."""

    by_node: dict[ast.AST, Edit] = field(default_factory=dict)
    hidden: set[ast.AST] = field(default_factory=set)
    """Nodes that will not be in the reference: neither their names nor their sins count."""
    assumptions: list[Assumption] = field(default_factory=list)
    local_imports: dict[str, tuple[ast.Import | ast.ImportFrom, ast.alias]] = field(
        default_factory=dict
    )
    """Names bound by imports within functions that were moved to the top."""
    unknown: list[ast.expr] = field(default_factory=list)
    """Decorators of packages that are not here, which may change the result."""
    compiled: bool = False
    """Whether a ``torch.compile`` decorator was taken off."""

    def drop(self, node: ast.AST) -> None:
        """Take a statement, decorator or annotation out."""
        self.by_node[node] = Drop()
        self.hidden.add(node)

    def take_branch(self, node: ast.If, taken: bool) -> None:
        """Keep one branch of an ``if``."""
        self.by_node[node] = TakeBranch(taken)
        self.hidden.add(node.test)
        self.hidden.update(node.orelse if taken else node.body)

    def replace(self, node: ast.expr, text: str) -> None:
        """Put ``text`` where the expression is."""
        self.by_node[node] = Replace(text)

    def assume(self, kind: str, detail: str, line: int) -> None:
        """Record what was dropped, folded or assumed."""
        assumption = Assumption(kind=kind, detail=detail, line=line)
        if assumption not in self.assumptions:
            self.assumptions.append(assumption)
