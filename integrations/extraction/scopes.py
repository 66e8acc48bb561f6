"""Which names of a definition are looked up outside it.

Python's scoping, on ``ast``: parameters, assignments, comprehension targets and nested
definitions hide outer names; names of a class body are invisible to its methods.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def outer_names(
    roots: Iterable[ast.AST], dropped: frozenset[ast.AST] = frozenset()
) -> list[ast.Name]:
    """Return the Name nodes under ``roots`` that no scope within ``roots`` binds.

    Nodes in ``dropped`` are treated as if they were not there.
    """
    finder = _Finder(dropped)
    for root in roots:
        finder.visit(root)
    return finder.found


class _Finder(ast.NodeVisitor):
    def __init__(self, dropped: frozenset[ast.AST]) -> None:
        self.dropped = dropped
        self.scopes: list[set[str]] = []
        self.found: list[ast.Name] = []

    def visit(self, node: ast.AST) -> None:
        if node not in self.dropped:
            super().visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if not any(node.id in scope for scope in self.scopes):
            self.found.append(node)

    def _visit_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> None:
        for outer in _evaluated_outside(node):
            self.visit(outer)
        body = [node.body] if isinstance(node, ast.Lambda) else node.body
        names = {a.arg for a in _all_arguments(node.args)} | _names_bound_by(body, self.dropped)
        self._visit_in_scope(body, names)

    visit_FunctionDef = _visit_function
    visit_AsyncFunctionDef = _visit_function
    visit_Lambda = _visit_function

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for outer in [*node.decorator_list, *node.bases, *node.keywords]:
            self.visit(outer)
        names = _names_bound_by(node.body, self.dropped)
        for statement in node.body:
            is_function = isinstance(statement, _FUNCTIONS)
            self._visit_in_scope([statement], set() if is_function else names)

    def _visit_comprehension(
        self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
    ) -> None:
        self.visit(node.generators[0].iter)
        names: set[str] = set()
        for generator in node.generators:
            names |= _stored_names(generator.target)
        parts: list[ast.AST] = [g.iter for g in node.generators[1:]]
        parts += [condition for g in node.generators for condition in g.ifs]
        parts += [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        self._visit_in_scope(parts, names)

    visit_ListComp = _visit_comprehension
    visit_SetComp = _visit_comprehension
    visit_DictComp = _visit_comprehension
    visit_GeneratorExp = _visit_comprehension

    def _visit_in_scope(self, nodes: Iterable[ast.AST], names: set[str]) -> None:
        self.scopes.append(names)
        for node in nodes:
            self.visit(node)
        self.scopes.pop()


def _all_arguments(arguments: ast.arguments) -> list[ast.arg]:
    extra = [a for a in (arguments.vararg, arguments.kwarg) if a is not None]
    return [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *extra]


def _evaluated_outside(
    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda,
) -> list[ast.AST]:
    arguments = node.args
    outside: list[ast.AST] = [*arguments.defaults, *(d for d in arguments.kw_defaults if d)]
    outside += [a.annotation for a in _all_arguments(arguments) if a.annotation]
    if not isinstance(node, ast.Lambda):
        outside += [*node.decorator_list, *([node.returns] if node.returns else [])]
    return outside


def _stored_names(node: ast.AST) -> set[str]:
    return {
        n.id for n in ast.walk(node) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)
    }


def _names_bound_by(body: Iterable[ast.AST], dropped: frozenset[ast.AST]) -> set[str]:
    """Return the names that the statements bind in their own scope."""
    names: set[str] = set()
    globals_: set[str] = set()
    pending = list(body)
    while pending:
        node = pending.pop()
        if node in dropped:
            continue
        names |= _bound_directly(node)
        if isinstance(node, ast.Global):
            globals_ |= set(node.names)
        if not isinstance(node, (*_FUNCTIONS, *_COMPREHENSIONS, ast.ClassDef)):
            pending.extend(ast.iter_child_nodes(node))
    return names - globals_


def _bound_directly(node: ast.AST) -> set[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
        case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            return {n.target.id for n in ast.walk(node) if isinstance(n, ast.NamedExpr)}
        case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
            return {a.asname or a.name.split(".")[0] for a in aliases}
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
            return {name}
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)):
            return {name}
        case ast.MatchStar(name=str(name)):
            return {name}
    return set()
