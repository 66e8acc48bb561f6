"""What a name or an expression may be: aliases followed to the library they came from.

A value is a dotted path (``torch.cuda.Stream``, ``builtins.getattr``) or a tag:
``@function:`` and ``@class:`` of the module's own, ``@instance:`` of such a class,
``@layer:torch.nn.Linear``, ``@address`` for the number that says where an object lies, and
``@state:NAME`` for a changeable object that lives longer than one call. The analysis follows
assignments, unpacking, defaults, walrus, comprehensions, attributes of the module's own
classes, and arguments and results of its own functions. Order and conditions are ignored and
a container stands for its elements, so the sets are too large rather than too small; whatever
cannot be followed has no value, and the rules refuse modules that would end there.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Mapping

from evaluator.source_policy.scopes import RESULT, Binding, FunctionNode, Scope, Scopes
from evaluator.source_policy.words import words

ADDRESS = "@address"
_BUILTINS = frozenset(dir(builtins))
_MAX_PARTS = 8
_LARGEST_ALIGNMENT = 256
_NOTHING: frozenset[str] = frozenset()
_PASS_ELEMENTS = words(
    """
    list tuple set frozenset dict iter next reversed sorted zip enumerate filter map min max int
    str hash repr abs sum
    """
)
_TRANSPARENT: Mapping[type, tuple[str, ...]] = {
    ast.NamedExpr: ("value",),
    ast.Starred: ("value",),
    ast.Await: ("value",),
    ast.FormattedValue: ("value",),
    ast.IfExp: ("body", "orelse"),
    ast.BoolOp: ("values",),
    ast.Tuple: ("elts",),
    ast.List: ("elts",),
    ast.Set: ("elts",),
    ast.Dict: ("values",),
    ast.JoinedStr: ("values",),
    ast.ListComp: ("elt",),
    ast.SetComp: ("elt",),
    ast.GeneratorExp: ("elt",),
    ast.DictComp: ("value",),
}
"""Expressions that may be whatever their parts may be."""
_COMPREHENSIONS = (ast.ListComp, ast.DictComp, ast.SetComp, ast.GeneratorExp)
_DISPLAYS = (ast.List, ast.Dict, ast.Set, *_COMPREHENSIONS)
_MUTABLE_BUILTINS = words(
    """
    builtins.list builtins.dict builtins.set builtins.bytearray builtins.iter
    collections.OrderedDict collections.defaultdict collections.deque collections.Counter
    """
)
_IMMUTABLE_PREFIXES = ("math.", "builtins.", "typing.", "torch.cuda.")
_IMMUTABLE_RESULTS = words(
    """
    triton.jit triton.autotune triton.heuristics triton.Config triton.cdiv
    triton.next_power_of_2 triton.language.constexpr triton.language.cdiv
    triton.language.next_power_of_2 torch.device torch.Size torch.finfo torch.iinfo
    torch.no_grad torch.inference_mode
    """
)


class Names:
    """Resolves the expressions of one module."""

    def __init__(self, tree: ast.Module) -> None:
        self.scopes = Scopes(tree)
        self._nodes = {id(n): n for n in self.scopes.nodes}
        self._shallow: set[str] = set()
        self._cache: dict[ast.AST, frozenset[str]] = {}
        self._solved = False
        self._solve()
        self._solved = True

    def values(self, node: ast.AST | None) -> frozenset[str]:
        """Everything that ``node`` may be; empty where nothing is known."""
        if node is None:
            return _NOTHING
        if self._solved and node in self._cache:
            return self._cache[node]
        found = self._values(node)
        if self._solved:
            self._cache[node] = found
        return found

    def dotted(self, node: ast.AST) -> list[str]:
        """The library names that ``node`` may be."""
        return sorted(v for v in self.values(node) if not v.startswith("@"))

    def functions(self, node: ast.AST) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
        """The module's own functions that ``node`` may be."""
        found = (self._tagged(v, "@function:") for v in sorted(self.values(node)))
        return [f for f in found if isinstance(f, (ast.FunctionDef, ast.AsyncFunctionDef))]

    def definitions(self, node: ast.AST) -> list[ast.AST]:
        """The module's own functions and classes that ``node`` may be, or be made of."""
        tags = ("@function:", "@class:", "@instance:")
        found = (self._tagged(v, t) for v in sorted(self.values(node)) for t in tags)
        return [d for d in found if d is not None]

    def state(self, node: ast.AST) -> str | None:
        """The name of an object in ``node`` that lives between calls, if there is one."""
        found = sorted(v for v in self.values(node) if v.startswith("@state:"))
        return found[0].removeprefix("@state:") if found else None

    def is_container(self, node: ast.AST) -> bool:
        """Whether ``node`` is a name that is only ever bound to lists, dictionaries and sets."""
        if not isinstance(node, ast.Name):
            return isinstance(node, _DISPLAYS)
        scope = self.scopes.of[node]
        bound = [b for b in self.scopes.bindings if b.name == node.id and b.scope is scope]
        return bool(bound) and all(
            b.value is not None and self._is_mutable(b.value, only_displays=True) for b in bound
        )

    def is_jit(self, function: ast.AST) -> bool:
        """Whether ``function`` is decorated with ``triton.jit``."""
        return any(
            "triton.jit" in self.values(d.func if isinstance(d, ast.Call) else d)
            for d in getattr(function, "decorator_list", ())
        )

    def in_jit(self, node: ast.AST) -> bool:
        """Whether ``node`` lies in a kernel, where Python's and torch's names mean nothing."""
        function = self.scopes.of[node].function
        while function is not None:
            if self.is_jit(function.node):
                return True
            function = function.parent.function if function.parent is not None else None
        return False

    def _values(self, node: ast.AST) -> frozenset[str]:
        match node:
            case ast.Name():
                return self._lookup(node.id, self.scopes.of[node])
            case ast.Attribute():
                return self._attribute(node)
            case ast.Call():
                return self._call(node)
            case ast.Subscript():
                kept = (v for v in self.values(node.value) if v.startswith("@"))
                return frozenset(e for v in kept for e in self._element(v))
            case ast.BinOp():
                return self._binary(node)
            case ast.Lambda():
                return frozenset((f"@function:{id(node)}",))
        parts: list[ast.AST | None] = []
        for name in _TRANSPARENT.get(type(node), ()):
            part = getattr(node, name)
            parts += part if isinstance(part, list) else [part]
        return _NOTHING.union(*(self.values(p) for p in parts))

    def _solve(self) -> None:
        """Repeat all bindings until no name learns anything more."""
        bindings = list(self.scopes.bindings)
        calls = [n for n in self.scopes.nodes if isinstance(n, ast.Call)]
        known: set[tuple[Scope, str, ast.AST | None]] = set()
        changed = True
        while changed:
            changed = False
            for binding in bindings:
                scope = binding.scope
                names = scope.attributes if binding.is_attribute else scope.bound
                into = names.setdefault(binding.name, set())
                found = self._bound(binding)
                changed |= not found <= into
                into |= found
            for binding in (b for call in calls for b in self._arguments(call)):
                key = (binding.scope, binding.name, binding.value)
                if key not in known:
                    known.add(key)
                    bindings.append(binding)
                    changed = True

    def _bound(self, binding: Binding) -> frozenset[str]:
        if binding.known is not None:
            return frozenset((binding.known,))
        found = self.values(binding.value)
        if self._outlives_a_call(binding) and binding.value is not None:
            only_displays = binding.is_attribute
            if self._is_mutable(binding.value, only_displays=only_displays):
                found |= {f"@state:{self._state_name(binding)}"}
        return found

    def _outlives_a_call(self, binding: Binding) -> bool:
        return binding.is_default or binding.is_attribute or binding.scope.function is None

    def _state_name(self, binding: Binding) -> str:
        name = f"{binding.scope.name}.{binding.name}" if binding.scope.is_class else binding.name
        assert binding.value is not None
        if not self._is_deep(binding.value):
            self._shallow.add(name)
        return name

    def _is_mutable(self, node: ast.expr, *, only_displays: bool = False) -> bool:
        """Whether what ``node`` makes can be changed later."""
        match node:
            case ast.Tuple():
                return any(self._is_mutable(e, only_displays=only_displays) for e in node.elts)
            case ast.BinOp():
                return self._is_mutable(node.left) or self._is_mutable(node.right)
            case ast.IfExp():
                return self._is_mutable(node.body) or self._is_mutable(node.orelse)
            case ast.Call():
                made_by = self.values(node.func)
                if only_displays or made_by & _MUTABLE_BUILTINS:
                    return bool(made_by & _MUTABLE_BUILTINS)
                return not (made_by and all(_gives_a_constant(m) for m in made_by))
        return isinstance(node, _DISPLAYS)

    def _is_deep(self, node: ast.expr) -> bool:
        """Whether an element of what ``node`` makes can be changed later."""
        match node:
            case ast.List() | ast.Set() | ast.Tuple():
                return any(self._is_mutable(e) for e in node.elts)
            case ast.Dict():
                return any(self._is_mutable(e) for e in node.values)
            case ast.ListComp() | ast.SetComp():
                return self._is_mutable(node.elt)
            case ast.DictComp():
                return self._is_mutable(node.value)
        return True

    def _arguments(self, call: ast.Call) -> Iterator[Binding]:
        """A call of one of the module's own functions binds its parameters."""
        for value in self.values(call.func):
            function = self._tagged(value, "@function:")
            if isinstance(function, FunctionNode):
                yield from self._call_bindings(call, function)

    def _call_bindings(self, call: ast.Call, function: FunctionNode) -> Iterator[Binding]:
        inner = self.scopes.inside[function]
        names = self.scopes.parameters(function)
        if inner.parent is not None and inner.parent.is_class:
            names = names[1:]
        rest = function.args.vararg.arg if function.args.vararg is not None else None
        for position, argument in enumerate(call.args):
            if isinstance(argument, ast.Starred):
                yield from (Binding(inner, n, argument) for n in names[position:])
            elif position < len(names):
                yield Binding(inner, names[position], argument)
            elif rest is not None:
                yield Binding(inner, rest, argument)
        for keyword in call.keywords:
            wanted = [keyword.arg] if keyword.arg is not None else names
            yield from (Binding(inner, n, keyword.value) for n in wanted if n in inner.bound)

    def _lookup(self, name: str, start: Scope) -> frozenset[str]:
        found: set[str] = set()
        scope: Scope | None = self.scopes.module if name in start.global_names else start
        while scope is not None:
            if name in scope.bound and (scope is start or not scope.is_class):
                found |= scope.bound[name]
                if scope.function is not None and not scope.is_class:
                    return frozenset(found)
            scope = scope.parent
        if name in _BUILTINS:
            # A module's name hides the builtin only from when it is bound until it is deleted.
            found.add(f"builtins.{name}")
        return frozenset(found)

    def _attribute(self, node: ast.Attribute) -> frozenset[str]:
        found: set[str] = set()
        for value in self.values(node.value):
            if not value.startswith("@"):
                if value.count(".") < _MAX_PARTS:
                    found.add(f"{value}.{node.attr}")
            elif value.startswith("@state:"):
                found.add(value)
            else:
                found |= self._own_attribute(value, node.attr)
        scope = self.scopes.of[node]
        owner = scope.method_class
        if owner and isinstance(node.value, ast.Name) and node.value.id == scope.first_parameter:
            found |= owner.bound.get(node.attr, _NOTHING)
            found |= owner.attributes.get(node.attr, _NOTHING)
        return frozenset(found)

    def _own_attribute(self, value: str, attribute: str) -> set[str]:
        owner = self._tagged(value, "@class:") or self._tagged(value, "@instance:")
        if owner is None:
            return set()
        scope = self.scopes.inside[owner]
        return scope.bound.get(attribute, set()) | scope.attributes.get(attribute, set())

    def _call(self, node: ast.Call) -> frozenset[str]:
        if isinstance(node.func, ast.Attribute) and node.func.attr == "data_ptr":
            return frozenset((ADDRESS,))
        found: set[str] = set()
        for callee in self.values(node.func):
            found |= self._result(callee, node)
        return frozenset(found)

    def _result(self, callee: str, node: ast.Call) -> frozenset[str]:
        if callee == "builtins.id":
            return frozenset((ADDRESS,))
        if callee.startswith("torch.nn.") and not callee.startswith("torch.nn.functional."):
            held = {v for a in node.args for v in self.values(a) if v.startswith("@layer:")}
            return frozenset((f"@layer:{callee}", *held))
        if callee.startswith("builtins.") and callee.removeprefix("builtins.") in _PASS_ELEMENTS:
            return frozenset(v for a in node.args for v in self.values(a))
        if callee.startswith("@state:"):
            return self._element(callee)
        own = self._tagged(callee, "@class:")
        if own is not None:
            return frozenset((f"@instance:{id(own)}",))
        function = self._tagged(callee, "@function:")
        if function is None:
            return _NOTHING
        return frozenset(self.scopes.inside[function].bound.get(RESULT, ()))

    def _element(self, value: str) -> frozenset[str]:
        is_constant = value.removeprefix("@state:") in self._shallow
        return _NOTHING if value.startswith("@state:") and is_constant else frozenset((value,))

    def _binary(self, node: ast.BinOp) -> frozenset[str]:
        if isinstance(node.op, (ast.Mod, ast.BitAnd)) and _is_alignment(node.right):
            return _NOTHING  # how an address is aligned says nothing about whose it is
        both = self.values(node.left) | self.values(node.right)
        return both & {ADDRESS}

    def _tagged(self, value: str, tag: str) -> ast.AST | None:
        return self._nodes[int(value.removeprefix(tag))] if value.startswith(tag) else None


def _gives_a_constant(callee: str) -> bool:
    return callee.startswith(_IMMUTABLE_PREFIXES) or callee in _IMMUTABLE_RESULTS


def _is_alignment(node: ast.expr) -> bool:
    value = node.value if isinstance(node, ast.Constant) else None
    return isinstance(value, int) and 0 < value <= _LARGEST_ALIGNMENT
