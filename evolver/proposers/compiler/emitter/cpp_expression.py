"""C++ expressions as TorchInductor writes them: a small tree, its parser and its printer.

The grammar is the part of C++ that generated kernels use: literals, names, calls, casts,
indexing, unary, binary and conditional operators. The printer puts parentheses only where
precedence asks for them. Nothing here knows types; see ``cpp_types.py``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass


class Untranslatable(Exception):
    """The generated C++ has a construct that the cleaning does not know; it names it."""


@dataclass(frozen=True)
class Number:
    """A literal, suffix included."""

    text: str


@dataclass(frozen=True)
class Name:
    """A variable."""

    name: str


@dataclass(frozen=True)
class Unary:
    """A prefix operator: ``-``, ``!``, ``~`` or ``&``."""

    operator: str
    operand: Expression


@dataclass(frozen=True)
class Binary:
    """An infix operator."""

    operator: str
    left: Expression
    right: Expression


@dataclass(frozen=True)
class Conditional:
    """``condition ? then : otherwise``."""

    condition: Expression
    then: Expression
    otherwise: Expression


@dataclass(frozen=True)
class Call:
    """A call of a named function; a template argument is part of the name."""

    function: str
    arguments: tuple[Expression, ...]


@dataclass(frozen=True)
class Cast:
    """Any cast, printed in the functional form; bfloat16 is no C++ type and has functions."""

    type: str
    operand: Expression
    widens: str = ""
    """The 16-bit type that a cast to float comes from, where it does."""


@dataclass(frozen=True)
class CastLike:
    """``decltype(model)(operand)``: a cast to a type that only typing knows."""

    model: Expression
    operand: Expression


@dataclass(frozen=True)
class Index:
    """``base[index]``."""

    base: Expression
    index: Expression


@dataclass(frozen=True)
class Member:
    """``base.field``."""

    base: Expression
    field: str


@dataclass(frozen=True)
class Braces:
    """``type{items...}``."""

    type: str
    items: tuple[Expression, ...]


Expression = (
    Number | Name | Unary | Binary | Conditional | Call | Cast | CastLike | Index | Member | Braces
)

_PRECEDENCE = {
    "||": 1,
    "&&": 2,
    "|": 3,
    "^": 4,
    "&": 5,
    "==": 6,
    "!=": 6,
    "<": 7,
    ">": 7,
    "<=": 7,
    ">=": 7,
    "<<": 8,
    ">>": 8,
    "+": 9,
    "-": 9,
    "*": 10,
    "/": 10,
    "%": 10,
}
_UNARY_PRECEDENCE = 11
_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[fFlLuU]*)"
    r"|(?P<name>(?:::)?[A-Za-z_]\w*(?:::[A-Za-z_]\w*)*)"
    r"|(?P<operator><<|>>|<=|>=|==|!=|&&|\|\||[-+*/%<>&|^!~?:()\[\]{},.]))"
)
_SCALAR_TYPES = {
    "float",
    "double",
    "bool",
    "int",
    "long",
    "int8_t",
    "int16_t",
    "int32_t",
    "int64_t",
    "uint8_t",
    "uint16_t",
    "uint32_t",
    "uint64_t",
    "at::BFloat16",
    "at::Half",
    "c10::BFloat16",
    "c10::Half",
}
_CAST_TEMPLATES = {"static_cast", "c10::convert"}
_TEMPLATES = _CAST_TEMPLATES | {"std::numeric_limits", "IndexValue", "c10::load"}


def parse_expression(text: str) -> Expression:
    """Parse one expression.

    Raises:
        Untranslatable: ``text`` is outside the grammar.
    """
    parser = _Parser(text)
    expression = parser.conditional()
    if parser.position != len(parser.tokens):
        raise Untranslatable(f"cannot read the C++ expression {text!r}")
    return expression


class _Parser:
    """Recursive descent with precedence climbing."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = _tokens(text)
        self.position = 0

    def peek(self) -> str:
        return self.tokens[self.position] if self.position < len(self.tokens) else ""

    def take(self, expected: str | None = None) -> str:
        token = self.peek()
        if not token or (expected is not None and token != expected):
            raise Untranslatable(f"expected {expected or 'more'} in the C++ {self.text!r}")
        self.position += 1
        return token

    def conditional(self) -> Expression:
        condition = self.binary(1)
        if self.peek() != "?":
            return condition
        self.take("?")
        then = self.conditional()
        self.take(":")
        return Conditional(condition, then, self.conditional())

    def binary(self, lowest: int) -> Expression:
        left = self.unary()
        while _PRECEDENCE.get(self.peek(), 0) >= lowest:
            operator = self.take()
            left = Binary(operator, left, self.binary(_PRECEDENCE[operator] + 1))
        return left

    def unary(self) -> Expression:
        if self.peek() in ("-", "!", "~", "&"):
            return Unary(self.take(), self.unary())
        if self.peek() == "+":
            self.take()
            return self.unary()
        return self.postfix(self.primary())

    def postfix(self, base: Expression) -> Expression:
        while self.peek() in ("[", "."):
            if self.take() == ".":
                base = Member(base, self.take())
                continue
            index = self.conditional()
            self.take("]")
            base = Index(base, index)
        return base

    def primary(self) -> Expression:
        word = self.take()
        if word == "(":
            inner = self.conditional()
            self.take(")")
            return inner
        if word[0].isdigit() or (word[0] == "." and len(word) > 1):
            return Number(word)
        if not (word[0].isalpha() or word[0] in "_:"):
            raise Untranslatable(f"cannot read the C++ expression {self.text!r} at {word!r}")
        return self.named(word)

    def named(self, name: str) -> Expression:
        if name == "decltype":
            (model,) = self.arguments("(", ")")
            (operand,) = self.arguments("(", ")")
            return CastLike(model, operand)
        if name in _TEMPLATES and self.peek() == "<":
            return self.template(name)
        if self.peek() != "(":
            return Name(name)
        arguments = self.arguments("(", ")")
        if name in _SCALAR_TYPES and len(arguments) == 1:
            return Cast(name, arguments[0])
        return Call(name, arguments)

    def template(self, name: str) -> Expression:
        self.take("<")
        if self.peek() == "decltype":
            self.take()
            (model,) = self.arguments("(", ")")
            self.take(">")
            (operand,) = self.arguments("(", ")")
            return CastLike(model, operand)
        argument = self.take()
        self.take(">")
        if name in _CAST_TEMPLATES:
            (operand,) = self.arguments("(", ")")
            return Cast(argument, operand)
        full = f"{name}<{argument}>"
        if self.peek().startswith("::"):
            full += self.take()
        if self.peek() == "{":
            return Braces(full, self.arguments("{", "}"))
        return Call(full, self.arguments("(", ")"))

    def arguments(self, opening: str, closing: str) -> tuple[Expression, ...]:
        self.take(opening)
        found: list[Expression] = []
        while self.peek() != closing:
            found.append(self.conditional())
            if self.peek() == ",":
                self.take()
        self.take(closing)
        return tuple(found)


