"""The scopes of a Python module: which names each binds, and to what.

Every node gets its scope and its parent, so that the checkers can walk the tree in any
order. Bindings are kept whatever their order in the text: a name is all that it is ever
bound to, in any branch, because a candidate chooses what runs first.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
RESULT = "return"
"""What a function returns or yields is bound to this, which no name can be."""
_WORDLESS = (ast.expr_context, ast.operator, ast.cmpop, ast.boolop, ast.unaryop)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass(frozen=True, eq=False)
class Binding:
    """``name`` in ``scope`` may be what ``value`` is, or ``known`` where no expression says."""

    scope: Scope
    name: str
    value: ast.expr | None = None
    known: str | None = None
    is_attribute: bool = False
    """Of an object of the class that is ``scope``, by ``self.name = value``."""
    is_default: bool = False


@dataclass(eq=False)
class Scope:
    """A module, class, function, lambda or comprehension."""

    node: ast.AST
    parent: Scope | None
    name: str = ""
    bound: dict[str, set[str]] = field(default_factory=dict)
    attributes: dict[str, set[str]] = field(default_factory=dict)
    global_names: set[str] = field(default_factory=set)
    nonlocal_names: set[str] = field(default_factory=set)

    @property
    def is_class(self) -> bool:
        """Whether its names are invisible to the functions inside."""
        return isinstance(self.node, ast.ClassDef)

    @property
    def is_comprehension(self) -> bool:
        """Whether a walrus inside binds outside of it."""
        return isinstance(self.node, _COMPREHENSIONS)

    @property
    def function(self) -> Scope | None:
        """The innermost function that runs this scope; None where the import does."""
        scope: Scope | None = self
        while scope is not None and not isinstance(scope.node, FunctionNode):
            scope = scope.parent
        return scope

    @property
    def method_class(self) -> Scope | None:
        """The class whose method this scope is in, if it is."""
        function = self.function
        while function is not None:
            if function.parent is not None and function.parent.is_class:
                return function.parent
            function = function.parent.function if function.parent is not None else None
        return None

    @property
    def first_parameter(self) -> str | None:
        """The name of a method's own object (``self``, ``ctx``)."""
        function = self.function
        if function is None or self.method_class is None:
            return None
        assert isinstance(function.node, FunctionNode)
        arguments = function.node.args
        positional = [*arguments.posonlyargs, *arguments.args]
        return positional[0].arg if positional else None


