"""Classes as extraction sees them: where a member comes from, what ``__init__`` gives ``self``.

A target's class is flattened: the methods that are followed are gathered from it and from its
bases in the repository, in Python's order of look-up (left to right, depth first), and the
bases themselves go. Attributes that the methods read become the problem's state.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial

from integrations.extraction.folding import UNKNOWN, Facts, evaluate
from integrations.extraction.machines import last_name
from integrations.extraction.resolution import Definition, Resolver
from integrations.extraction.source import SourceModule

_REGISTERED = frozenset({"register_buffer", "register_parameter", "add_module", "register_module"})


@dataclass(frozen=True)
class Member:
    """One statement of a class body, and where it stands."""

    module: SourceModule
    owner: ast.ClassDef
    statement: ast.stmt


@dataclass(frozen=True)
class Assigned:
    """One assignment to an attribute of ``self`` in an ``__init__``."""

    module: SourceModule
    line: int
    value: ast.expr
    unconditional: bool


class ClassView:
    """A class with its bases in the repository."""

    def __init__(self, resolver: Resolver, module: SourceModule, node: ast.ClassDef) -> None:
        self.resolver = resolver
        self.module = module
        self.node = node

    @cached_property
    def lineage(self) -> list[tuple[SourceModule, ast.ClassDef]]:
        """The class and its bases in the repository, in the order of look-up."""
        found: list[tuple[SourceModule, ast.ClassDef]] = []
        pending = [(self.module, self.node)]
        while pending:
            module, node = pending.pop(0)
            if any(n is node for _, n in found):
                continue
            found.append((module, node))
            bases = [self.resolver.resolve_expression(module, b) for b in node.bases]
            definitions = [b for b in bases if isinstance(b, Definition)]
            pending[:0] = [
                (d.module, d.statement)
                for d in definitions
                if isinstance(d.statement, ast.ClassDef)
            ]
        return found

    def member(self, name: str) -> Member | None:
        """Return the function or constant that the class gives its instances as ``name``."""
        for module, owner in self.lineage:
            for statement in reversed(owner.body):
                if name in _member_names(statement):
                    return Member(module, owner, statement)
        return None

    @cached_property
    def attributes(self) -> dict[str, list[Assigned]]:
        """What every ``__init__`` of the lineage assigns to ``self``, in source order."""
        assigned: dict[str, list[Assigned]] = {}
        for module, owner in self.lineage:
            for statement in owner.body:
                if isinstance(statement, ast.FunctionDef) and statement.name == "__init__":
                    for name, found in _assignments(module, statement):
                        assigned.setdefault(name, []).append(found)
        return assigned

    @cached_property
    def known_attributes(self) -> dict[str, bool]:
        """Every attribute that some method of the lineage sets, or that the class has."""
        names: dict[str, bool] = {}
        for _, owner in self.lineage:
            for statement in owner.body:
                names.update(dict.fromkeys(_member_names(statement), True))
                names.update(dict.fromkeys(_stored_on_self(statement), True))
        names.update(dict.fromkeys(self.attributes, True))
        return names

    def default(self, attribute: str) -> object:
        """Return the scalar that ``__init__`` gives the attribute by default, or UNKNOWN."""
        for assigned in self.attributes.get(attribute, []):
            known = self.resolver.facts(assigned.module)
            facts = Facts(name=partial(self._value, known), call=known.call)
            value = evaluate(assigned.value, facts)
            if isinstance(value, (bool, int, float, str, type(None))):
                return value
        return UNKNOWN

    def _value(self, known: Facts, name: str) -> object:
        """What a name means in ``__init__``: its parameters hide the module's globals."""
        for _, owner in self.lineage:
            for statement in owner.body:
                if isinstance(statement, ast.FunctionDef) and statement.name == "__init__":
                    arguments = statement.args
                    taken = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
                    if name in {a.arg for a in taken}:
                        default = parameter_defaults(arguments).get(name)
                        return UNKNOWN if default is None else evaluate(default, known)
        return known.name(name)


def parameter_defaults(arguments: ast.arguments) -> dict[str, ast.expr]:
    """Return the default of each parameter that has one."""
    positional = [*arguments.posonlyargs, *arguments.args]
    with_default = positional[len(positional) - len(arguments.defaults) :]
    defaults = {a.arg: d for a, d in zip(with_default, arguments.defaults, strict=True)}
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        if default is not None:
            defaults[argument.arg] = default
    return defaults


def module_kind(value: ast.expr) -> str | None:
    """Return what kind of module an ``__init__`` builds with ``value``, None for other values."""
    if not isinstance(value, ast.Call):
        return None
    name = last_name(value.func) or ""
    is_class = name.lstrip("_")[:1].isupper() and name not in ("Parameter", "Tensor")
    return ast.unparse(value.func) if is_class else None


def _member_names(statement: ast.stmt) -> list[str]:
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return [statement.name]
    if isinstance(statement, ast.Assign):
        return [t.id for t in statement.targets if isinstance(t, ast.Name)]
    if isinstance(statement, ast.AnnAssign) and statement.value is not None:
        return [statement.target.id] if isinstance(statement.target, ast.Name) else []
    return []


def _assignments(module: SourceModule, init: ast.FunctionDef) -> Iterator[tuple[str, Assigned]]:
    top_level = set(init.body)
    statements = [s for s in ast.walk(init) if isinstance(s, ast.stmt)]
    for statement in sorted(statements, key=lambda s: (s.lineno, s.col_offset)):
        for name, value in _stored_values(statement):
            yield name, Assigned(module, statement.lineno, value, statement in top_level)


def _stored_values(statement: ast.stmt) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(statement, ast.Assign):
        for target in statement.targets:
            yield from _pairs(target, statement.value)
    elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
        yield from _pairs(statement.target, statement.value)
    elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        call = statement.value
        if last_name(call.func) in _REGISTERED and len(call.args) > 1:
            name = call.args[0]
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                yield name.value, call.args[1]


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(target, ast.Attribute) and _is_self(target.value):
        yield target.attr, value
    if isinstance(target, ast.Tuple):
        values = value.elts if isinstance(value, ast.Tuple) else [value] * len(target.elts)
        for part, its_value in zip(target.elts, values, strict=False):
            yield from _pairs(part, its_value)


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "self"


def _stored_on_self(statement: ast.stmt) -> Iterator[str]:
    for node in ast.walk(statement):
        match node:
            case ast.Attribute(attr=name, ctx=ast.Store(), value=value) if _is_self(value):
                yield name
