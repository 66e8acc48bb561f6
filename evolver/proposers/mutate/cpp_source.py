"""A C++ candidate: the C++ in its ``SOURCE`` string, its functions, loops and pragmas.

The C++ is parsed by tree-sitter, which gives each construct its byte range; an edit is a
list of splices of that text, so that everything else stays as it was, comments included.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import tree_sitter_cpp
from tree_sitter import Language, Node, Parser

SOURCE_NAME = "SOURCE"


@dataclass(frozen=True)
class Splice:
    """Replace the bytes [start, end) of the C++ by ``text``."""

    start: int
    end: int
    text: str


@dataclass(frozen=True)
class Loop:
    """A canonical loop: ``for (T i = lower; i < upper; i += step)``, each part as text."""

    node: Node
    variable: str
    ctype: str
    lower: str
    upper: str
    step: str
    pragmas: tuple[Node, ...]
    """The pragmas directly before it, in order."""

    @property
    def body(self) -> Node:
        """The statement that is repeated."""
        body = self.node.child_by_field_name("body")
        assert body is not None  # the grammar gives every for_statement one
        return body

    @property
    def names_in_lower(self) -> set[str]:
        """The identifiers in the lower bound."""
        start = self.node.child_by_field_name("initializer")
        return identifiers(start) - {self.variable} if start is not None else set()

    @property
    def takes_pragmas(self) -> bool:
        """Whether a line can be put before it: it stands in a block, not behind ``for (...)``."""
        return self.node.parent is not None and self.node.parent.type == "compound_statement"

    @property
    def is_innermost(self) -> bool:
        """Whether no loop of any kind lies inside."""
        kinds = ("for_statement", "while_statement", "do_statement", "for_range_loop")
        return not any(n.type in kinds for n in walk(self.body))


@dataclass(frozen=True)
class Function:
    """One function definition with the canonical loops in it, outer ones first."""

    node: Node
    name: str
    parameters: tuple[Node, ...]
    loops: tuple[Loop, ...]


@dataclass(frozen=True)
class CppSource:
    """A candidate whose C++ was found and parsed without errors."""

    python: str
    literal: tuple[int, int]
    """Character range of the string literal in ``python``."""
    cpp: bytes
    root: Node
    functions: tuple[Function, ...]

    def splice(self, splices: Iterable[Splice]) -> str:
        """Return the candidate with the splices made (they do not overlap)."""
        code = self.cpp
        for s in sorted(splices, key=lambda s: s.start, reverse=True):
            code = code[: s.start] + s.text.encode() + code[s.end :]
        start, end = self.literal
        return f'{self.python[:start]}r"""{code.decode()}"""{self.python[end:]}'

    def indent(self, node: Node) -> str:
        """Return the white space before ``node`` if it opens its line, else four blanks more."""
        line = self._line_before(node)
        blank = line[: len(line) - len(line.lstrip())]
        return blank if not line.strip() else blank + "    "

    def before(self, node: Node, line: str) -> Splice:
        """Return the splice that puts ``line`` on a line of its own before ``node``."""
        opens_its_line = not self._line_before(node).strip()
        lead = "" if opens_its_line else "\n" + self.indent(node)
        return Splice(node.start_byte, node.start_byte, f"{lead}{line}\n{self.indent(node)}")

    def at_the_top(self, line: str) -> Splice:
        """Return the splice that puts ``line`` first, below the line break after the quotes."""
        start = 1 if self.cpp.startswith(b"\n") else 0
        return Splice(start, start, f"{line}\n")

    def _line_before(self, node: Node) -> str:
        start = self.cpp.rfind(b"\n", 0, node.start_byte) + 1
        return self.cpp[start : node.start_byte].decode()


@lru_cache(maxsize=4)
def parse_cpp(source: str) -> CppSource | None:
    """Parse a candidate; None where it has no C++ that could be edited safely.

    Raises:
        SyntaxError: the candidate is not Python.
    """
    literal = _source_literal(source)
    if literal is None:
        return None
    node, text = literal
    root = _parser().parse(text.encode()).root_node
    # A raw string with three quotes cannot hold three quotes, nor end in a quote.
    if root.has_error or '"""' in text or text.endswith('"'):
        return None
    functions = tuple(_function(n) for n in walk(root) if n.type == "function_definition")
    return CppSource(source, _character_range(source, node), text.encode(), root, functions)