class Scopes:
    """The scopes, parents and bindings of one module."""

    def __init__(self, tree: ast.Module) -> None:
        self.module = Scope(tree, None)
        self.of: dict[ast.AST, Scope] = {}
        self.parent: dict[ast.AST, ast.AST] = {}
        self.inside: dict[ast.AST, Scope] = {tree: self.module}
        """The scope that a function, class or comprehension opens."""
        self.nodes: list[ast.AST] = []
        self.bindings: list[Binding] = []
        self._visit(tree, self.module)

    def free(self, name: str) -> bool:
        """Whether nothing in the module binds ``name``, so that it is what the worker binds."""
        return all(name not in s.bound for s in (self.module, *self.inside.values()))

    def parameters(self, function: FunctionNode) -> list[str]:
        """The names that positional arguments are bound to."""
        return [a.arg for a in (*function.args.posonlyargs, *function.args.args)]

    def _visit(self, node: ast.AST, scope: Scope) -> None:
        self.of[node] = scope
        self.nodes.append(node)
        for child, inner in self._children(node, scope):
            self.parent[child] = node
            self._visit(child, inner)
        self._bind(node, scope)

    def _children(self, node: ast.AST, scope: Scope) -> Iterator[tuple[ast.AST, Scope]]:
        if isinstance(node, (FunctionNode, ast.ClassDef, *_COMPREHENSIONS)):
            inner = Scope(node, scope, getattr(node, "name", ""))
            self.inside[node] = inner
            yield from (
                (c, inner if _is_inside(node, c) else scope) for c in ast.iter_child_nodes(node)
            )
            return
        yield from ((child, scope) for child in ast.iter_child_nodes(node))

    def _bind(self, node: ast.AST, scope: Scope) -> None:
        match node:
            case ast.Assign():
                for target in node.targets:
                    self._bind_target(target, node.value, scope)
            case ast.AnnAssign(value=ast.expr()) | ast.AugAssign():
                assert node.value is not None
                self._bind_target(node.target, node.value, scope)
            case ast.NamedExpr():
                self._bind_target(node.target, node.value, _outside_comprehensions(scope))
            case ast.For() | ast.AsyncFor() | ast.comprehension():
                self._bind_target(node.target, node.iter, scope)
            case ast.withitem(optional_vars=ast.expr() as target):
                self._bind_target(target, node.context_expr, scope)
            case ast.ExceptHandler(name=str() as name):
                self._add(scope, name)
            case ast.Match():
                self._bind_patterns(node, scope)
            case _:
                self._bind_definition(node, scope)

    def _bind_definition(self, node: ast.AST, scope: Scope) -> None:
        match node:
            case ast.Import() | ast.ImportFrom():
                self._bind_import(node, scope)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                kind = "class" if isinstance(node, ast.ClassDef) else "function"
                self._add(scope, node.name, known=f"@{kind}:{id(node)}")
            case ast.Global():
                scope.global_names.update(node.names)
            case ast.Nonlocal():
                scope.nonlocal_names.update(node.names)
            case ast.arguments():
                self._bind_parameters(node, self.inside[self.parent[node]])
            case ast.Return(value=ast.expr() as value) | ast.Yield(value=ast.expr() as value):
                if scope.function is not None:
                    self._add(scope.function, RESULT, value)
            case ast.Lambda():
                self._add(self.inside[node], RESULT, node.body)

    def _bind_import(self, node: ast.Import | ast.ImportFrom, scope: Scope) -> None:
        for alias in node.names:
            if isinstance(node, ast.ImportFrom):
                full = f"{node.module or '.'}.{alias.name}"
                self._add(scope, alias.asname or alias.name, known=full)
            elif alias.asname:
                self._add(scope, alias.asname, known=alias.name)
            else:
                top = alias.name.partition(".")[0]
                self._add(scope, top, known=top)

    def _bind_target(self, target: ast.expr, value: ast.expr, scope: Scope) -> None:
        match target:
            case ast.Name():
                self._add(scope, target.id, value)
            case ast.Starred():
                self._bind_target(target.value, value, scope)
            case ast.Tuple() | ast.List():
                for part, its in zip(target.elts, parts_of(target, value), strict=True):
                    self._bind_target(part, its, scope)
            case ast.Attribute(value=ast.Name(id=name)) if name == scope.first_parameter:
                owner = scope.method_class
                assert owner is not None
                self.bindings.append(Binding(owner, target.attr, value, is_attribute=True))

    def _bind_parameters(self, arguments: ast.arguments, scope: Scope) -> None:
        positional = [*arguments.posonlyargs, *arguments.args]
        first_default = len(positional) - len(arguments.defaults)
        defaults = [None] * first_default + list(arguments.defaults) + list(arguments.kw_defaults)
        for one, default in zip([*positional, *arguments.kwonlyargs], defaults, strict=True):
            scope.bound.setdefault(one.arg, set())
            if default is not None:
                self.bindings.append(Binding(scope, one.arg, default, is_default=True))
        for rest in (arguments.vararg, arguments.kwarg):
            if rest is not None:
                scope.bound.setdefault(rest.arg, set())

    def _bind_patterns(self, node: ast.Match, scope: Scope) -> None:
        for case in node.cases:
            for pattern in ast.walk(case.pattern):
                name = getattr(pattern, "rest", None) or getattr(pattern, "name", None)
                if isinstance(name, str):
                    self._add(scope, name, node.subject)

    def _add(
        self, scope: Scope, name: str, value: ast.expr | None = None, known: str | None = None
    ) -> None:
        if name in scope.global_names:
            scope = self.module
        elif name in scope.nonlocal_names:
            scope = _owner(name, scope)
        scope.bound.setdefault(name, set())
        self.bindings.append(Binding(scope, name, value, known))


def _outside_comprehensions(scope: Scope) -> Scope:
    while scope.is_comprehension and scope.parent is not None:
        scope = scope.parent
    return scope


def _owner(name: str, scope: Scope) -> Scope:
    """The enclosing function that ``nonlocal name`` in ``scope`` means."""
    enclosing = scope.parent
    outer = enclosing.function if enclosing is not None else None
    while outer is not None and name not in outer.bound:
        outer = outer.parent.function if outer.parent is not None else None
    return outer or (enclosing.function if enclosing is not None else None) or scope


def parts_of(target: ast.Tuple | ast.List, value: ast.expr) -> list[ast.expr]:
    """What each element of ``target`` is given: its partner where the lengths say so, else all."""
    if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts):
        starred = any(isinstance(e, ast.Starred) for e in (*target.elts, *value.elts))
        if not starred:
            return value.elts
    return [value] * len(target.elts)


def _is_inside(node: ast.AST, child: ast.AST) -> bool:
    """Whether ``child`` of the scope-opening ``node`` is evaluated within it."""
    if isinstance(node, _COMPREHENSIONS):
        return True
    body = getattr(node, "body", None)
    return child is body or (isinstance(body, list) and child in body)
