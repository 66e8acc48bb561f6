"""The statements of a generated kernel as a tree, and the reader that makes it from text.

Inductor writes one statement or brace per line, so the reader works by lines. What it skips
is plumbing that a standalone function has no use for: the division error flag, the thread's
number, index checks (an index out of range is the caller's error, as in any kernel).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from .cpp_expression import Expression, Untranslatable, parse_expression
from .cpp_types import canonical_type


@dataclass
class Declare:
    """``type name = value;``. The type is ``auto`` until typing."""

    type: str
    name: str
    value: Expression | None


@dataclass
class Scratch:
    """A buffer of one thread, ``elements`` long."""

    type: str
    name: str
    elements: Expression


@dataclass
class Assign:
    """``target = value;``."""

    target: Expression
    value: Expression


@dataclass
class Evaluate:
    """An expression for its effect."""

    expression: Expression


@dataclass
class Return:
    """The last statement of a thunk."""

    value: Expression


@dataclass
class Thunk:
    """``auto name = [&] { body };``: a value computed only where a mask is set."""

    name: str
    body: list[Statement]


@dataclass
class Loop:
    """A counted loop. ``pragmas`` are without ``#pragma``."""

    variable: str
    start: Expression
    stop: Expression
    step: Expression
    body: list[Statement]
    pragmas: list[str] = field(default_factory=list)


@dataclass
class Block:
    """Braces; with a ``pragma`` a parallel region, or what one thread of it does alone."""

    body: list[Statement]
    pragma: str = ""

    @property
    def is_parallel(self) -> bool:
        """Whether every thread of a team does what stands inside."""
        return self.pragma.startswith("omp parallel")


Statement = Declare | Scratch | Assign | Evaluate | Return | Thunk | Loop | Block


@dataclass
class Kernel:
    """One function: ``parameters`` are (type, name)."""

    name: str
    parameters: list[tuple[str, str]]
    body: list[Statement]


_PLUMBING = re.compile(
    r"std::atomic<int> inductor_cpu|inductor_cpu_|int tid = omp_get_thread_num|TORCH_CHECK"
    r"|CascadeSumHelper<"
)
_LOOP = re.compile(
    r"for ?\((?:int64_t|int|long) (\w+) ?= ?(.+?); ?\1 ?< ?(.+?); ?(?:\1 ?\+= ?(.+)|\1\+\+)\)$"
)
_UNIQUE = re.compile(r"std::unique_ptr<(.+?) ?\[\]> buf_(\w+) = std::make_unique<.*>\((.+)\);")
_DECLARE = re.compile(r"((?:const )?(?:[\w:]+(?:<[\w:]+>)?\*?)) (\w+)(?: = (.+))?;")
_ARRAY = re.compile(r"([\w:]+) (\w+)\[(.+)\];")


def read_kernel(text: str, name: str) -> Kernel:
    """Read the function ``kernel`` out of the source of one Inductor kernel.

    Raises:
        Untranslatable: a line that the reader does not know; the message quotes it.
    """
    match = re.search(r'extern "C"\s+void\s+kernel\((.*?)\)\s*\{', text, re.DOTALL)
    if match is None:
        raise Untranslatable("the generated source has no function named 'kernel'")
    parameters = [_parameter(p) for p in match.group(1).split(",") if p.strip()]
    lines = [line.strip() for line in text[match.end() :].splitlines()]
    reader = _Reader([line for line in lines if line and not line.startswith("//")])
    return Kernel(name, parameters, reader.until_brace())


def _parameter(text: str) -> tuple[str, str]:
    type_text, name = text.strip().rsplit(None, 1)
    const = "const " if type_text.startswith("const") and type_text.endswith("*") else ""
    return const + canonical_type(type_text), name


class _Reader:
    def __init__(self, lines: list[str]) -> None:
        self._lines = iter(lines)

    def until_brace(self) -> list[Statement]:
        """Statements up to the closing brace of the block that is open."""
        statements: list[Statement] = []
        pragmas: list[str] = []
        for line in self._lines:
            if line.startswith("}"):
                return statements
            if line.startswith("#pragma"):
                pragmas.append(line.removeprefix("#pragma").strip())
            elif not _PLUMBING.match(line) and line != ";":
                statements.extend(self.statement(line, pragmas))
                pragmas = []
        return statements

    def statement(self, line: str, pragmas: list[str]) -> Iterator[Statement]:
        if line == "{":
            known = (k for k in ("omp parallel", "omp single") for p in pragmas if p.startswith(k))
            yield Block(self.until_brace(), next(known, ""))
        elif line.startswith("for"):
            yield self.loop(line, pragmas)
        elif line.endswith("= [&]"):
            yield self.thunk(line.split()[1])
        else:
            yield from _simple(line)

    def loop(self, line: str, pragmas: list[str]) -> Loop:
        match = _LOOP.match(line)
        if match is None or next(self._lines) != "{":
            raise Untranslatable(f"unknown form of loop: {line!r}")
        start, stop, step = (parse_expression(t) for t in (match[2], match[3], match[4] or "1"))
        return Loop(match.group(1), start, stop, step, self.until_brace(), list(pragmas))

    def thunk(self, name: str) -> Thunk:
        next(self._lines)
        body: list[Statement] = []
        for line in self._lines:
            if line.startswith("return "):
                result = parse_expression(line.removeprefix("return ").rstrip(";"))
                next(self._lines)
                return Thunk(name, [*body, Return(result)])
            if not _PLUMBING.match(line) and line != ";":
                body.extend(self.statement(line, []))
        raise Untranslatable(f"the lambda {name!r} returns nothing")


def _simple(line: str) -> Iterator[Statement]:
    unique = _UNIQUE.match(line)
    if unique:
        yield Scratch(canonical_type(unique[1]), unique[2], parse_expression(unique[3]))
        return
    if re.fullmatch(r"[\w:]+\* (\w+) = buf_\1\.get\(\);", line):
        return
    array = _ARRAY.fullmatch(line)
    if array:
        yield Declare(canonical_type(array[1]) + "[]", array[2], None)
        return
    declare = _DECLARE.fullmatch(line)
    if declare and declare[1] != "return":
        value = None if declare[3] is None else parse_expression(declare[3])
        yield Declare(canonical_type(declare[1]), declare[2], value)
        return
    target, equals, value_text = line.rstrip(";").partition(" = ")
    if equals:
        yield Assign(parse_expression(target), parse_expression(value_text))
        return
    yield Evaluate(parse_expression(target))


def nested(statement: Statement) -> list[Statement]:
    """The statements inside ``statement``."""
    return statement.body if isinstance(statement, Loop | Block | Thunk) else []


def every(statements: list[Statement]) -> Iterator[Statement]:
    """All statements, outer before inner, in order."""
    for statement in statements:
        yield statement
        yield from every(nested(statement))


def expressions_of(statement: Statement) -> list[Expression]:
    """The expressions that ``statement`` itself evaluates, nested statements aside."""
    match statement:
        case Declare(_, _, value):
            return [] if value is None else [value]
        case Assign(target, value):
            return [target, value]
        case Evaluate(expression) | Scratch(_, _, expression):
            return [expression]
        case Return(value):
            return [value]
        case Loop():
            return [statement.start, statement.stop, statement.step]
    return []
