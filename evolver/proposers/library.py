"""The ``library`` seeder: the reference's own program under the candidate's name.

Where nothing else gave a correct candidate (a convolution that the compiler leaves to the
library, a recurrent network), this one is: it computes what the reference computes, with the
library, and is called ``unimproved`` for it, never faster. So a search always has something
correct to start from, and a table's share of correct problems says what could be judged, not
what the compiler happens to emit. A policy that forbids library compute refuses it like any
other candidate.

The text is reduced to what the entry reaches, since a candidate may import and define no more
than it needs. Native backends and methods with extracted state get nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from evaluator.backends import language_of
from evaluator.candidate import Candidate
from evaluator.problem import Entry
from evolver.proposers.base import ProposalContext


class LibraryProposer:
    """Offers the reference once, where nothing is correct yet."""

    name = "library"
    fallback = True
    """The search asks it when all other seeds are judged."""

    def propose(self, context: ProposalContext) -> Candidate | None:
        """Return the reference's program, None where it cannot serve or is not needed."""
        if context.exemplars or language_of(context.backend).native:
            return None
        source = library_program(context.loaded.reference_source, context.loaded.problem.entry)
        if source is None:
            return None
        return Candidate.create(
            source,
            backend=context.backend,
            proposer=self.name,
            description="the reference's own library calls",
        )


def library_program(reference: str, entry: Entry) -> str | None:
    """Return ``reference`` as a module that defines ``entry``'s candidate; None where it cannot.

    Modules of torch are spelled from ``torch`` on, so that no import but ``torch`` is needed.
    """
    if entry.class_name is not None and entry.constructor is None:
        return None  # its state is set from outside; a candidate takes it as arguments
    wanted = entry.class_name or entry.function
    tree = ast.parse(reference)
    kept = _reached(tree.body, wanted)
    spelling = _Spelling(_torch_aliases(kept), wanted, entry.candidate_function)
    plain = [s for s in kept if not _only_names_torch(s)]
    for statement in plain:
        if isinstance(statement, ast.ClassDef | ast.FunctionDef) and statement.name == wanted:
            statement.name = entry.candidate_function
    body = [ast.Import([ast.alias("torch")]), *(spelling.visit(s) for s in plain)]
    return ast.unparse(ast.fix_missing_locations(ast.Module(body, []))) + "\n"


def _reached(statements: Iterable[ast.stmt], entry: str) -> list[ast.stmt]:
    """The statements that define what ``entry`` needs, in their order."""
    statements = list(statements)
    defines = {id(s): _defined(s) for s in statements}
    needed, waiting = set[int](), {entry}
    while waiting:
        found = [s for s in statements if id(s) not in needed and defines[id(s)] & waiting]
        needed |= {id(s) for s in found}
        waiting = {n.id for s in found for n in ast.walk(s) if isinstance(n, ast.Name)}
    return [s for s in statements if id(s) in needed]


def _defined(statement: ast.stmt) -> set[str]:
    match statement:
        case ast.Import(names) | ast.ImportFrom(names=names):
            return {n.asname or n.name.partition(".")[0] for n in names}
        case ast.ClassDef(name) | ast.FunctionDef(name):
            return {name}
        case ast.Assign(targets):
            return {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)}
        case ast.AnnAssign(target=ast.Name(name)):
            return {name}
    return set()


def _torch_aliases(statements: Iterable[ast.stmt]) -> dict[str, str]:
    """Local names of torch's modules and members, with what they are in full."""
    found: dict[str, str] = {}
    for statement in statements:
        match statement:
            case ast.Import(names):
                found |= {n.asname: n.name for n in names if n.asname and _is_torch(n.name)}
            case ast.ImportFrom(module, names, 0) if module and _is_torch(module):
                found |= {n.asname or n.name: f"{module}.{n.name}" for n in names}
    return found


def _only_names_torch(statement: ast.stmt) -> bool:
    match statement:
        case ast.Import(names):
            return all(_is_torch(n.name) for n in names)
        case ast.ImportFrom(module):
            return _is_torch(module or "")
    return False


def _is_torch(module: str) -> bool:
    return module.partition(".")[0] == "torch"


class _Spelling(ast.NodeTransformer):
    """Writes aliases out in full, and the entry under the candidate's name."""

    def __init__(self, aliases: dict[str, str], wanted: str, name: str) -> None:
        self._aliases = aliases
        self._wanted = wanted
        self._name = name

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in self._aliases and isinstance(node.ctx, ast.Load):
            return ast.parse(self._aliases[node.id], mode="eval").body
        if node.id == self._wanted:
            node.id = self._name
        return node
