"""The rules of Python that look at one expression: imports, names, attributes, assignments.

Names are followed to the library they came from (``names.py``), so that an alias changes
nothing. State between calls is judged in ``state.py``, hiding a failure in ``fallback.py``.
"""

from __future__ import annotations

import ast
from collections.abc import Collection

from evaluator.source_policy.libraries import (
    BUILTINS,
    COMPUTE_METHODS,
    NAMESPACES,
    is_host_sync,
    verdict_of_attribute,
    verdict_of_name,
)
from evaluator.source_policy.names import Names
from evaluator.source_policy.rules import Findings
from evaluator.source_policy.scopes import FunctionNode
from evaluator.source_policy.words import words

_METHODS_OF_CLASSES = frozenset(("__init__", "__post_init__", "__call__", "__repr__", "__len__"))
_SUBCLASSABLE = frozenset(("torch.nn.Module", "torch.autograd.Function"))
_DECORATORS = words(
    """
    triton.jit triton.autotune triton.heuristics triton.constexpr_function torch.no_grad
    torch.inference_mode builtins.staticmethod builtins.classmethod builtins.property
    dataclasses.dataclass typing.overload functools.wraps functools.lru_cache functools.cache
    functools.cached_property
    """
)
_TF32 = ("tf32", "tf32x3")


def check_python(names: Names, findings: Findings, *, allowed: Collection[str], gpu: bool) -> None:
    """Add what single expressions break.

    Args:
        names: of the module.
        findings: to add to.
        allowed: modules that may be imported.
        gpu: whether tensors lie on a device that the host can wait for.
    """
    checker = _Checker(names, findings, frozenset(allowed), gpu)
    for node in names.scopes.nodes:
        checker.check(node)