@lru_cache(maxsize=1)
def _parser() -> Parser:
    return Parser(Language(tree_sitter_cpp.language()))


def _source_literal(source: str) -> tuple[ast.Constant, str] | None:
    for statement in ast.parse(source).body:
        if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Constant):
            continue
        named = any(isinstance(t, ast.Name) and t.id == SOURCE_NAME for t in statement.targets)
        if named and isinstance(statement.value.value, str):
            return statement.value, statement.value.value
    return None


def _character_range(source: str, node: ast.Constant) -> tuple[int, int]:
    lines = source.split("\n")
    assert node.end_lineno is not None  # ast.parse always sets the ends
    assert node.end_col_offset is not None

    def position(line: int, column_bytes: int) -> int:
        characters = len(lines[line - 1].encode()[:column_bytes].decode())
        return sum(len(text) + 1 for text in lines[: line - 1]) + characters

    start = position(node.lineno, node.col_offset)
    return start, position(node.end_lineno, node.end_col_offset)


def walk(node: Node) -> Iterator[Node]:
    """Yield ``node`` and everything below it, in source order."""
    yield node
    for child in node.children:
        yield from walk(child)


def text_of(node: Node | None) -> str:
    """Return the source text of ``node``, '' for None."""
    return node.text.decode() if node is not None and node.text is not None else ""


def identifiers(node: Node) -> set[str]:
    """Return the plain identifiers in ``node``."""
    return {text_of(n) for n in walk(node) if n.type == "identifier"}


def describe(function: Function, loop: Loop) -> str:
    """Return which loop is meant, in words; the line is that of the C++ source."""
    line = loop.node.start_point.row + 1
    return f"the loop over {loop.variable} in {function.name} (line {line})"


def _function(node: Node) -> Function:
    declarator = next(n for n in walk(node) if n.type == "function_declarator")
    listing = declarator.child_by_field_name("parameters")
    parameters = listing.named_children if listing is not None else []
    loops = (_loop(n) for n in walk(node) if n.type == "for_statement")
    return Function(
        node=node,
        name=text_of(declarator.child_by_field_name("declarator")),
        parameters=tuple(p for p in parameters if p.type == "parameter_declaration"),
        loops=tuple(loop for loop in loops if loop is not None),
    )


def _loop(node: Node) -> Loop | None:
    """Return the canonical loop at ``node``, or None where it is not of that form."""
    start = node.child_by_field_name("initializer")
    test = node.child_by_field_name("condition")
    update = node.child_by_field_name("update")
    if start is None or test is None or update is None or start.type != "declaration":
        return None
    declarator = start.child_by_field_name("declarator")
    if declarator is None or declarator.type != "init_declarator":
        return None
    variable = text_of(declarator.child_by_field_name("declarator"))
    less = text_of(test.child_by_field_name("operator")) == "<"
    step = _step(update, variable)
    if not less or text_of(test.child_by_field_name("left")) != variable or step is None:
        return None
    return Loop(
        node=node,
        variable=variable,
        ctype=text_of(start.child_by_field_name("type")),
        lower=text_of(declarator.child_by_field_name("value")),
        upper=text_of(test.child_by_field_name("right")),
        step=step,
        pragmas=_pragmas_before(node),
    )


def _step(update: Node, variable: str) -> str | None:
    """Return the step as text, ``1`` for ``++i`` and for any spelling of ``i += 1``."""
    if update.type == "update_expression":
        is_increment = any(c.type == "++" for c in update.children)
        argument = text_of(update.child_by_field_name("argument"))
        return "1" if is_increment and argument == variable else None
    is_sum = text_of(update.child_by_field_name("operator")) == "+="
    if not is_sum or text_of(update.child_by_field_name("left")) != variable:
        return None
    step = text_of(update.child_by_field_name("right"))
    return "1" if step.rstrip(")Ll").rsplit("(", 1)[-1] == "1" else step


def _pragmas_before(node: Node) -> tuple[Node, ...]:
    found: list[Node] = []
    sibling = node.prev_named_sibling
    while sibling is not None and sibling.type == "preproc_call":
        found.insert(0, sibling)
        sibling = sibling.prev_named_sibling
    return tuple(found)
