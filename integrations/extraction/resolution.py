"""What a name of a module means: a definition of the repository, an import that stays, or nothing.

Follows imports across files (relative, aliased, starred, re-exported) to the statement that
defines the name. Nothing is executed; what a ``try`` imports from a package that is not in
the repository gives way to what its handler binds.
"""

from __future__ import annotations

import ast
import builtins
from dataclasses import dataclass, field
from pathlib import Path

from integrations.errors import TargetError
from integrations.extraction.bindings import Binding, Bindings, read_bindings
from integrations.extraction.changes import change_of
from integrations.extraction.folding import UNKNOWN, Facts, evaluate, truth
from integrations.extraction.machines import Machine, answer, last_name
from integrations.extraction.source import SourceModule, SourceTree, runs_with_torch_alone


@dataclass(frozen=True)
class Definition:
    """A function, class or constant of the repository."""

    module: SourceModule
    name: str
    statement: ast.stmt


@dataclass(frozen=True)
class External:
    """A name that an import of torch or of the standard library binds."""

    module: str
    member: str | None
    """The name imported from the module; None where the module itself is bound."""
    bound: str

    def statement(self, name: str) -> str:
        """Return the import statement that binds ``name``."""
        if self.member is not None:
            alias = "" if name == self.member else f" as {name}"
            return f"from {self.module} import {self.member}{alias}"
        if name == self.bound and self.binds_the_top:
            return f"import {self.module}"
        return f"import {self.bound if self.binds_the_top else self.module} as {name}"

    @property
    def binds_the_top(self) -> bool:
        """Whether this is ``import torch.utils.checkpoint``, which binds ``torch``."""
        return self.member is None and self.bound == self.module.partition(".")[0]


@dataclass(frozen=True)
class Place:
    """A module or package of the repository, used as an object."""

    path: Path


@dataclass(frozen=True)
class Builtin:
    """A name that Python itself provides."""


@dataclass(frozen=True)
class Unresolved:
    """A name whose definition cannot be had, and why."""

    reason: str


Resolved = Definition | External | Place | Builtin | Unresolved