def _tokens(text: str) -> list[str]:
    tokens: list[str] = []
    position = 0
    text = text.rstrip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise Untranslatable(f"cannot read the C++ expression {text!r} at {text[position:]!r}")
        tokens.append(match.group(match.lastgroup or 0))
        position = match.end()
    return tokens


def children(expression: Expression) -> tuple[Expression, ...]:
    """The direct operands of ``expression``."""
    match expression:
        case Unary(_, operand) | Cast(_, operand, _) | Member(operand, _):
            return (operand,)
        case Binary(_, left, right) | CastLike(left, right) | Index(left, right):
            return (left, right)
        case Conditional(condition, then, otherwise):
            return (condition, then, otherwise)
        case Call(_, items) | Braces(_, items):
            return items
    return ()


def rebuild(expression: Expression, change: Callable[[Expression], Expression]) -> Expression:
    """``expression`` with ``change`` applied to its direct operands."""
    match expression:
        case Unary(operator, operand):
            return Unary(operator, change(operand))
        case Cast(type_name, operand, widens):
            return Cast(type_name, change(operand), widens)
        case Member(base, field):
            return Member(change(base), field)
        case Binary(operator, left, right):
            return Binary(operator, change(left), change(right))
        case CastLike(left, right):
            return CastLike(change(left), change(right))
        case Index(base, index):
            return Index(change(base), change(index))
        case Conditional(condition, then, otherwise):
            return Conditional(change(condition), change(then), change(otherwise))
        case Call(function, items):
            return Call(function, tuple(change(i) for i in items))
        case Braces(type_name, items):
            return Braces(type_name, tuple(change(i) for i in items))
    return expression


def walk(expression: Expression) -> Iterator[Expression]:
    """``expression`` and everything below it."""
    yield expression
    for child in children(expression):
        yield from walk(child)


def substitute(expression: Expression, replacements: dict[Expression, Expression]) -> Expression:
    """``expression`` with every occurrence of a key replaced by its value."""
    found = replacements.get(expression)
    if found is not None:
        return found
    return rebuild(expression, lambda e: substitute(e, replacements))


def names_in(expression: Expression) -> list[str]:
    """Every variable mentioned, once per mention."""
    return [e.name for e in walk(expression) if isinstance(e, Name)]


def render(expression: Expression, parent: int = 0) -> str:
    """The C++ text of ``expression`` inside an operator of precedence ``parent``."""
    match expression:
        case Number(text) | Name(text):
            return text
        case Unary(operator, operand):
            inner = render(operand, _UNARY_PRECEDENCE)
            return f"{operator}({inner})" if inner.startswith("-") else f"{operator}{inner}"
        case Binary(operator, left, right):
            level = _PRECEDENCE[operator]
            text = f"{render(left, level)} {operator} {render(right, level + 1)}"
            return f"({text})" if level < parent else text
        case Conditional(condition, then, otherwise):
            text = f"{render(condition, 1)} ? {render(then, 1)} : {render(otherwise)}"
            return f"({text})" if parent > 0 else text
        case Index(base, index):
            return f"{render(base, _UNARY_PRECEDENCE)}[{render(index)}]"
        case Member(base, field):
            return f"{render(base, _UNARY_PRECEDENCE)}.{field}"
    return _render_call(expression)


def _render_call(expression: Expression) -> str:
    """Text of what carries its operands in brackets."""
    match expression:
        case Call(function, items):
            return f"{function}({', '.join(render(i) for i in items)})"
        case Braces(type_name, items):
            return f"{type_name}{{{', '.join(render(i) for i in items)}}}"
        case Cast("bfloat16", operand, _):
            return f"to_bfloat16({render(operand)})"
        case Cast(type_name, operand, widens):
            function = "to_float" if widens == "bfloat16" else type_name
            return f"{function}({render(operand)})"
        case CastLike(model, operand):
            return f"decltype({render(model)})({render(operand)})"
    raise Untranslatable(f"unknown expression {expression!r}")
