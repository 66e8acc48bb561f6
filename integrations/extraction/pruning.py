"""What is taken out of a definition before its names are followed, and why.

Decorators that do not change what is computed, asserts about types of the repository,
logging and debug calls, branches that a platform flag (or, when asked, a scalar that is the
same in every workload) decides, annotations that would drag classes in. Each is recorded.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from integrations.extraction.decorators import CACHES, Fate, fate_of
from integrations.extraction.edits import Edits, TakeBranch
from integrations.extraction.folding import UNKNOWN, Facts, branch, evaluate, truth
from integrations.extraction.machines import Machine, last_name
from integrations.extraction.resolution import Builtin, Definition, External, Resolver, Unresolved
from integrations.extraction.scopes import outer_names
from integrations.extraction.source import SourceModule

_LOGGERS = frozenset({"logger", "logging", "log", "_logger", "LOGGER", "warnings"})
_LOG_METHODS = re.compile(r"^(debug|info|warn|warning|error|exception|critical|log)(_once)?$")
_DEBUG_CALLS = re.compile(r"^_*(maybe_(detect|check|log|dump|print)|debug|dump|log|nvtx)(_|$)")
_ENDS = (ast.Return, ast.Raise, ast.Continue, ast.Break)
_Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Pruner:
    """Prunes definitions of one module."""

    resolver: Resolver
    module: SourceModule
    known: Mapping[str, object] = field(default_factory=dict)
    """Values of the entry's arguments (``top_k``) and of attributes (``self.top_k``)."""
    has_attribute: Mapping[str, bool] | None = None
    """For methods: whether the class gives ``self`` an attribute, by name."""

    def prune(
        self, statement: ast.stmt, *, is_entry: bool = False, edits: Edits | None = None
    ) -> Edits:
        """Return the edits of one definition (a function, a class, or an assignment).

        What ``edits`` takes out already is not looked at.
        """
        walk = _Walk(self, edits or Edits())
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
            walk.function(statement, is_entry=is_entry)
        elif isinstance(statement, ast.ClassDef):
            walk.class_(statement)
        else:
            walk.constant(statement)
        return walk.edits