@dataclass
class Resolver:
    """Resolves names of the modules of one repository, for one kind of machine."""

    tree: SourceTree
    machine: Machine
    _bindings: dict[SourceModule, Bindings] = field(default_factory=dict)
    _pending: set[tuple[Path, str]] = field(default_factory=set)

    def bindings(self, module: SourceModule) -> Bindings:
        """Return what ``module`` binds, its platform conditions decided."""
        if module not in self._bindings:
            # Conditions refer to names of the module itself: decide them with every branch in view.
            self._bindings[module] = read_bindings(module.tree.body, lambda _: None)
            facts = self.facts(module)
            decided = read_bindings(module.tree.body, lambda test: truth(test, facts))
            self._bindings[module] = decided
        return self._bindings[module]

    def facts(self, module: SourceModule) -> Facts:
        """Return what is known about expressions at the top level of ``module``."""
        return Facts(
            name=lambda name: self.constant(module, name),
            call=lambda call: self.call_value(module, call),
        )

    def resolve(self, module: SourceModule, name: str) -> Resolved:
        """Return what ``name`` means in ``module``."""
        key = (module.path, name)
        if key in self._pending:
            return Unresolved(f"{name}: the imports of {module.name} run in a circle")
        self._pending.add(key)
        try:
            return self._resolve(module, name)
        finally:
            self._pending.discard(key)

    def _resolve(self, module: SourceModule, name: str) -> Resolved:
        bound = self.bindings(module).by_name.get(name, [])
        if bound:
            return self._choose(module, name, bound)
        missing = Unresolved(f"{name} is not defined in {module.name}")
        for star in reversed(self.bindings(module).stars):
            found = self._from_star(module, star, name)
            if isinstance(found, Unresolved):
                missing = found
            elif not isinstance(found, Builtin):
                return found
        return Builtin() if hasattr(builtins, name) else missing

    def member(self, place: Place, name: str) -> Resolved:
        """Return what ``name`` means as an attribute of a module or package."""
        found: Resolved = Unresolved(f"{place.path.name} has no {name}")
        try:
            module = self.tree.module_at(place.path)
        except TargetError as error:
            return Unresolved(f"{name} comes from a file that cannot be read: {error}")
        if module is not None:
            found = self.resolve(module, name)
        if isinstance(found, (Unresolved, Builtin)) and place.path.is_dir():
            below = self.tree.find_under(place.path, name)
            return found if below is None else Place(below)
        return found

    def imported(
        self, module: SourceModule, statement: ast.Import | ast.ImportFrom, alias: ast.alias
    ) -> Resolved:
        """Return what one name of an import statement in ``module`` means."""
        if isinstance(statement, ast.Import):
            return self._plain_import(module, alias)
        bound = alias.asname or alias.name
        dotted = statement.module or ""
        if not statement.level and runs_with_torch_alone(dotted):
            return External(dotted, alias.name, bound)
        place = self._import_place(module, statement)
        if place is None:
            return Unresolved(f"{bound} comes from {dotted}, which torch alone does not bring")
        return self.member(Place(place), alias.name)

    def constant(self, module: SourceModule, name: str) -> object:
        """Return the value of a module constant, or UNKNOWN."""
        if name.rpartition(".")[2] == "TYPE_CHECKING":
            return False
        if "." in name:
            return UNKNOWN
        bound = self.bindings(module).by_name.get(name, [])
        if any(b.fallback or b.attempted or b.condition is not None for b in bound):
            return UNKNOWN
        found = self.resolve(module, name)
        if not isinstance(found, Definition):
            return UNKNOWN
        return self.value_of(found)

    def value_of(self, definition: Definition) -> object:
        """Return the value of a constant's definition, or UNKNOWN."""
        statement = definition.statement
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            value: ast.expr | None = statement.value
        else:
            value = statement.value if isinstance(statement, ast.AnnAssign) else None
        key = (definition.module.path, f"= {definition.name}")
        if value is None or key in self._pending:
            return UNKNOWN
        if change_of(definition.module, definition.name, statement) is not None:
            return UNKNOWN
        self._pending.add(key)
        try:
            return evaluate(value, self.facts(definition.module))
        finally:
            self._pending.discard(key)

    def call_value(self, module: SourceModule, call: ast.Call) -> object:
        """Return what a call about the platform, the environment or a type gives, or UNKNOWN."""
        known, value = answer(call, self.machine)
        if known:
            return value
        if last_name(call.func) == "isinstance" and len(call.args) == 2:
            return False if self.is_repository_class(module, call.args[1]) else UNKNOWN
        return self._declared_variable(module, call)

    def is_repository_class(self, module: SourceModule, node: ast.expr) -> bool:
        """Whether ``node`` names a class that no tensor and no number can be an instance of."""
        if isinstance(node, ast.Tuple):
            return all(self.is_repository_class(module, e) for e in node.elts)
        found = self.resolve_expression(module, node)
        if isinstance(found, Unresolved):
            return True
        return isinstance(found, Definition) and isinstance(found.statement, ast.ClassDef)

    def resolve_expression(self, module: SourceModule, node: ast.expr) -> Resolved:
        """Return what a bare or dotted name means in ``module``."""
        if isinstance(node, ast.Name):
            return self.resolve(module, node.id)
        if isinstance(node, ast.Attribute):
            value = self.resolve_expression(module, node.value)
            return self.member(value, node.attr) if isinstance(value, Place) else value
        return Builtin()

    def _declared_variable(self, module: SourceModule, call: ast.Call) -> object:
        """Fold ``envs.NAME.get()`` where ``envs`` is an instance with ``NAME = Kind(default)``."""
        function = call.func
        if not (isinstance(function, ast.Attribute) and function.attr == "get" and not call.args):
            return UNKNOWN
        if not isinstance(function.value, ast.Attribute):
            return UNKNOWN
        holder = self.resolve_expression(module, function.value.value)
        if not isinstance(holder, Definition) or not isinstance(holder.statement, ast.Assign):
            return UNKNOWN
        made = holder.statement.value
        if not isinstance(made, ast.Call):
            return UNKNOWN
        owner = self.resolve_expression(holder.module, made.func)
        if not isinstance(owner, Definition) or not isinstance(owner.statement, ast.ClassDef):
            return UNKNOWN
        return _class_variable_default(owner.statement, function.value.attr)

    def _plain_import(self, module: SourceModule, alias: ast.alias) -> Resolved:
        top = alias.name.partition(".")[0]
        if runs_with_torch_alone(alias.name):
            return External(alias.name, None, alias.asname or top)
        place = self.tree.find_absolute(alias.name if alias.asname else top, module)
        if place is None:
            return Unresolved(f"{top} is neither torch, the standard library nor in the repository")
        return Place(place)

    def _import_place(self, module: SourceModule, statement: ast.ImportFrom) -> Path | None:
        dotted = statement.module or ""
        if statement.level:
            return self.tree.find_relative(dotted, statement.level, module)
        return self.tree.find_absolute(dotted, module)

    def _from_star(self, module: SourceModule, star: ast.ImportFrom, name: str) -> Resolved:
        place = self._import_place(module, star)
        try:
            source = self.tree.module_at(place) if place is not None else None
        except TargetError as error:
            return Unresolved(f"{name} may come from a file that cannot be read: {error}")
        if source is None or source is module:
            return Unresolved(f"{name} may come from a star import that cannot be read")
        if name.startswith("_") and not _exports(source, name):
            return Unresolved(f"{name} is private to {source.name}")
        return self.resolve(source, name)

    def _choose(self, module: SourceModule, name: str, bound: list[Binding]) -> Resolved:
        """Pick among several bindings: the last that resolves, a handler's only if none does."""
        for fallback in (False, True):
            candidates = [b for b in bound if b.fallback is fallback]
            found = [(b, self._meaning(module, name, b)) for b in candidates]
            usable = [(b, r) for b, r in found if not isinstance(r, Unresolved)]
            if len(usable) > 1 and any(b.condition is not None for b, _ in usable):
                lines = ", ".join(str(b.line) for b, _ in usable)
                return Unresolved(f"{name} has several definitions in {module.name}: lines {lines}")
            if usable:
                return usable[-1][1]
        return self._meaning(module, name, bound[-1])

    def _meaning(self, module: SourceModule, name: str, binding: Binding) -> Resolved:
        statement = binding.statement
        if isinstance(statement, (ast.Import, ast.ImportFrom)) and binding.alias is not None:
            return self.imported(module, statement, binding.alias)
        return Definition(module, name, statement)


def _exports(module: SourceModule, name: str) -> bool:
    """Whether ``__all__`` of the module names ``name``."""
    for statement in module.tree.body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__":
            constants = [n for n in ast.walk(statement.value) if isinstance(n, ast.Constant)]
            return any(c.value == name for c in constants)
    return False


def _class_variable_default(owner: ast.ClassDef, name: str) -> object:
    for statement in owner.body:
        if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Call):
            continue
        arguments = statement.value.args
        is_it = any(isinstance(t, ast.Name) and t.id == name for t in statement.targets)
        if is_it and arguments and isinstance(arguments[0], ast.Constant):
            return arguments[0].value
    return UNKNOWN
