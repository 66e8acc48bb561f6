"""One generated C++ kernel to one plain, readable function.

What goes in is the text that Inductor would compile; what comes out includes no torch
header, no helper of Inductor's, no thread count, and names that say what they hold.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from .cpp_cleanup import forward_values, hoist, inline, mutable_names
from .cpp_expression import Binary, Call, Expression, Name, rebuild, render, substitute
from .cpp_ranges import split_at_masks
from .cpp_reductions import (
    ParallelStyle,
    accumulations,
    annotate,
    check_reductions,
    undo_partial_results,
)
from .cpp_resolve import Resolver
from .cpp_statements import (
    Assign,
    Block,
    Declare,
    Evaluate,
    Kernel,
    Loop,
    Return,
    Scratch,
    Statement,
    Thunk,
    every,
    read_kernel,
)

_KEYWORDS = frozenset(
    [
        "auto",
        "bool",
        "break",
        "case",
        "char",
        "class",
        "const",
        "continue",
        "default",
        "delete",
        "do",
        "double",
        "else",
        "enum",
        "extern",
        "false",
        "float",
        "for",
        "goto",
        "if",
        "inline",
        "int",
        "long",
        "namespace",
        "new",
        "operator",
        "private",
        "public",
        "register",
        "return",
        "short",
        "signed",
        "sizeof",
        "static",
        "struct",
        "switch",
        "template",
        "this",
        "true",
        "typedef",
        "union",
        "unsigned",
        "using",
        "virtual",
        "void",
        "volatile",
        "while",
        "half",
        "bfloat16",
        "xor",
        "and",
        "or",
        "not",
    ]
)
_ACCUMULATOR_NAMES = {
    "+": "sum",
    "*": "product",
    "max_nan": "largest",
    "min_nan": "smallest",
    "||": "any",
    "&&": "all",
}
_FAST_MATH = {"std::exp": "fast_exp", "std::tanh": "fast_tanh"}
_INDENT = "    "
_WIDTH = 88


@dataclass(frozen=True)
class CleanStyle:
    """How a function is written."""

    parallel: ParallelStyle = field(default_factory=ParallelStyle)
    fast_math: bool = False
    """Whether exp and tanh are the prelude's polynomials, which vectorise, or libm's."""
    split_masks: bool = True
    """Whether a loop that treats ranges of its variable differently becomes several loops."""
    own_topk: bool = False
    """Whether a top-k over short rows is written in C++ too, or left to torch."""


@dataclass(frozen=True)
class CleanKernel:
    """A plain function. ``parameters`` are (C++ type, name) and ``kept`` the position that
    each had among the arguments of the generated kernel."""

    name: str
    parameters: tuple[tuple[str, str], ...]
    kept: tuple[int, ...]
    source: str


def clean_kernel(
    text: str,
    name: str,
    arguments: Sequence[str],
    private: frozenset[str],
    style: CleanStyle,
    comment: str = "",
) -> CleanKernel:
    """Clean the generated kernel in ``text`` and call it ``name``.

    Args:
        text: what Inductor gives its compiler: includes and ``extern "C" void kernel(...)``.
        name: the name of the function.
        arguments: what the caller calls each argument; equal names are one tensor.
        private: those of ``arguments`` that nobody reads after the kernel.
        style: how to write loops and functions.
        comment: one line to stand above the function.

    Raises:
        Untranslatable: the kernel uses something that has no plain counterpart here.
    """
    kernel = read_kernel(text, name)
    scope = _scope(kernel, arguments)
    body = undo_partial_results(kernel.body)
    body = Resolver().resolve(body, scope)
    elements = {new: kind.removesuffix("*") for new, kind in scope.values() if new in private}
    body = forward_values(body, elements)
    body = inline(hoist(body, mutable_names(body)))
    check_reductions(body)
    if style.fast_math:
        _replace_functions(body)
    if style.split_masks:
        body = split_at_masks(body)
    body = _named(body, {new for new, _ in scope.values()})
    body = annotate(body, style.parallel)
    kept, parameters = _used_parameters(kernel, scope, body)
    lines = [f"// {comment}"] if comment else []
    signature = _signature(name, parameters)
    lines += [*signature, *_lines(body, 1), "}"]
    return CleanKernel(name, parameters, kept, "\n".join(lines) + "\n")


def safe_name(name: str) -> str:
    """``name`` as a C++ identifier that is no keyword."""
    bare = re.sub(r"\W", "_", name)
    return bare + "_" if bare in _KEYWORDS else bare


def _scope(kernel: Kernel, arguments: Sequence[str]) -> dict[str, tuple[str, str]]:
    return {
        old: (safe_name(new), kind.removeprefix("const "))
        for (kind, old), new in zip(kernel.parameters, arguments, strict=True)
    }


def _used_parameters(
    kernel: Kernel, scope: dict[str, tuple[str, str]], body: list[Statement]
) -> tuple[tuple[int, ...], tuple[tuple[str, str], ...]]:
    """Positions and declarations of the parameters that are left, each tensor once."""
    text = "\n".join(_lines(body, 0))
    used = set(re.findall(r"\w+", text))
    stored = {
        render(e.target.base)
        for e in every(body)
        if isinstance(e, Assign) and hasattr(e.target, "base")
    }
    stored |= set(re.findall(r"atomic_add\(&(\w+)\[", text))
    kept: list[int] = []
    parameters: dict[str, str] = {}
    for position, (_, old) in enumerate(kernel.parameters):
        name, kind = scope[old]
        if name in used and name not in parameters:
            constant = kind.endswith("*") and name not in stored
            parameters[name] = f"const {kind}" if constant else kind
            kept.append(position)
    return tuple(kept), tuple((kind, name) for name, kind in parameters.items())


def _signature(name: str, parameters: Sequence[tuple[str, str]]) -> list[str]:
    texts = [f"{kind} {parameter}" for kind, parameter in parameters]
    opening = f'extern "C" void {name}('
    single = f"{opening}{', '.join(texts)}) {{"
    if len(single) <= 100:
        return [single]
    return [opening, *(_INDENT + t + "," for t in texts[:-1]), f"{_INDENT}{texts[-1]}) {{"]


def _replace_functions(body: list[Statement]) -> None:
    def change(expression: Expression) -> Expression:
        expression = rebuild(expression, change)
        if isinstance(expression, Call) and expression.function in _FAST_MATH:
            return Call(_FAST_MATH[expression.function], expression.arguments)
        return expression

    for statement in every(body):
        match statement:
            case Declare(_, _, value) if value is not None:
                statement.value = change(value)
            case Assign(_, value) | Return(value):
                statement.value = change(value)


def _named(body: list[Statement], taken: set[str]) -> list[Statement]:
    """Loop variables, accumulators and temporaries under names for people."""
    names: dict[str, str] = {}
    for statement in body:
        _name_accumulators(statement, names, taken)
    counter = 0
    for statement in every(body):
        if isinstance(statement, Declare | Thunk | Scratch) and statement.name not in names:
            stem = "scratch" if isinstance(statement, Scratch) else "t"
            while f"{stem}{counter}" in taken:
                counter += 1
            names[statement.name] = f"{stem}{counter}"
            counter += 1
    return [_renamed(s, names, 0, _depth(s), taken) for s in body]


def _name_accumulators(statement: Statement, names: dict[str, str], taken: set[str]) -> None:
    for loop in every([statement]):
        if not isinstance(loop, Loop):
            continue
        for variable, clause in accumulations(loop).items():
            if variable in names:
                continue
            stem = _ACCUMULATOR_NAMES.get(clause or "", "best")
            name, number = stem, 2
            while name in taken or name in names.values():
                name, number = f"{stem}{number}", number + 1
            names[variable] = name


def _depth(statement: Statement) -> int:
    inner = [_depth(s) for s in statement.body] if isinstance(statement, Loop | Block) else []
    return max(inner, default=0) + isinstance(statement, Loop)


def _loop_name(level: int, depth: int, taken: set[str]) -> str:
    plain = {1: ("i",), 2: ("row", "col")}.get(depth, ())
    if plain and not set(plain) & taken:
        return plain[level]
    return [letter for letter in "ijklmnopqrstuvwxyz" if letter not in taken][level]


def _renamed(
    statement: Statement, names: dict[str, str], level: int, depth: int, taken: set[str]
) -> Statement:
    """``statement`` with ``names`` applied; a loop also gets the name of its level."""

    def change(expression: Expression) -> Expression:
        replaced = substitute(expression, {Name(a): Name(b) for a, b in names.items()})
        return _renamed_calls(replaced, names)

    match statement:
        case Declare(kind, name, value):
            return Declare(kind, names[name], None if value is None else change(value))
        case Scratch(kind, name, elements):
            return Scratch(kind, names[name], change(elements))
        case Assign(target, value):
            return Assign(change(target), change(value))
        case Evaluate(expression):
            return Evaluate(change(expression))
        case Return(value):
            return Return(change(value))
        case Thunk(name, body):
            inner = [_renamed(s, names, level, depth, taken) for s in body]
            return Thunk(names[name], inner)
        case Block(body, pragma):
            inner = [_renamed(s, names, level, _depth(s), taken) for s in body]
            return Block(inner, pragma)
        case Loop():
            variable = _loop_name(level, depth, taken)
            inside = {**names, statement.variable: variable}
            body = [_renamed(s, inside, level + 1, depth, taken) for s in statement.body]
            bounds = (statement.start, statement.stop, statement.step)
            start, stop, step = (change(e) for e in bounds)
            return Loop(variable, start, stop, step, body, statement.pragmas)


def _renamed_calls(expression: Expression, names: dict[str, str]) -> Expression:
    if isinstance(expression, Call) and not expression.arguments:
        return Call(names.get(expression.function, expression.function), ())
    return rebuild(expression, lambda e: _renamed_calls(e, names))


def _lines(body: list[Statement], level: int) -> list[str]:
    """The text of ``body``, indented ``level`` times."""
    assigned = mutable_names(body)
    result: list[str] = []
    for statement in body:
        result.extend(_statement_lines(statement, assigned))
    return [_INDENT * level + line for line in result]


def _statement_lines(statement: Statement, assigned: set[str]) -> list[str]:
    match statement:
        case Declare(kind, name, value):
            const = "" if name in assigned else "const "
            text = render(value) if value is not None else "{}"
            return _broken(f"{const}{kind} {name} = {text};")
        case Scratch(kind, name, elements):
            return [f"auto {name} = std::make_unique<{kind}[]>({render(elements)});"]
        case Assign(target, value):
            return _broken(_assignment(target, value))
        case Evaluate(expression):
            return [render(expression) + ";"]
        case Return(value):
            return [f"return {render(value)};"]
        case Thunk(name, body):
            return [f"auto {name} = [&] {{", *_lines(body, 1), "};"]
        case Block(body, pragma):
            return [*([f"#pragma {pragma}"] if pragma else []), "{", *_lines(body, 1), "}"]
        case Loop():
            variable, step = statement.variable, render(statement.step)
            advance = f"++{variable}" if step == "1" else f"{variable} += {step}"
            header = (
                f"for (int64_t {variable} = {render(statement.start)}; "
                f"{variable} < {render(statement.stop)}; {advance}) {{"
            )
            pragmas = [f"#pragma {p}" for p in statement.pragmas]
            return [*pragmas, header, *_lines(statement.body, 1), "}"]


def _broken(line: str) -> list[str]:
    """A long statement with its value on a line of its own."""
    if len(line) <= _WIDTH or line.startswith("#"):
        return [line]
    head, equals, value = line.partition(" = ")
    if not equals:
        return [line]
    return [f"{head} =", _INDENT + value]


def _assignment(target: Expression, value: Expression) -> str:
    if isinstance(value, Binary) and value.operator in "+*" and value.left == target:
        return f"{render(target)} {value.operator}= {render(value.right)};"
    return f"{render(target)} = {render(value)};"