class _Checker:
    def __init__(
        self, names: Names, findings: Findings, allowed: frozenset[str], gpu: bool
    ) -> None:
        self._names = names
        self._findings = findings
        self._allowed = allowed
        self._gpu = gpu

    def check(self, node: ast.AST) -> None:
        match node:
            case ast.Import():
                for alias in node.names:
                    self._import(node, alias.name)
            case ast.ImportFrom():
                self._import_from(node)
            case ast.Name():
                self._name(node)
            case ast.Attribute():
                self._attribute(node)
            case ast.Call():
                self._call(node)
            case ast.Subscript(ctx=ast.Store() | ast.Del()):
                self._patched(node, node.value)
            case ast.BinOp(op=ast.MatMult()) | ast.AugAssign(op=ast.MatMult()):
                self._compute(node, "a @ b")
            case _:
                self._definition(node)

    def _definition(self, node: ast.AST) -> None:
        match node:
            case ast.ClassDef():
                self._class(node)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._function(node)
            case ast.MatchClass():
                for attribute in node.kwd_attrs:
                    self._attribute_name(node, attribute)
            case ast.keyword():
                self._keyword(node)
            case ast.Await() | ast.AsyncFor() | ast.AsyncWith():
                self._add("thread", node, "async code")

    def _import(self, node: ast.Import | ast.ImportFrom, module: str) -> None:
        if module not in self._allowed:
            known = ", ".join(sorted(self._allowed - {"__future__"}))
            reason = f"only these may be imported: {known}"
            self._add("import", node, f"import of {module}", reason)
        parts = module.split(".")
        for count in range(2, len(parts) + 1):
            self._library_name(node, ".".join(parts[:count]))

    def _import_from(self, node: ast.ImportFrom) -> None:
        if node.level:
            self._add("import", node, "a relative import", "it leads outside the candidate")
            return
        module = node.module or ""
        self._import(node, module)
        for alias in node.names:
            if alias.name == "*":
                reason = "it hides what is taken; name it"
                self._add("import", node, f"from {module} import *", reason)
            else:
                self._library_name(node, f"{module}.{alias.name}")

    def _name(self, node: ast.Name) -> None:
        if _is_dunder(node.id) and node.id != "__name__":
            self._add("dunder", node, node.id)
        if not isinstance(node.ctx, ast.Load):
            return
        for full in self._names.dotted(node):
            builtin = full.removeprefix("builtins.")
            if full.startswith("builtins.") and builtin in BUILTINS:
                self._add("builtin", node, f"{builtin}()", BUILTINS[builtin])
        self._escape(node)

    def _attribute(self, node: ast.Attribute) -> None:
        if not (node.attr == "__init__" and self._is_super(node.value)):
            self._attribute_name(node, node.attr)
        if not isinstance(node.ctx, ast.Load):
            self._patched(node, node.value)
            return
        for full in self._names.dotted(node):
            self._library_name(node, full)
        self._escape(node)
        self._private(node)

    def _is_super(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Call) and "builtins.super" in self._names.values(node.func)

    def _attribute_name(self, node: ast.AST, attribute: str) -> None:
        verdict = verdict_of_attribute(attribute)
        if verdict is not None:
            self._add(verdict[0], node, f".{attribute}", verdict[1])

    def _private(self, node: ast.Attribute) -> None:
        """A private attribute of something that is not the candidate's own."""
        if not node.attr.startswith("_") or _is_dunder(node.attr):
            return
        scope = self._names.scopes.of[node]
        own = isinstance(node.value, ast.Name) and node.value.id == scope.first_parameter
        if not own and not self._names.values(node) and not self._is_own(node.value):
            self._add("private-name", node, f".{node.attr}")

    def _library_name(self, node: ast.AST, full: str) -> None:
        verdict = verdict_of_name(full)
        if verdict is not None:
            self._add(verdict[0], node, full, verdict[1])

    def _escape(self, node: ast.Name | ast.Attribute) -> None:
        """A module may be renamed, and read from; nothing else can be followed."""
        modules = [m for m in self._names.dotted(node) if m in NAMESPACES]
        if not modules:
            return
        child: ast.AST = node
        parent = self._names.scopes.parent[child]
        while isinstance(parent, (ast.IfExp, ast.BoolOp, ast.NamedExpr)):
            child, parent = parent, self._names.scopes.parent[parent]
        if not self._binds_a_name(parent, child):
            self._add("alias", node, f"the module {modules[0]}")

    def _binds_a_name(self, parent: ast.AST, child: ast.AST) -> bool:
        match parent:
            case ast.Attribute() | ast.arguments() | ast.Expr():
                return True
            case ast.Assign():
                return all(isinstance(t, ast.Name) for t in parent.targets)
            case ast.AnnAssign():
                return isinstance(parent.target, ast.Name) and child is parent.value
            case ast.Tuple() | ast.List():
                above = self._names.scopes.parent[parent]
                return isinstance(above, ast.Assign) and all(
                    isinstance(t, (ast.Tuple, ast.List))
                    and len(t.elts) == len(parent.elts)
                    and all(isinstance(e, ast.Name) for e in t.elts)
                    for t in above.targets
                )
        return False

    def _call(self, node: ast.Call) -> None:
        if "builtins.type" in self._names.values(node.func) and len(node.args) != 1:
            self._add("builtin", node, "type() of three arguments", "it makes a class from text")
        if not isinstance(node.func, ast.Attribute) or self._names.in_jit(node):
            self._layer(node)
            return
        method = node.func.attr
        if self._names.dotted(node.func) or self._is_own(node.func.value):
            self._layer(node)
            return
        if method in COMPUTE_METHODS and not self._names.is_container(node.func.value):
            self._compute(node, f".{method}()")
        if self._gpu and is_host_sync(method):
            self._add("host-sync", node, f".{method}()")
        self._layer(node)

    def _layer(self, node: ast.Call) -> None:
        """Calling a layer of torch computes with the library."""
        for value in sorted(self._names.values(node.func)):
            layer = value.removeprefix("@layer:")
            if value.startswith("@layer:") and not layer.endswith(("Parameter", "Buffer")):
                self._compute(node, f"a call of {layer}")

    def _compute(self, node: ast.AST, what: str) -> None:
        if not self._names.in_jit(node):
            self._add("library-compute", node, what)

    def _is_own(self, node: ast.AST) -> bool:
        """Whether it is the candidate's: of its classes, or the library that SOURCE becomes."""
        if isinstance(node, ast.Name) and node.id == "native" and self._names.scopes.free("native"):
            return True
        tags = ("@class:", "@instance:", "@function:")
        return any(v.startswith(tags) for v in self._names.values(node))

    def _patched(self, node: ast.Attribute | ast.Subscript, base: ast.expr) -> None:
        for full in self._names.dotted(base):
            self._add("monkey-patch", node, f"a change of {full}", "it changes for everyone")
            return
        if not isinstance(node, ast.Attribute) or self._names.values(base):
            return
        scope = self._names.scopes.of[node]
        own = isinstance(base, ast.Name) and base.id == scope.first_parameter
        if not own and not self._is_own(base):
            self._add("monkey-patch", node, f"a change of .{node.attr}")

    def _class(self, node: ast.ClassDef) -> None:
        for base in node.bases:
            for full in self._names.dotted(base):
                if full.startswith(("torch.", "triton.")) and full not in _SUBCLASSABLE:
                    self._add("subclass", node, f"a subclass of {full}")
                if full == "builtins.type":
                    self._add("subclass", node, "a metaclass")
        for keyword in node.keywords:
            self._add("subclass", node, f"the class argument {keyword.arg}")
        for decorator in node.decorator_list:
            self._decorator(decorator)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        if _is_dunder(node.name) and node.name not in _METHODS_OF_CLASSES:
            self._add("dunder", node, f"def {node.name}", "the interpreter calls it unseen")
        if isinstance(node, ast.AsyncFunctionDef):
            self._add("thread", node, "async code")
        for decorator in node.decorator_list:
            self._decorator(decorator)

    def _decorator(self, decorator: ast.expr) -> None:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        known = self._names.dotted(called)
        if not known or not all(name in _DECORATORS for name in known):
            shown = ast.unparse(called)
            if not any(verdict_of_name(name) for name in known):
                self._add("decorator", decorator, f"@{shown}")

    def _keyword(self, node: ast.keyword) -> None:
        value = node.value.value if isinstance(node.value, ast.Constant) else None
        if node.arg == "allow_tf32" and value is True:
            self._add("precision", node.value, "allow_tf32=True")
        if node.arg == "input_precision" and value in _TF32[:1]:
            self._add("precision", node.value, f"input_precision={value!r}")
        if node.arg == "device" and value == "meta":
            self._add("lazy", node.value, "device='meta'")

    def _add(self, rule: str, node: ast.AST, found: str, reason: str | None = None) -> None:
        self._findings.add(rule, getattr(node, "lineno", 1), found, reason)


def own_functions(names: Names) -> list[FunctionNode]:
    """Every function of the module, lambdas too."""
    return [n for n in names.scopes.nodes if isinstance(n, FunctionNode)]


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")
