"""What a C++ or CUDA library keeps between calls, and what it runs when it is loaded.

Constant tables are fine: ``const``, ``constexpr`` and ``__constant__`` with values that the
compiler knows. Anything else outside of a function, and every ``static`` inside of one, can
hold a result for the next call.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from tree_sitter import Node

from evaluator.source_policy import native_syntax as syntax
from evaluator.source_policy.native_syntax import NativeSource, line_of, text_of

_KEEPING = frozenset(("static", "thread_local", "__thread"))
_CONSTANT = frozenset(("constexpr", "consteval", "__constant__"))
_PER_BLOCK = frozenset(("__shared__",))
_FUNCTION = "function_declarator"


class Add(Protocol):
    """Notes that a rule is broken at a line, counted from 0."""

    def __call__(self, rule: str, line: int, found: str, reason: str | None = None) -> None:
        """Note it."""


def check_native_state(source: NativeSource, add: Add) -> None:
    """Add what lives between calls and what runs at load time."""
    checker = _Checker(source, add)
    for node in source.nodes:
        if node.type == "declaration":
            checker.declaration(node)
        elif node.type == "field_declaration":
            checker.member(node)


class _Checker:
    def __init__(self, source: NativeSource, add: Add) -> None:
        self._source = source
        self._add = add
        self._defined = set(_defined_functions(source))
        self._constant_functions = set(_defined_functions(source, "constexpr"))
        self._classes = set(_classes_with_constructors(source))

    def declaration(self, node: Node) -> None:
        words = _specifiers(node)
        function = syntax.enclosing_function(node)
        if function is not None and not words & (_KEEPING | {"extern"}):
            return
        if words & _PER_BLOCK:
            return
        for declarator in node.children_by_field_name("declarator"):
            if _declares_a_function(declarator):
                if function is None:
                    self._prototype(declarator)
            elif "extern" in words:
                self._add("foreign-code", line_of(node), f"extern {_name(declarator)}")
            else:
                self._variable(node, declarator, words, inside=function is not None)

    def member(self, node: Node) -> None:
        words = _specifiers(node)
        if "mutable" in words:
            self._add("cache", line_of(node), f"mutable in {_short(node)}")
        if "static" not in words:
            return
        for declarator in node.children_by_field_name("declarator"):
            if not _declares_a_function(declarator) and not _is_constant(words, declarator):
                self._add("cache", line_of(node), f"the static member {_name(declarator)}")

    def _prototype(self, declarator: Node) -> None:
        name = _name(declarator)
        if name not in self._defined:
            reason = "a function that the source only announces is somebody else's"
            self._add("foreign-code", line_of(declarator), f"the declaration of {name}", reason)

    def _variable(self, node: Node, declarator: Node, words: set[str], *, inside: bool) -> None:
        name = _name(declarator)
        if not _is_constant(words, declarator):
            kind = "static" if inside else "outside of functions"
            self._add("cache", line_of(node), f"the variable {name}, {kind}")
            return
        value = declarator.child_by_field_name("value")
        if inside and value is not None and self._depends_on_the_call(node, value):
            found = f"static const {name}, made from the first call's values"
            self._add("cache", line_of(node), found)
        if not inside and self._runs_own_code(node, value):
            self._add("global-constructor", line_of(node), f"what makes {name}")

    def _depends_on_the_call(self, node: Node, value: Node) -> bool:
        """Whether the value names something that a function around it declares."""
        around = [a for a in syntax.ancestors(node) if a.type != "translation_unit"]
        local: set[str] = set()
        for scope in around:
            if scope.type not in ("declaration_list", "linkage_specification"):
                local |= self._source.declared.get(scope.id, set())
        own = {text_of(n) for n in _names_below(node) if syntax.is_declared(n)}
        return any(text_of(n) in local - own for n in _names_below(value))

    def _runs_own_code(self, node: Node, value: Node | None) -> bool:
        kind = node.child_by_field_name("type")
        if kind is not None and text_of(kind) in self._classes:
            return True
        for part in _below(value) if value is not None else ():
            if part.type == "lambda_expression":
                return True
            callee = part.child_by_field_name("function")
            if callee is not None and text_of(callee) in self._defined - self._constant_functions:
                return True
        return False


def _specifiers(node: Node) -> set[str]:
    """The words before the declarators: ``static``, ``const``, ``__device__``."""
    first = node.child_by_field_name("declarator")
    end = first.start_byte if first is not None else node.end_byte
    return {text_of(c) for c in node.children if c.start_byte < end}


def _is_constant(words: set[str], declarator: Node) -> bool:
    """Whether the variable itself cannot change; a pointer to constants can."""
    if words & _CONSTANT:
        return True
    if "const" not in words:
        return False
    pointer = declarator
    while pointer is not None and pointer.type != "pointer_declarator":
        pointer = pointer.child_by_field_name("declarator")  # type: ignore[assignment]
    return pointer is None or any(text_of(c) == "const" for c in pointer.children)


def _declares_a_function(declarator: Node) -> bool:
    """Whether this is ``f(int)``, and not a pointer to functions or ``x(1)``."""
    found: Node | None = declarator
    while found is not None and found.type != _FUNCTION:
        found = found.child_by_field_name("declarator") or next(
            (c for c in found.named_children if c.type == "reference_declarator"), None
        )
    if found is None:
        return False
    inner = found.child_by_field_name("declarator")
    return inner is not None and inner.type != "parenthesized_declarator"


def _defined_functions(source: NativeSource, word: str = "") -> Iterator[str]:
    for node in source.nodes:
        if node.type == "function_definition" and (not word or word in _specifiers(node)):
            declarator = node.child_by_field_name("declarator")
            if declarator is not None:
                yield _name(declarator)


def _classes_with_constructors(source: NativeSource) -> Iterator[str]:
    for node in source.nodes:
        if node.type in ("struct_specifier", "class_specifier"):
            name = node.child_by_field_name("name")
            below = _below(node)
            if name is not None and any(_is_constructor(n, text_of(name)) for n in below):
                yield text_of(name)


def _is_constructor(node: Node, class_name: str) -> bool:
    declarator = node.child_by_field_name("declarator")
    is_function = node.type == "function_definition" and declarator is not None
    is_constexpr = is_function and "constexpr" in _specifiers(node)
    return bool(
        is_function
        and declarator is not None
        and not is_constexpr
        and _name(declarator).lstrip("~") == class_name
    )


def _name(declarator: Node) -> str:
    found = syntax.declarator_name(declarator)
    return text_of(found) if found is not None else _short(declarator)


def _short(node: Node) -> str:
    return " ".join(text_of(node).split())[:40]


def _below(node: Node) -> Iterator[Node]:
    waiting = [node]
    while waiting:
        found = waiting.pop()
        yield found
        waiting += found.children


def _names_below(node: Node) -> Iterator[Node]:
    return (n for n in _below(node) if n.type in syntax.NAMES)
