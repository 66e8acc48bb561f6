"""C++ and CUDA as tree-sitter reads them: nodes, names, and who declares what.

The preprocessor is not run. Both branches of a condition are read, a macro's body is read
as text of its own, and where the parser meets something that it cannot read, nothing that
rests on the structure is believed: then every name counts as a reference.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache

import tree_sitter_cpp
import tree_sitter_cuda
from tree_sitter import Language, Node, Parser

from evaluator.source_policy.words import words

NAMES = frozenset(("identifier", "type_identifier", "field_identifier", "namespace_identifier"))
_SCOPES = words(
    """
    translation_unit declaration_list compound_statement for_statement for_range_loop
    function_definition lambda_expression field_declaration_list template_declaration
    if_statement while_statement switch_statement
    """
)
_DECLARATORS = words(
    """
    init_declarator pointer_declarator reference_declarator array_declarator function_declarator
    parenthesized_declarator structured_binding_declarator attributed_declarator
    variadic_declarator qualified_identifier
    """
)
_DECLARING = words(
    """
    declaration parameter_declaration optional_parameter_declaration field_declaration
    function_definition for_range_loop type_definition condition_clause
    variadic_parameter_declaration
    """
)
_NAMED = words(
    """
    struct_specifier class_specifier enum_specifier union_specifier enumerator alias_declaration
    namespace_definition type_parameter_declaration
    """
)
_TYPES_OF_TEXT = frozenset(("string_literal", "raw_string_literal", "char_literal", "comment"))


@dataclass(frozen=True)
class Macro:
    """A ``#define``: its parameters and its body's tokens."""

    name: str
    parameters: tuple[str, ...]
    body: NativeSource
    line: int


@dataclass
class NativeSource:
    """A parsed text."""

    text: bytes
    root: Node
    cuda: bool
    nodes: list[Node] = field(default_factory=list)
    declared: dict[int, set[str]] = field(default_factory=dict)
    """Names by the id of the scope's node."""

    @property
    def is_whole(self) -> bool:
        """Whether the parser could read all of it."""
        return not self.root.has_error

    def code_only(self) -> bytes:
        """The text with strings and comments blanked, or all of it where it is not whole."""
        if not self.is_whole:
            return self.text
        blanked = bytearray(self.text)
        for node in self.nodes:
            if node.type in _TYPES_OF_TEXT:
                length = node.end_byte - node.start_byte
                blanked[node.start_byte : node.end_byte] = b" " * length
        return bytes(blanked)


def parse(text: bytes, *, cuda: bool) -> NativeSource:
    """Read ``text`` as C++, or as CUDA."""
    source = NativeSource(text, _parser(cuda).parse(text).root_node, cuda)
    source.nodes = list(_walk(source.root))
    for node in source.nodes:
        if node.type in NAMES and is_declared(node) and not _is_prototype(node):
            scope = _scope_of_declaration(node)
            source.declared.setdefault(scope.id, set()).add(text_of(node))
    return source


def macros(source: NativeSource) -> Iterator[Macro]:
    """Every ``#define`` with a body."""
    for node in source.nodes:
        if node.type not in ("preproc_def", "preproc_function_def"):
            continue
        name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if name is None or value is None or value.text is None:
            continue
        parameters = node.child_by_field_name("parameters")
        names = tuple(text_of(n) for n in parameters.named_children) if parameters else ()
        body = parse(value.text, cuda=source.cuda)
        yield Macro(text_of(name), names, body, line_of(node))


def text_of(node: Node) -> str:
    """The source text of ``node``."""
    return (node.text or b"").decode("utf-8", "replace")


def line_of(node: Node) -> int:
    """The line that ``node`` begins on, from 0."""
    return node.start_point.row


def ancestors(node: Node) -> Iterator[Node]:
    """The nodes around ``node``, inner ones first."""
    parent = node.parent
    while parent is not None:
        yield parent
        parent = parent.parent


def is_declared(name: Node) -> bool:
    """Whether ``name`` stands where a declaration puts its own name."""
    child, parent = name, name.parent
    while parent is not None and parent.type in _DECLARATORS:
        if parent.type == "qualified_identifier" and parent.child_by_field_name("name") != child:
            return False
        if not _is_declarator_of(parent, child):
            return False
        child, parent = parent, parent.parent
    if parent is None:
        return False
    if parent.type in _NAMED:
        return bool(parent.child_by_field_name("name") == child) or parent.type.endswith(
            "parameter_declaration"
        )
    return parent.type in _DECLARING and child in parent.children_by_field_name("declarator")


def is_hidden_by_own(name: Node, source: NativeSource) -> bool:
    """Whether the reference ``name`` means something that the source itself declares."""
    if not source.is_whole:
        return False
    if name.type == "field_identifier":
        return True
    parent = name.parent
    is_qualified = parent is not None and parent.child_by_field_name("name") == name
    if parent is not None and parent.type == "qualified_identifier" and is_qualified:
        scope = parent.child_by_field_name("scope")
        return scope is not None and text_of(scope) not in ("std", "::std")
    wanted = text_of(name)
    return any(wanted in source.declared.get(a.id, ()) for a in ancestors(name))


def enclosing_function(node: Node) -> Node | None:
    """The function or lambda whose body ``node`` lies in."""
    kinds = ("function_definition", "lambda_expression")
    return next((a for a in ancestors(node) if a.type in kinds), None)


def declarator_name(declarator: Node) -> Node | None:
    """The identifier that a declarator declares."""
    found: Node | None = declarator
    while found is not None and found.type not in NAMES:
        inner = found.child_by_field_name("declarator") or found.child_by_field_name("name")
        found = inner or next((c for c in found.named_children if _holds_a_name(c)), None)
    return found


def _holds_a_name(node: Node) -> bool:
    return node.type in NAMES or node.type in _DECLARATORS


def _is_declarator_of(parent: Node, child: Node) -> bool:
    wanted = parent.child_by_field_name("declarator")
    if wanted is not None:
        return wanted == child
    return parent.type not in ("init_declarator", "function_declarator", "array_declarator")


def _is_prototype(name: Node) -> bool:
    """Whether the name is that of a function that is only announced here."""
    for node in ancestors(name):
        if node.type == "function_declarator":
            return _statement_of(node).type == "declaration"
        if node.type not in _DECLARATORS:
            return False
    return False


def _statement_of(declarator: Node) -> Node:
    return next((a for a in ancestors(declarator) if a.type not in _DECLARATORS), declarator)


def _scope_of_declaration(name: Node) -> Node:
    """Where the name is known: outside of the function or class that it names."""
    skipped = ("function_definition",)
    around = list(ancestors(name))
    is_own_name = not any(a.type in ("parameter_list", "compound_statement") for a in around[:3])
    for node in around:
        if node.type in skipped and is_own_name and _names(node, name):
            continue
        if node.type in _SCOPES:
            return node
    return around[-1]


def _names(function: Node, name: Node) -> bool:
    declarator = function.child_by_field_name("declarator")
    return declarator is not None and declarator_name(declarator) == name


def _walk(root: Node) -> Iterator[Node]:
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(reversed(node.children))


@cache
def _parser(cuda: bool) -> Parser:
    grammar = tree_sitter_cuda.language() if cuda else tree_sitter_cpp.language()
    return Parser(Language(grammar))
