"""What outlives a call: caches, function attributes, ``global``, and recognising by address.

A module may hold constants and tables, and fill them while it is imported. A function may
read them; a change from within a function could hold a result for the next call.
"""

from __future__ import annotations

import ast

from evaluator.source_policy.libraries import ALLOCATION_AND_VIEWS, COMPUTE_METHODS
from evaluator.source_policy.names import ADDRESS, Names
from evaluator.source_policy.rules import Findings
from evaluator.source_policy.scopes import Scope
from evaluator.source_policy.words import words

_READING = (
    words(
        """
        get items keys values index count copy dtype device shape layout ndim union
        intersection difference issubset issuperset startswith endswith split join format
        isdisjoint value kwargs num_warps num_stages
        """
    )
    | {n for n in ALLOCATION_AND_VIEWS | COMPUTE_METHODS if not n.endswith("_")}
) - {"add", "sort", "set_"}
_LOOKUPS = words(
    """
    get setdefault add pop index count remove discard
    """
)
_OF_KERNELS = frozenset(("warmup", "best_config", "__name__"))


def check_state(names: Names, findings: Findings) -> None:
    """Add what may hold or recognise something between calls."""
    checker = _Checker(names, findings)
    for node in names.scopes.nodes:
        if names.scopes.of[node].function is not None:
            checker.check(node)


class _Checker:
    def __init__(self, names: Names, findings: Findings) -> None:
        self._names = names
        self._findings = findings

    def check(self, node: ast.AST) -> None:
        match node:
            case ast.Attribute():
                self._attribute(node)
            case ast.Subscript():
                self._subscript(node)
            case ast.Name(ctx=ast.Store() | ast.Del()):
                self._name(node)
            case ast.AugAssign(target=ast.Name() as target):
                self._changed(node, target)
            case ast.Call():
                self._call(node)
            case ast.Compare():
                self._compare(node)
            case ast.Match():
                self._keys(node, [node.subject])

    def _name(self, node: ast.Name) -> None:
        scope = self._names.scopes.of[node]
        if node.id in scope.global_names | scope.nonlocal_names:
            self._add("cache", node, f"a change of the outer variable {node.id}")

    def _attribute(self, node: ast.Attribute) -> None:
        if isinstance(node.ctx, ast.Load):
            self._read(node)
        elif not self._changed(node, node.value):
            self._attribute_changed(node)

    def _read(self, node: ast.Attribute) -> None:
        state = self._names.state(node.value)
        if state is not None and node.attr not in _READING:
            inner = self._names.values(node) - self._names.values(node.value)
            if not inner:
                self._add("cache", node, f"{state}.{node.attr}")
        kernels = [f for f in self._names.functions(node.value) if not self._in_class(f)]
        if kernels and node.attr not in _OF_KERNELS and not self._names.in_jit(node):
            self._add("cache", node, f"{kernels[0].name}.{node.attr}")

    def _in_class(self, function: ast.AST) -> bool:
        return self._names.scopes.of[function].is_class

    def _attribute_changed(self, node: ast.Attribute) -> None:
        scope = self._names.scopes.of[node]
        base = node.value
        own = isinstance(base, ast.Name) and base.id == scope.first_parameter
        if own and not self._may_keep(scope):
            self._add("cache", node, f"a change of {ast.unparse(node)} after it was made")
        tags = ("@function:", "@class:")
        if any(v.startswith(tags) for v in self._names.values(base)):
            self._add("cache", node, f"a change of {ast.unparse(node)}")

    def _may_keep(self, scope: Scope) -> bool:
        """Whether an object is being made here, or holds what one call hands to its backward."""
        function = scope.function
        owner = scope.method_class
        assert function is not None
        assert owner is not None
        assert isinstance(owner.node, ast.ClassDef)
        bases = {v for b in owner.node.bases for v in self._names.values(b)}
        is_context = "torch.autograd.Function" in bases
        return function.name in ("__init__", "__post_init__") or is_context

    def _subscript(self, node: ast.Subscript) -> None:
        if not isinstance(node.ctx, ast.Load):
            self._changed(node, node.value)
        if not self._is_local(node.value):
            self._keys(node, [node.slice])

    def _changed(self, node: ast.AST, base: ast.expr) -> bool:
        state = self._names.state(base)
        if state is not None:
            self._add("cache", node, f"a change of {state}")
        return state is not None

    def _call(self, node: ast.Call) -> None:
        arguments = [*node.args, *(k.value for k in node.keywords)]
        self._call_of_state(node, arguments)
        addresses = [a for a in arguments if ADDRESS in self._names.values(a)]
        method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        base = node.func.value if isinstance(node.func, ast.Attribute) else node.func
        if addresses and method in _LOOKUPS and not self._is_local(base):
            self._add("address", node, f"a look-up by {ast.unparse(addresses[0])}")
        if "builtins.id" in self._names.values(node.func):
            self._add("address", node, "id()")

    def _call_of_state(self, node: ast.Call, arguments: list[ast.expr]) -> None:
        callees = self._names.values(node.func)
        state = self._names.state(node.func)
        if state is not None and not isinstance(node.func, ast.Attribute):
            self._add("cache", node, f"a call of {state}, which was made at import")
        held = next((s for a in arguments if (s := self._names.state(a))), None)
        if held is None:
            return
        if "builtins.next" in callees or any(c.count(".") > 1 for c in _builtins(callees)):
            self._add("cache", node, f"a change of {held}")
        out = next((k.value for k in node.keywords if k.arg == "out"), None)
        if out is not None and self._names.state(out):
            self._add("cache", node, f"a change of {held}")
        if isinstance(node.func, ast.Subscript):
            self._add("buffer", node, f"{held} is handed to a kernel")

    def _is_local(self, node: ast.expr) -> bool:
        """Whether ``node`` is a container that this call made."""
        return self._names.is_container(node) and self._names.state(node) is None

    def _compare(self, node: ast.Compare) -> None:
        """Addresses may be compared with each other, as a test of overlap does."""
        sides = [node.left, *node.comparators]
        with_address = [ADDRESS in self._names.values(s) for s in sides]
        if any(with_address) and not all(with_address):
            self._add("address", node, ast.unparse(node))
        is_identity = any(isinstance(o, (ast.Is, ast.IsNot)) for o in node.ops)
        is_with_constant = any(isinstance(side, ast.Constant) for side in sides)
        if is_identity and not is_with_constant and any(self._is_kept(side) for side in sides):
            self._add("address", node, ast.unparse(node))

    def _is_kept(self, node: ast.expr) -> bool:
        """Whether ``node`` is an object from before this call."""
        base = node
        while isinstance(base, (ast.Attribute, ast.Subscript)):
            base = base.value
        own = isinstance(base, ast.Name) and base.id == self._names.scopes.of[node].first_parameter
        return (own and base is not node) or self._names.state(base) is not None

    def _keys(self, node: ast.AST, keys: list[ast.expr]) -> None:
        for key in keys:
            if ADDRESS in self._names.values(key):
                self._add("address", node, f"a look-up by {ast.unparse(key)}")

    def _add(self, rule: str, node: ast.AST, found: str) -> None:
        self._findings.add(rule, getattr(node, "lineno", 1), found)


def _builtins(values: frozenset[str]) -> list[str]:
    return [v for v in values if v.startswith("builtins.")]
