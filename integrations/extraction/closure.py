"""The closure: every definition of the repository that the target needs, dependencies first.

Each definition is pruned before its names are followed, so that what is taken out drags
nothing in. Names that two files use differently get a suffix; names that cannot be followed
are collected, so that one refusal lists them all.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from integrations.errors import Refused
from integrations.extraction.changes import change_of
from integrations.extraction.construction import (
    construction_faults,
    unreached,
    untracked_tensors,
)
from integrations.extraction.edits import Edits
from integrations.extraction.methods import ClassView, Member, module_kind
from integrations.extraction.ordering import ordered
from integrations.extraction.piece import Piece
from integrations.extraction.pruning import Pruner
from integrations.extraction.resolution import (
    Definition,
    External,
    Place,
    Resolved,
    Resolver,
    Unresolved,
)
from integrations.extraction.scopes import outer_names
from integrations.extraction.source import SourceModule
from integrations.extraction.target import Target, triton_decorator

MAX_DEFINITIONS = 80
"""A target that needs more than this drags the engine itself in; it is no kernel."""

TOO_DEEP = "its syntax is nested too deeply to be followed, as in generated code"

_Key = tuple[object, ...]
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass
class ClassPiece:
    """The target's class, flattened to the members that are followed."""

    name: str
    members: list[Piece]


@dataclass
class Closure:
    """What the reference consists of."""

    entry: Piece
    owner: ClassPiece | None = None
    pieces: list[Piece] = field(default_factory=list)
    """Dependencies first; the entry's own piece is the last where it is a function."""
    imports: dict[External, str] = field(default_factory=dict)
    state: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    """Reasons to refuse, each with file and line."""
    needs_constructor: bool = False
    """Whether ``self`` holds modules, so that only its ``__init__`` can make it."""
    constructed: str | None = None
    """The class that is kept whole and constructed; None where ``owner`` or a function is."""
    lazy_annotations: bool = False

    @property
    def everything(self) -> list[Piece]:
        """Every piece, members of the class included."""
        return self.pieces + (self.owner.members if self.owner else [])


def close_over(
    target: Target, resolver: Resolver, known: Mapping[str, object], *, constructed: bool = False
) -> Closure:
    """Follow the target's names through the repository.

    ``known`` holds scalars that are the same in every workload, by argument (``top_k``) and by
    attribute (``self.top_k``); branches that they decide are left out. ``constructed`` keeps the
    target's class with its ``__init__`` and its bases.

    Raises:
        Refused: the source is nested more deeply than Python recurses.
    """
    builder = _Builder(target, resolver, known)
    try:
        return builder.build_constructed() if constructed else builder.build()
    except RecursionError as error:
        raise Refused(target.spelled, (TOO_DEEP,)) from error