@dataclass
class _Walk:
    pruner: Pruner
    edits: Edits
    scopes: list[dict[str, object]] = field(default_factory=list)

    # --- definitions

    def function(self, node: _Function, *, is_entry: bool = False) -> None:
        self._decorators(node)
        self._annotations(node)
        self.scopes.append(self._local_values(node, is_entry))
        self.block(node.body)
        self.scopes.pop()

    def class_(self, node: ast.ClassDef) -> None:
        self._decorators(node)
        self.block(node.body)

    def constant(self, node: ast.stmt) -> None:
        if isinstance(node, ast.AnnAssign):
            self._annotation(node.annotation, replacement="object")
        value = getattr(node, "value", None)
        if not isinstance(value, ast.expr) or not any(
            isinstance(n, ast.Call) for n in ast.walk(value)
        ):
            return
        folded = evaluate(value, self._facts())
        if isinstance(folded, (bool, int, float, str, type(None))):
            self.edits.replace(value, repr(folded))
            self.edits.hidden.add(value)
            self.edits.assume("folded", f"{ast.unparse(node)} is {folded!r}", node.lineno)

    def _decorators(self, node: _Function | ast.ClassDef) -> None:
        for decorator in node.decorator_list:
            call = decorator.func if isinstance(decorator, ast.Call) else decorator
            name = last_name(call) or ""
            fate = fate_of(decorator, self.pruner.resolver, self.pruner.module)
            if fate is Fate.STAYS:
                continue
            text = ast.unparse(decorator)
            self.edits.drop(decorator)
            if fate is Fate.UNKNOWN:
                self.edits.unknown.append(decorator)
            if name in CACHES:
                reason = f"@{text} dropped from {node.name}: a cache must not outlive a call"
                self.edits.assume("cache", reason, decorator.lineno)
                continue
            self.edits.compiled |= "compile" in name
            self.edits.assume("decorator", f"@{text} taken off {node.name}", decorator.lineno)

    def _annotations(self, node: _Function) -> None:
        arguments = node.args
        extra = [a for a in (arguments.vararg, arguments.kwarg) if a is not None]
        listed = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *extra]
        for annotation in [a.annotation for a in listed] + [node.returns]:
            if annotation is not None:
                self._annotation(annotation)

    def _annotation(self, annotation: ast.expr, replacement: str | None = None) -> None:
        """Take an annotation out where it needs more than torch and the standard library."""
        needed = []
        for name in outer_names([annotation]):
            found = self.pruner.resolver.resolve(self.pruner.module, name.id)
            if not isinstance(found, (External, Builtin)):
                needed.append(name.id)
        if not needed:
            return
        detail = f"annotation {ast.unparse(annotation)} dropped: it names {', '.join(needed)}"
        self.edits.assume("annotation", detail, annotation.lineno)
        if replacement is None:
            self.edits.drop(annotation)
        else:
            self.edits.replace(annotation, replacement)
            self.edits.hidden.add(annotation)

    # --- statements

    def block(self, body: list[ast.stmt]) -> None:
        for position, statement in enumerate(body):
            if statement in self.edits.hidden:
                continue
            self._statement(statement)
            if self._always_ends(statement):
                for unreachable in body[position + 1 :]:
                    self.edits.drop(unreachable)
                return

    def _statement(self, node: ast.stmt) -> None:
        if isinstance(node, ast.If):
            self._if(node)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            self.function(node)
        elif isinstance(node, ast.ClassDef):
            self.class_(node)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            self._import(node)
        elif isinstance(node, ast.Assert) and self._is_type_check(node.test):
            self.edits.drop(node)
            self.edits.assume("assert", f"type check dropped: {_short(node)}", node.lineno)
        elif isinstance(node, ast.Expr) and self._is_noise(node.value):
            self.edits.drop(node)
            self.edits.assume("call", f"debug call dropped: {_short(node)}", node.lineno)
        else:
            self._other(node)

    def _other(self, node: ast.stmt) -> None:
        if isinstance(node, ast.AnnAssign):
            self._annotation(node.annotation, replacement="object")
        self._conditional_expressions(node)
        for name in ("body", "orelse", "finalbody"):
            self.block(getattr(node, name, []))
        for handler in getattr(node, "handlers", []):
            self.block(handler.body)

    def _if(self, node: ast.If) -> None:
        taken = truth(node.test, self._facts())
        if taken is None:
            self._conditional_expressions(node)
            self.block(node.body)
            self.block(node.orelse)
            return
        self.edits.take_branch(node, taken)
        detail = f"`if {_short(node.test)}` is {taken}: the other branch is left out"
        self.edits.assume("branch", detail, node.lineno)
        self.block(node.body if taken else node.orelse)

    def _conditional_expressions(self, node: ast.stmt) -> None:
        """Fold ``a if FLAG else b`` in the statement itself, not in the statements below it."""
        pending: list[ast.AST] = [
            c for c in ast.iter_child_nodes(node) if not isinstance(c, ast.stmt)
        ]
        while pending:
            child = pending.pop()
            if isinstance(child, ast.IfExp):
                taken = truth(child.test, self._facts())
                if taken is not None:
                    self._take_side(child, taken)
                    pending.append(branch(child, taken))
                    continue
            if not isinstance(child, (ast.excepthandler, ast.stmt)):
                pending.extend(ast.iter_child_nodes(child))

    def _take_side(self, node: ast.IfExp, taken: bool) -> None:
        self.edits.by_node[node] = TakeBranch(taken)
        self.edits.hidden.update({node.test, branch(node, not taken)})
        detail = f"`{_short(node)}`: the condition is {taken}"
        self.edits.assume("branch", detail, node.lineno)

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        """Move an import of the repository from within a function to the top of the reference."""
        for alias in node.names:
            found = self.pruner.resolver.imported(self.pruner.module, node, alias)
            if not isinstance(found, External):
                break
        else:
            return
        self.edits.drop(node)
        for alias in node.names:
            bound = alias.asname or alias.name.split(".")[0]
            self.edits.local_imports[bound] = (node, alias)

    # --- judgements

    def _is_type_check(self, test: ast.expr) -> bool:
        """Whether an assert is about the repository's own classes."""
        for node in ast.walk(test):
            if isinstance(node, ast.Call) and last_name(node.func) == "isinstance":
                kind = node.args[1]
                return self.pruner.resolver.is_repository_class(self.pruner.module, kind)
        return False

    def _is_noise(self, value: ast.expr) -> bool:
        if not isinstance(value, ast.Call):
            return False
        function = value.func
        if isinstance(function, ast.Name):
            return function.id == "print" or self._is_debug_function(function)
        if not isinstance(function, ast.Attribute) or not isinstance(function.value, ast.Name):
            return False
        return function.value.id in _LOGGERS and bool(_LOG_METHODS.match(function.attr))

    def _is_debug_function(self, function: ast.Name) -> bool:
        if not _DEBUG_CALLS.match(function.id):
            return False
        found = self.pruner.resolver.resolve(self.pruner.module, function.id)
        return isinstance(found, (Definition, Unresolved))

    def _always_ends(self, node: ast.stmt) -> bool:
        """Whether a folded ``if`` makes what follows it unreachable."""
        if not isinstance(node, ast.If) or node not in self.edits.by_node:
            return False
        live = [s for s in [*node.body, *node.orelse] if s not in self.edits.hidden]
        return bool(live) and (isinstance(live[-1], _ENDS) or self._always_ends(live[-1]))

    # --- what is known

    def _facts(self) -> Facts:
        return Facts(name=self._name_value, call=self._call_value)

    def _name_value(self, name: str) -> object:
        if name.startswith("self."):
            return self.pruner.known.get(name, UNKNOWN)
        if name.endswith(".is_cuda") and self.pruner.resolver.machine is Machine.CPU:
            return False
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        return self.pruner.resolver.constant(self.pruner.module, name)

    def _call_value(self, call: ast.Call) -> object:
        if last_name(call.func) == "hasattr" and self.pruner.has_attribute is not None:
            return self._hasattr(call)
        if isinstance(call.func, ast.Name) and any(call.func.id in s for s in self.scopes):
            return UNKNOWN
        return self.pruner.resolver.call_value(self.pruner.module, call)

    def _hasattr(self, call: ast.Call) -> object:
        attributes = self.pruner.has_attribute or {}
        if len(call.args) != 2 or ast.unparse(call.args[0]) != "self":
            return UNKNOWN
        name = call.args[1]
        return bool(attributes.get(str(name.value))) if isinstance(name, ast.Constant) else UNKNOWN

    def _local_values(self, node: _Function, is_entry: bool) -> dict[str, object]:
        """Return every local name of the function, with its value where it is known and constant.

        Values are known for the entry's arguments when the pruner was told of them, and for
        locals that are assigned once from what is known.
        """
        arguments = node.args
        extra = [a for a in (arguments.vararg, arguments.kwarg) if a is not None]
        listed = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *extra]
        stores: dict[str, int] = {}
        for child in ast.walk(node):
            if isinstance(child, ast.Name) and not isinstance(child.ctx, ast.Load):
                stores[child.id] = stores.get(child.id, 0) + 1
        values: dict[str, object] = dict.fromkeys([*(a.arg for a in listed), *stores], UNKNOWN)
        if not self.pruner.known:
            return values
        self.scopes.append(values)
        if is_entry:
            for argument in listed:
                if argument.arg not in stores:
                    known = self.pruner.known.get(argument.arg, UNKNOWN)
                    values[argument.arg] = known
        statements = [n for n in ast.walk(node) if isinstance(n, ast.stmt)]
        for statement in sorted(statements, key=lambda s: s.lineno):
            name, value = _plain_assignment(statement)
            if name is not None and value is not None and stores.get(name) == 1:
                values[name] = evaluate(value, self._facts())
        self.scopes.pop()
        return values


def _plain_assignment(statement: ast.stmt) -> tuple[str | None, ast.expr | None]:
    if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
        return statement.target.id, statement.value
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target = statement.targets[0]
        if isinstance(target, ast.Name):
            return target.id, statement.value
    return None, None


def _short(node: ast.AST, limit: int = 80) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= limit else text[: limit - 1] + "…"