class _Builder:
    def __init__(self, target: Target, resolver: Resolver, known: Mapping[str, object]) -> None:
        self.target = target
        self.resolver = resolver
        self.known = known
        self.view = (
            ClassView(resolver, target.module, target.owner) if target.owner is not None else None
        )
        self.names: dict[_Key, str] = {}
        self.taken: set[str] = set()
        self.seen: dict[ast.stmt, Piece] = {}
        self.members: dict[str, Piece] = {}
        self.needs: dict[ast.stmt, list[ast.stmt]] = {}

    def build(self) -> Closure:
        target = self.target
        if target.owner is None:
            name = self._claim(self._key(target.module, target.function.name), target.function.name)
            entry = self._open(target.module, target.function, name, is_entry=True)
            self.result = Closure(entry=entry)
            self._follow_names(entry)
            self.result.pieces.append(entry)
        else:
            name = self._claim(self._key(target.module, target.owner.name), target.owner.name)
            entry = self._open(target.module, target.function, target.function.name, is_entry=True)
            self.result = Closure(entry=entry, owner=ClassPiece(name, []))
            self.members[target.function.name] = entry
            self._drop_bases(entry)
            self._follow_member(entry)
            members = sorted(self.members.values(), key=self._member_order)
            self.result.owner = ClassPiece(name, members)
            self.result.state = self._ordered_state()
        return self._finished()

    def build_constructed(self) -> Closure:
        """Keep the class: its ``__init__``, the target, and the methods that these call."""
        owner, module, function = self.target.owner, self.target.module, self.target.function
        assert owner is not None
        name = self._claim(self._key(module, owner.name), owner.name)
        piece = self._open(module, owner, name, edits=unreached(owner, function.name))
        entry = Piece(module, function, piece.edits, function.name)
        self.result = Closure(entry=entry, constructed=name)
        for node, reason in construction_faults(owner, piece.edits):
            self._refuse(piece, node, reason)
        self._follow_names(piece)
        self.result.pieces.append(piece)
        for kept in self.result.pieces:
            for node, reason in untracked_tensors(kept.statement):
                self._refuse(kept, node, reason)
        return self._finished()

    def _finished(self) -> Closure:
        self.result.pieces = ordered(self.result.pieces, self.needs)
        self.result.lazy_annotations = any(
            p.module.has_lazy_annotations for p in self.result.everything
        )
        return self.result

    # --- pieces

    def _open(
        self,
        module: SourceModule,
        statement: ast.stmt,
        name: str,
        *,
        is_entry: bool = False,
        edits: Edits | None = None,
    ) -> Piece:
        attributes = self.view.known_attributes if self.view is not None else None
        pruner = Pruner(self.resolver, module, self.known, attributes)
        edits = pruner.prune(statement, is_entry=is_entry, edits=edits)
        piece = Piece(module, statement, edits, name)
        self.seen[statement] = piece
        return piece

    def _follow_names(self, piece: Piece) -> None:
        parents = _parents(piece.statement)
        for node in outer_names([piece.statement], frozenset(piece.edits.hidden)):
            if isinstance(node.ctx, ast.Load):
                self._follow_name(piece, node, parents)
            elif isinstance(piece.statement, (*_FUNCTIONS, ast.ClassDef)):
                self._refuse(piece, node, f"assigns the module's global {node.id}")

    def _follow_name(
        self, piece: Piece, node: ast.Name, parents: Mapping[ast.AST, ast.AST]
    ) -> None:
        found = self._meaning(piece, node.id)
        expression: ast.expr = node
        while isinstance(found, Place):
            parent = parents.get(expression)
            if not isinstance(parent, ast.Attribute):
                found = Unresolved(f"{ast.unparse(expression)} is a module used as a value")
                break
            expression = parent
            found = self.resolver.member(found, parent.attr)
        if isinstance(found, Unresolved):
            self._refuse(piece, expression, f"unresolved name: {found.reason}")
            return
        if isinstance(found, Definition):
            self.needs.setdefault(piece.statement, []).append(found.statement)
            change = change_of(found.module, found.name, found.statement)
            if change is not None:
                self._refuse(piece, expression, f"reads {found.name}, which {change}")
                return
        if isinstance(found, Definition) and triton_decorator(found.statement) is not None:
            self._refuse(piece, expression, f"uses {found.name}, a kernel in Triton")
            return
        name = self._follow(found)
        if name is not None and name != ast.unparse(expression):
            piece.edits.replace(expression, name)

    def _meaning(self, piece: Piece, name: str) -> Resolved:
        moved = piece.edits.local_imports.get(name)
        if moved is not None:
            return self.resolver.imported(piece.module, *moved)
        return self.resolver.resolve(piece.module, name)

    def _follow(self, found: Resolved) -> str | None:
        """Take in what a name means; return what it is called in the reference."""
        if isinstance(found, External):
            return self._follow_external(found)
        if not isinstance(found, Definition):
            return None
        key = self._key(found.module, found.name)
        if key not in self.names:
            self._claim(key, found.name, suffix=found.module.path.stem)
        if found.statement not in self.seen and not self._is_too_large():
            piece = self._open(found.module, found.statement, self.names[key])
            self._follow_names(piece)
            self.result.pieces.append(piece)
        if self.names[key] != found.name and found.statement in self.seen:
            self._rename_definition(self.seen[found.statement], found.name, self.names[key])
        return self.names[key]

    def _is_too_large(self) -> bool:
        """Whether the closure has outgrown what can be a kernel; then nothing is added."""
        if len(self.seen) < MAX_DEFINITIONS:
            return False
        reason = f"needs more than {MAX_DEFINITIONS} definitions of the repository"
        self._refuse(self.result.entry, self.result.entry.statement, reason)
        return True

    def _follow_external(self, found: External) -> str:
        module = found.bound if found.binds_the_top else found.module
        key = (module, found.member, found.member is None and found.bound)
        if key not in self.names:
            self._claim(key, found.bound, suffix=found.module.rpartition(".")[2])
        self.result.imports[found] = self.names[key]
        return self.names[key]

    def _rename_definition(self, piece: Piece, old: str, new: str) -> None:
        for node in ast.walk(piece.statement):
            if isinstance(node, ast.Name) and node.id == old and isinstance(node.ctx, ast.Store):
                piece.edits.replace(node, new)

    @staticmethod
    def _key(module: SourceModule, name: str) -> _Key:
        return (module.path, name)

    def _claim(self, key: _Key, wanted: str, suffix: str = "") -> str:
        name = wanted
        while name in self.taken:
            name = f"{name}_{suffix}"
        self.taken.add(name)
        self.names[key] = name
        return name

    def _refuse(self, piece: Piece, node: ast.AST, reason: str) -> None:
        line = getattr(node, "lineno", piece.statement.lineno)
        text = f"{piece.module.name}:{line}: {reason}"
        if text not in self.result.problems:
            self.result.problems.append(text)

    # --- methods and self

    def _drop_bases(self, entry: Piece) -> None:
        owner = self.target.owner
        assert owner is not None
        if owner.bases or owner.keywords:
            bases = ", ".join(ast.unparse(b) for b in [*owner.bases, *owner.keywords])
            entry.edits.assume(
                "base", f"{owner.name}({bases}): the bases are dropped", owner.lineno
            )

    def _follow_member(self, piece: Piece) -> None:
        if isinstance(piece.statement, _FUNCTIONS):
            for node in self._self_uses(piece):
                self._follow_attribute(piece, node)
        self._follow_names(piece)

    def _self_uses(self, piece: Piece) -> Iterator[ast.Attribute]:
        statement = piece.statement
        assert isinstance(statement, _FUNCTIONS)
        decorators = {ast.unparse(d) for d in statement.decorator_list}
        parameters = [*statement.args.posonlyargs, *statement.args.args]
        if "staticmethod" in decorators or not parameters:
            return
        myself = parameters[0].arg
        attributes: set[ast.AST] = set()
        for node in live_nodes(piece):
            if isinstance(node, ast.Attribute) and _is_name(node.value, myself):
                attributes.add(node.value)
                yield node
            elif isinstance(node, ast.Name) and node.id == "super":
                self._refuse(piece, node, "calls super(), and the bases are not kept")
        for node in live_nodes(piece):
            if _is_name(node, myself) and node not in attributes:
                self._refuse(piece, node, "hands self on; only attributes of self can be state")

    def _follow_attribute(self, piece: Piece, node: ast.Attribute) -> None:
        assert self.view is not None
        name = node.attr
        if not isinstance(node.ctx, ast.Load):
            self._refuse(piece, node, f"assigns self.{name}, so that calls depend on each other")
            return
        member = self.view.member(name)
        assigned = self.view.attributes.get(name, [])
        if member is not None and not (assigned and not isinstance(member.statement, _FUNCTIONS)):
            self._take_member(name, member)
        elif not self._replace_alias(piece, node):
            self._take_state(piece, node)

    def _take_member(self, name: str, member: Member) -> None:
        if name in self.members:
            return
        piece = self._open(member.module, member.statement, name)
        if member.owner is not self.target.owner:
            where = f"{member.module.name}::{member.owner.name}"
            piece.edits.assume(
                "method", f"{name} is inherited from {where}", member.statement.lineno
            )
        self.members[name] = piece
        self._follow_member(piece)

    def _replace_alias(self, piece: Piece, node: ast.Attribute) -> bool:
        """Put the function in place of an attribute that ``__init__`` binds to a function."""
        assert self.view is not None
        for assigned in self.view.attributes.get(node.attr, []):
            if not assigned.unconditional or not isinstance(
                assigned.value, (ast.Name, ast.Attribute)
            ):
                continue
            found = self.resolver.resolve_expression(assigned.module, assigned.value)
            if isinstance(found, Definition) and isinstance(found.statement, _FUNCTIONS):
                name = self._follow(found)
                assert name is not None
                piece.edits.replace(node, name)
                detail = f"self.{node.attr} is {name}, as __init__ binds it at line {assigned.line}"
                piece.edits.assume("attribute", detail, assigned.line)
                return True
        return False

    def _take_state(self, piece: Piece, node: ast.Attribute) -> None:
        assert self.view is not None
        kinds = [module_kind(a.value) for a in self.view.attributes.get(node.attr, [])]
        kind = next((k for k in kinds if k), None)
        if kind is not None:
            self.result.needs_constructor = True
            reason = f"self.{node.attr} is a module ({kind}); give `constructor:` in the workloads"
            self._refuse(piece, node, reason)
        if node.attr not in self.result.state:
            self.result.state.append(node.attr)

    def _ordered_state(self) -> list[str]:
        """Attributes in the order in which ``__init__`` assigns them, then in order of reading."""
        assert self.view is not None
        assigned = [a for a in self.view.attributes if a in self.result.state]
        return assigned + [a for a in self.result.state if a not in assigned]

    def _member_order(self, piece: Piece) -> tuple[int, int]:
        assert self.view is not None
        paths = [m.path for m, _ in self.view.lineage]
        return -paths.index(piece.module.path), piece.statement.lineno


def live_nodes(piece: Piece) -> Iterator[ast.AST]:
    """Yield the nodes of a piece that will be in the reference, in source order."""
    pending: list[ast.AST] = [piece.statement]
    while pending:
        node = pending.pop()
        if node in piece.edits.hidden:
            continue
        yield node
        pending.extend(reversed(list(ast.iter_child_nodes(node))))


def _is_name(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _parents(root: ast.AST) -> dict[ast.AST, ast.AST]:
    return {child: node for node in ast.walk(root) for child in ast.iter_child_nodes(node)}
